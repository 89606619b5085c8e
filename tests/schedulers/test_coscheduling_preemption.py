"""Preemption by kube-scheduler with the coscheduling plugin, which looks at single pods: it preempts as many as it needs for each.

Two simulated nodes have 64 GPUs each. The scheduler considers a pod that the plugin has refused again after 5 minutes, its default, which
no test waits for: gangs with empty ``minResources`` start when others end.
"""

from collections.abc import Generator
from functools import partial

import pytest

from tests.support.schedulers.coscheduling import coscheduling
from tests.support.schedulers.gang_cluster import (
    COSCHEDULING,
    PODS,
    RESTARTS,
    GangCluster,
    GangScheduler,
    gang_cluster,
)
from tests.support.schedulers.operator import Operator

SCHEDULER = GangScheduler(COSCHEDULING.name, COSCHEDULING.groups, partial(coscheduling, retry_seconds=None))
LOW = {"priorityClass": "low", "minResources": {}}
HIGH = {"priorityClass": "high", "minResources": {}}


@pytest.fixture(scope="module")
def running_cluster(operator: Operator) -> Generator[GangCluster]:
    with gang_cluster(SCHEDULER, operator) as cluster:
        yield cluster


def test_a_gang_without_min_resources_runs_when_others_have_ended(cluster: GangCluster) -> None:
    first = cluster.submit("first", scheduling={"minResources": {}})
    first.wait_until_running()
    second = cluster.submit("second", scheduling={"minResources": {}})
    second.wait_until_waiting()

    first.end()

    second.wait_until_running()


def test_a_gang_with_min_resources_preempts_nothing_and_says_what_it_lacks(cluster: GangCluster) -> None:
    """The plugin refuses it before kube-scheduler looks for victims."""
    running = cluster.submit("running", scheduling=LOW)
    running.wait_until_running()

    urgent = cluster.submit("urgent", pods=2, scheduling={"priorityClass": "high"})

    assert "resource gap" in urgent.wait_for_report()
    assert "resource gap" in urgent.why()
    assert len(running.pods("Running")) == PODS
    assert urgent.bound() == []


def test_a_preempted_gang_that_restarts_as_a_whole_holds_nothing_and_runs_again_later(
    cluster: GangCluster,
) -> None:
    victim = cluster.submit("victim", scheduling=LOW, **RESTARTS)
    victim.wait_until_running()
    before = victim.uids()

    urgent = cluster.submit("urgent", pods=2, scheduling=HIGH)

    urgent.wait_until_running(2)
    victim.wait("all pods replaced", lambda: len(victim.uids() - before) == PODS)
    assert f"waits for its PodGroup {victim.name}" in victim.wait_for_report()
    assert victim.bound() == []
    urgent.end()
    victim.wait_until_running()


def test_a_preempted_gang_is_complete_again_later(cluster: GangCluster) -> None:
    victim = cluster.submit("victim", restart_policy="OnFailure", scheduling=LOW)
    victim.wait_until_running()

    urgent = cluster.submit("urgent", pods=2, scheduling=HIGH)

    urgent.wait_until_running(2)
    assert len(victim.bound()) <= 2
    urgent.end()
    victim.wait_until_running()
