"""Gangs of each kind under the real Volcano and the real coscheduling scheduler: which run, what the others hold, and what they wait for.

Two simulated nodes have 64 GPUs each; a gang of four pods needs all of them unless a test says otherwise.
"""

import time
from collections.abc import Generator, Iterable
from typing import Any

import pytest

from api.restart_report import RestartReport
from tests.support import workloads
from tests.support.schedulers.gang_cluster import (
    COSCHEDULING,
    HALF_NODE,
    PODS,
    RESTARTS,
    VOLCANO,
    Gang,
    GangCluster,
    gang_cluster,
    limits,
)
from tests.support.schedulers.operator import Operator
from tests.support.workloads import Workload

URGENT = {"priorityClass": "high"}
PAST_BACKOFF_SECONDS = 5.0
"""A scheduler compares the priorities of gangs that it may try: coscheduling tries none within 2 s of the last refusal."""


@pytest.fixture(scope="module", params=[VOLCANO, COSCHEDULING], ids=["volcano", "coscheduling"])
def running_cluster(request: pytest.FixtureRequest, operator: Operator) -> Generator[GangCluster]:
    with gang_cluster(request.param, operator) as cluster:
        yield cluster


def test_gangs_of_all_kinds_say_what_they_wait_for_and_run_one_after_another(cluster: GangCluster) -> None:
    holder = cluster.submit("holder")
    holder.wait_until_running()
    waiting = submit_all_kinds(cluster, gpus=HALF_NODE)
    for gang in waiting:
        message = gang.wait_for_report()
        assert f"{gang.workload.resource.kind} {gang.name} waits for its PodGroup {gang.name}" in message
        assert f"needs {PODS} pods at once" in message
        assert gang.bound() == []
        assert f"{gang.name}: PodGroup " in gang.why()
    holder.end()

    while waiting:
        running = next_running(cluster, waiting)
        waiting.remove(running)
        assert all(gang.bound() == [] for gang in waiting)
        running.end()
        running.wait_until_without_group()


def next_running(cluster: GangCluster, waiting: list[Gang]) -> Gang:
    """Wait until one of the gangs runs as a whole, and return it."""

    def running() -> list[Gang]:
        return [gang for gang in waiting if len(gang.pods("Running")) == PODS]

    cluster.plane.wait("the next gang running", lambda: bool(running()))
    (found,) = running()
    found.wait_for("Running")
    return found


def test_a_gang_that_is_too_large_says_so_and_lets_others_pass(cluster: GangCluster) -> None:
    """Three of its four pods would have a node."""
    large = cluster.submit("large", gpus=33)
    large.wait_until_waiting()

    small = cluster.submit("small")

    small.wait_until_running()
    assert large.bound() == []
    assert "nvidia.com/gpu" in large.wait_for_report() + large.why()


def test_the_waiting_gang_of_higher_priority_goes_first(cluster: GangCluster) -> None:
    """The one that runs has a priority that nothing preempts."""
    holder = cluster.submit("holder", scheduling=URGENT)
    holder.wait_until_running()
    low = cluster.submit("low", scheduling={"priorityClass": "low"})
    low.wait_until_waiting()
    high = cluster.submit("high", scheduling=URGENT)
    high.wait_until_waiting()
    time.sleep(PAST_BACKOFF_SECONDS)

    holder.end()

    high.wait_until_running()
    assert low.bound() == []
    high.end()
    low.wait_until_running()


def test_a_suspended_gang_returns_what_it_holds_and_waits_again_when_it_is_resumed(
    cluster: GangCluster,
) -> None:
    first = cluster.submit("first")
    first.wait_until_running()
    second = cluster.submit("second")
    second.wait_until_waiting()

    first.suspend()

    second.wait_until_running()
    assert not first.has_group()
    first.suspend(is_suspended=False)
    first.wait_until_waiting()
    assert second.bound() == sorted(pod["metadata"]["name"] for pod in second.pods())
    second.end()
    first.wait_until_running()


def submit_all_kinds(
    cluster: GangCluster, kinds: Iterable[Workload] = workloads.ALL, *, gpus: int = 1, **fields: Any
) -> list[Gang]:
    """Create a job of each kind and version. With one GPU for each pod, all fit together."""
    return [
        cluster.submit(f"{kind.resource.kind.lower()}-{kind.resource.version}", kind, gpus=gpus, **fields)
        for kind in kinds
    ]


def test_a_pod_group_is_written_once_in_each_period_of_a_job_of_each_kind(cluster: GangCluster) -> None:
    """A suspension ends a period."""
    gangs = submit_all_kinds(cluster)
    before: dict[str, set[str]] = {}
    for gang in gangs:
        gang.wait_until_running()
        before[gang.name] = gang.uids()
        gang.suspend()
    for gang in gangs:
        gang.wait_until_gone(before[gang.name])
        gang.wait_until_without_group()
        gang.suspend(is_suspended=False)
    for gang in gangs:
        gang.wait_until_running()
        gang.end()
    for gang in gangs:
        gang.wait_until_without_group()
        assert gang.group_writes() == [["create"], ["create"]], gang.name


def test_the_pod_group_of_a_launcher_that_waits_is_written_twice(cluster: GangCluster) -> None:
    launched = [kind for kind in workloads.ALL if kind.head == "Launcher"]
    gangs = submit_all_kinds(cluster, launched, annotations={"kubeflow.org/mpi-wait-for-workers": "true"})
    for gang in gangs:
        gang.wait_until_running()
        gang.end()
    for gang in gangs:
        gang.wait_until_without_group()
        assert gang.group_writes() == [["create", "patch"]], gang.name


def test_the_pod_group_follows_the_size_of_the_job(cluster: GangCluster) -> None:
    gang = cluster.submit("elastic", pods=2)
    gang.wait_until_running(2)

    gang.resize("Worker", 3)

    gang.wait_until_running(4)
    assert gang.group()["spec"]["minMember"] == 4
    gang.resize("Worker", 1)
    gang.wait("its surplus pods gone", lambda: len(gang.pods()) == 2)
    gang.wait("its group smaller", lambda: gang.group()["spec"]["minMember"] == 2)
    other = cluster.submit("other", pods=2)
    other.wait_until_running(2)


def test_a_gang_of_fewer_than_all_pods_starts_with_those_that_fit(cluster: GangCluster) -> None:
    holder = cluster.submit("holder", pods=2)
    holder.wait_until_running(2)
    gang = cluster.submit("partial", workload=workloads.JAX, scheduling={"minAvailable": 2})

    gang.wait("half of it running", lambda: len(gang.pods("Running")) == 2)

    holder.end()
    gang.wait_until_running(PODS)


def test_one_pod_of_a_gang_is_replaced_within_its_group(cluster: GangCluster) -> None:
    gang = cluster.submit("mended", restart_policy="OnFailure")
    gang.wait_until_running()
    group, failed = gang.group()["metadata"]["uid"], gang.pod("worker-1")
    survivors = gang.uids() - {failed["metadata"]["uid"]}

    cluster.end_pods([failed], code=1)

    gang.wait(
        "its pod replaced", lambda: gang.uids() > survivors and failed["metadata"]["uid"] not in gang.uids()
    )
    gang.wait_until_running()
    assert gang.uids() > survivors
    assert gang.group()["metadata"]["uid"] == group
    assert gang.group_writes() == [["create"]]


def test_gangs_of_all_kinds_that_restart_as_a_whole_run_again_in_their_groups(cluster: GangCluster) -> None:
    gangs = submit_all_kinds(cluster, **RESTARTS)
    before: dict[str, tuple[str, set[str]]] = {}
    for gang in gangs:
        gang.wait_until_running()
        before[gang.name] = gang.group()["metadata"]["uid"], gang.uids()
        cluster.end_pods([gang.pod("worker-1")], code=1)
    for gang in gangs:
        group, pods = before[gang.name]
        gang.wait_until_gone(pods)
        gang.wait_until_running()
        assert gang.group()["metadata"]["uid"] == group
        gang.end()


@pytest.mark.parametrize(
    "kind", [workloads.PYTORCH, workloads.MPI_V2BETA1], ids=lambda kind: kind.resource.kind
)
def test_a_gang_that_restarts_in_place_keeps_its_pods_and_its_group(
    cluster: GangCluster, kind: Workload
) -> None:
    commanded = {"name": kind.container, "image": "x", "command": ["train"], **limits(HALF_NODE)}
    policy = {**RESTARTS["failurePolicy"], "restartStrategy": "InPlaceRestart"}
    gang = cluster.submit("settled", kind, pod={"containers": [commanded]}, failurePolicy=policy)
    gang.wait_until_running()
    pods, group = gang.uids(), gang.group()["metadata"]["uid"]
    waiting = cluster.submit("waiting", pods=2)
    waiting.wait_until_waiting()

    cluster.restart_container(gang.pod("worker-1"), RestartReport(attempt=0, exit_code=1, counted=1))

    gang.wait("the restart recorded", lambda: gang.job()["status"].get("inPlaceRestarts") == 1)
    gang.wait_until_running()
    assert gang.uids() == pods
    assert gang.group()["metadata"]["uid"] == group
    assert gang.group_writes() == [["create"]]
    assert waiting.bound() == []


def test_a_restarting_gang_that_has_lost_its_place_says_so_and_holds_nothing(cluster: GangCluster) -> None:
    """While it pauses before its third attempt, another gang takes the nodes."""
    gang = cluster.submit("displaced", **RESTARTS)
    for _ in range(2):
        gang.wait_until_running()
        before = gang.uids()
        cluster.end_pods([gang.pod("worker-1")], code=1)
        gang.wait_until_gone(before)
    other = cluster.submit("other")
    other.wait_until_running()

    message = gang.wait_for_report()

    assert f"waits for its PodGroup {gang.name}" in message
    assert gang.has_condition("Restarting")
    assert gang.bound() == []
    assert f"{gang.name}: PodGroup " in gang.why()
    other.end()
    gang.wait_until_running()
