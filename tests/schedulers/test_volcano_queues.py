"""The queues of the real Volcano: what they count of a gang, when they take one, and when they have their quota back.

Two simulated nodes have 64 GPUs each.
"""

from collections.abc import Generator
from typing import Any

import pytest

from api.requests import amounts
from tests.support import workloads
from tests.support.schedulers.gang_cluster import (
    GPU,
    HALF_NODE,
    PODS,
    VOLCANO,
    Gang,
    GangCluster,
    gang_cluster,
)
from tests.support.schedulers.operator import Operator
from tests.support.schedulers.volcano import create_queue, operate_queue, queue_status

SMALL = {"queue": "small"}
"""A queue with the GPUs of one node: for two pods of half a node."""


@pytest.fixture(scope="module")
def running_cluster(operator: Operator) -> Generator[GangCluster]:
    with gang_cluster(
        VOLCANO, operator, prepare=lambda plane: create_queue(plane, "small", capability={GPU: "64"})
    ) as cluster:
        yield cluster


def allocated(cluster: GangCluster, queue: str) -> dict[str, Any]:
    """Return what pods of the queue have, as numbers, without what is 0 and without the number of pods."""
    written = queue_status(cluster.plane, queue).get("allocated") or {}
    return {name: value for name, value in numbers(written).items() if value and name != "pods"}


def numbers(written: dict[str, Any]) -> dict[str, Any]:
    return {name: quantity.amount for name, quantity in amounts(written).items()}


def submit_pair(cluster: GangCluster, name: str) -> Gang:
    """Create a gang that needs the whole queue."""
    return cluster.submit(name, pods=2, scheduling=SMALL)


def test_a_gang_waits_for_the_quota_of_its_queue_and_runs_when_it_is_returned(cluster: GangCluster) -> None:
    first = submit_pair(cluster, "first")
    first.wait_until_running(2)
    second = submit_pair(cluster, "second")
    second.wait_until_waiting()

    text = "queue small is full (nvidia.com/gpu: needs 64, 64 of 64 are in use)"
    assert second.wait_for_report().endswith(f"Pending in queue small and needs 2 pods at once: {text}")
    assert f"second: PodGroup Pending in queue small: {text}" in second.why()
    assert second.pods() == []
    first.end()
    second.wait_until_running(2)
    second.end()
    second.wait("the quota returned", lambda: allocated(cluster, "small") == {})


def test_a_suspended_gang_returns_its_quota(cluster: GangCluster) -> None:
    first = submit_pair(cluster, "first")
    first.wait_until_running(2)
    second = submit_pair(cluster, "second")
    second.wait_until_waiting()

    first.suspend()

    second.wait_until_running(2)
    first.suspend(is_suspended=False)
    first.wait_until_waiting()
    second.end()
    first.wait_until_running(2)


def test_the_quota_of_a_pod_that_fails_in_a_full_queue_goes_to_its_replacement(cluster: GangCluster) -> None:
    gang = cluster.submit("mended", pods=2, scheduling=SMALL, restart_policy="OnFailure")
    gang.wait_until_running(2)
    for _ in range(2):
        before = gang.pod("worker-0")

        cluster.end_pods([before], code=1)

        gang.wait_until_gone([before["metadata"]["uid"]])
        gang.wait("its replacement running", lambda: len(gang.pods("Running")) == 2)


def test_a_closing_queue_keeps_its_gang_and_takes_no_other_until_it_is_open_again(
    cluster: GangCluster,
) -> None:
    create_queue(cluster.plane, "shift")
    shift = {"queue": "shift"}
    first = cluster.submit("first", gpus=1, scheduling=shift)
    first.wait_until_running()

    operate_queue(cluster.plane, "shift", "CloseQueue", "Closing")
    second = cluster.submit("second", gpus=1, scheduling=shift)

    assert second.wait_for_report().endswith("queue shift is Closing")
    assert len(first.pods("Running")) == PODS
    operate_queue(cluster.plane, "shift", "OpenQueue", "Open")
    second.wait_until_running()
    first.end()


CPU = {"cpu": "2", "memory": "1Gi"}
SIDECAR = {"name": "side", "image": "x", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param({}, {GPU: "4"}, id="GPUs by limits"),
        pytest.param({"initContainers": [SIDECAR]}, {GPU: "4", "cpu": "4"}, id="a sidecar"),
        pytest.param(
            {
                "containers": [
                    {"name": "jax", "image": "x", "resources": {"requests": CPU, "limits": {"cpu": "3"}}}
                ]
            },
            {"cpu": "8", "memory": "4Gi"},
            id="requests below limits",
        ),
    ],
)
def test_min_resources_are_what_the_scheduler_counts_for_all_pods(
    cluster: GangCluster, pod: dict[str, Any], expected: dict[str, str]
) -> None:
    create_queue(cluster.plane, "counted")
    gang = cluster.submit("counted-gang", workloads.JAX, gpus=1, scheduling={"queue": "counted"}, pod=pod)
    gang.wait_until_running()

    gang.wait("its pods counted", lambda: allocated(cluster, "counted") == numbers(expected))
    assert numbers(gang.group()["spec"]["minResources"]) == numbers(expected)
    gang.end()
    gang.wait("its quota returned", lambda: allocated(cluster, "counted") == {})


def test_min_resources_of_fewer_than_all_pods_are_what_the_scheduler_counts_for_these(
    cluster: GangCluster,
) -> None:
    holder = cluster.submit("holder", pods=2)
    holder.wait_until_running(2)
    create_queue(cluster.plane, "partial")
    policy = {"queue": "partial", "minAvailable": 2}
    gang = cluster.submit("partial-gang", workloads.JAX, scheduling=policy)
    gang.wait("half of it running", lambda: len(gang.pods("Running")) == 2)

    expected = numbers({GPU: str(2 * HALF_NODE)})
    gang.wait("its pods counted", lambda: allocated(cluster, "partial") == expected)
    assert numbers(gang.group()["spec"]["minResources"]) == expected
