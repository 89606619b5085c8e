"""Preemption by the real Volcano: of a gang by one of higher priority, and of one that has borrowed from another queue.

Two simulated nodes have 64 GPUs each. Volcano preempts no more pods than it needs, so that a gang loses some of its pods.
"""

from collections.abc import Generator
from functools import partial

import pytest

from rallypoint.testing.controlplane import ControlPlane
from tests.support.schedulers.gang_cluster import (
    GPU,
    PODS,
    RESTARTS,
    VOLCANO,
    Gang,
    GangCluster,
    GangScheduler,
    gang_cluster,
)
from tests.support.schedulers.operator import Operator
from tests.support.schedulers.volcano import PREEMPTING, configure, create_queue, volcano

SCHEDULER = GangScheduler(VOLCANO.name, VOLCANO.groups, partial(volcano, config=PREEMPTING))
HALF = {GPU: "64"}
SHARED, BORROWER, LENDER, LIMITED = "shared", "borrower", "lender", "limited"


def create_queues(plane: ControlPlane) -> None:
    """Create a queue that two others share equally, and one whose parent has the GPUs of one node."""
    create_queue(plane, SHARED, parent="root")
    for name in (BORROWER, LENDER):
        create_queue(plane, name, parent=SHARED, deserved=HALF)
    create_queue(plane, "parent", parent="root", capability=HALF)
    create_queue(plane, LIMITED, parent="parent")


@pytest.fixture(scope="module")
def running_cluster(operator: Operator) -> Generator[GangCluster]:
    with gang_cluster(SCHEDULER, operator, prepare=create_queues) as cluster:
        yield cluster


def wait_for_replacements(gang: Gang, before: set[str], count: int) -> None:
    """Wait until this many of the gang's pods are new ones without a node."""
    gang.wait(
        f"{count} pods of {gang.name} replaced",
        lambda: (
            len([pod for pod in gang.pods("Pending") if pod["metadata"]["uid"] not in before]) == count
            and len(gang.pods()) == PODS
        ),
    )


def test_a_preempted_gang_keeps_its_other_pods_and_is_complete_again_later(cluster: GangCluster) -> None:
    victim = cluster.submit("victim", restart_policy="OnFailure", scheduling={"priorityClass": "low"})
    victim.wait_until_running()
    before = victim.uids()

    urgent = cluster.submit("urgent", pods=2, scheduling={"priorityClass": "high"})

    urgent.wait_until_running(2)
    wait_for_replacements(victim, before, 2)
    assert len(victim.bound()) == 2
    assert "victim" in victim.why()
    urgent.end()
    victim.wait_until_running()
    assert len(victim.uids() & before) == 2


def test_a_preempted_gang_whose_pods_never_restart_fails(cluster: GangCluster) -> None:
    victim = cluster.submit("victim", scheduling={"priorityClass": "low"}, cleanPodPolicy="All")
    victim.wait_until_running()

    urgent = cluster.submit("urgent", pods=2, scheduling={"priorityClass": "high"})

    urgent.wait_until_running(2)
    victim.wait_for("Failed")
    victim.wait("nothing held", lambda: victim.bound() == [])


def test_a_preempted_gang_that_restarts_as_a_whole_holds_nothing_and_runs_again_later(
    cluster: GangCluster,
) -> None:
    victim = cluster.submit("victim", scheduling={"priorityClass": "low"}, **RESTARTS)
    victim.wait_until_running()
    before = victim.uids()

    urgent = cluster.submit("urgent", pods=2, scheduling={"priorityClass": "high"})

    urgent.wait_until_running(2)
    wait_for_replacements(victim, before, PODS)
    assert victim.bound() == []
    assert f"waits for its PodGroup {victim.name}" in victim.wait_for_report()
    other = cluster.submit("other", pods=2)
    other.wait_until_running(2)
    other.end()
    urgent.end()
    victim.wait_until_running()
    assert victim.group_writes() == [["create"]]


def test_with_enqueue_only_a_gang_without_min_resources_preempts(cluster: GangCluster) -> None:
    """Volcano admits a gang for which nothing is free to no queue; without admission it has no pods, and only pods preempt."""
    configure(cluster.plane, {**PREEMPTING, "actions": f"enqueue, {PREEMPTING['actions']}"})
    try:
        victim = cluster.submit("victim", scheduling={"priorityClass": "low"}, **RESTARTS)
        victim.wait_until_running()
        high = {"priorityClass": "high"}
        urgent = cluster.submit("urgent", pods=2, scheduling=high)
        urgent.wait_until_waiting()
        assert urgent.wait_for_report()
        assert urgent.phase() == "Pending"
        assert "queue resource quota insufficient" in urgent.why()
        assert len(victim.pods("Running")) == PODS

        modest = cluster.submit("modest", pods=2, scheduling={**high, "minResources": {}})

        modest.wait_until_running(2)
        urgent.wait_until_running(2)
    finally:
        configure(cluster.plane, PREEMPTING)


def test_a_queue_gets_back_what_another_has_borrowed(cluster: GangCluster) -> None:
    borrower = cluster.submit("debtor", scheduling={"queue": BORROWER}, **RESTARTS)
    borrower.wait_until_running()
    before = borrower.uids()

    lender = cluster.submit("creditor", pods=2, scheduling={"queue": LENDER})

    lender.wait_until_running(2)
    wait_for_replacements(borrower, before, PODS)
    assert borrower.bound() == []
    lender.end()
    borrower.wait_until_running()


def test_the_capability_of_a_parent_queue_limits_its_children(cluster: GangCluster) -> None:
    first = cluster.submit("first", pods=2, scheduling={"queue": LIMITED})
    first.wait_until_running(2)
    second = cluster.submit("second", pods=2, scheduling={"queue": LIMITED})

    second.wait_until_waiting()

    assert f"waits for its PodGroup {second.name}" in second.wait_for_report()
    first.end()
    second.wait_until_running(2)
