"""Plans for pods that fail, terminate or vanish: the matrix of restarts."""

from typing import Any

import pytest

from api.meta import PODS, SERVICES
from controller.domain import Count, Deletion, Event, Severity
from tests.support.builders import NOON
from tests.support.in_memory_cluster import InMemoryCluster, running_cluster

ALL_CHILDREN = ["train-master-0", "train-worker-0", "train-worker-1"]


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always", "ExitCode"])
def test_the_kubelet_restarts_containers_in_place(policy: str) -> None:
    cluster = running_cluster(policy)
    cluster.set_phase("Running", "worker-0", restarts=3)

    assert cluster.settle() == []


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        pytest.param("OnFailure", 1, id="OnFailure, the program's own code"),
        pytest.param("OnFailure", 137, id="OnFailure, killed"),
        pytest.param("OnFailure", None, id="OnFailure, evicted"),
        pytest.param("Always", 1, id="Always, the program's own code"),
        pytest.param("Always", 137, id="Always, killed"),
        pytest.param("Always", None, id="Always, evicted"),
        pytest.param("ExitCode", 128, id="ExitCode, the first retryable code"),
        pytest.param("ExitCode", 137, id="ExitCode, killed"),
        pytest.param("ExitCode", None, id="ExitCode, evicted"),
    ],
)
def test_a_failed_pod_is_replaced(policy: str, code: int | None) -> None:
    cluster = running_cluster(policy, graceful=True)
    before = cluster.pods["train-worker-0"]
    cluster.set_phase("Failed", "worker-0", code=code)

    recorded, replaced = cluster.step(), cluster.step()

    assert recorded.delete == (), "the status knows of it before the pod goes"
    assert recorded.requeue_after_seconds == 0
    assert replaced.delete == (Deletion(PODS, "train-worker-0", before.uid),)
    assert cluster.conditions == "Created T, Restarting T"
    assert cluster.counts[-1] is Count.RESTARTED
    assert cluster.settle() == []
    cluster.go("worker-0")
    cluster.settle()
    assert cluster.pods["train-worker-0"].uid != before.uid
    assert cluster.conditions == "Created T, Running T"


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        pytest.param("Never", 1, id="Never, the program's own code"),
        pytest.param("Never", 137, id="Never, killed"),
        pytest.param("Never", None, id="Never, evicted"),
        pytest.param("ExitCode", 0, id="ExitCode, a sidecar failed"),
        pytest.param("ExitCode", 1, id="ExitCode, the program's own code"),
        pytest.param("ExitCode", 127, id="ExitCode, the last permanent code"),
    ],
)
def test_a_failed_pod_ends_the_job(policy: str, code: int | None) -> None:
    cluster = running_cluster(policy)
    made = list(cluster.created_pods)
    cluster.set_phase("Failed", "worker-0", code=code)

    plan = cluster.step()

    assert (plan.create, plan.delete) == ((), ())
    assert cluster.conditions == "Created T, Running F, Failed T"
    assert cluster.status.completion_time == NOON
    assert cluster.counters["Worker"] == {"active": 1, "failed": 1}
    assert cluster.counts[-1] is Count.FAILED
    cluster.settle()
    assert (cluster.created_pods, list(cluster.pods)) == (made, ALL_CHILDREN)


@pytest.mark.parametrize(
    ("policy", "conditions"),
    [
        ("Never", "Created T, Running F, Failed T"),
        ("OnFailure", "Created T, Restarting T"),
        ("Always", "Created T, Restarting T"),
        ("ExitCode", "Created T, Restarting T"),
    ],
)
def test_a_running_pod_that_is_deleted_counts_as_failed(policy: str, conditions: str) -> None:
    cluster = running_cluster(policy, graceful=True)
    cluster.remove("worker-0")

    plan = cluster.step()

    assert (plan.create, plan.delete) == ((), ())
    assert cluster.conditions == conditions
    assert cluster.counters["Worker"] == {"active": 1, "failed": 1}


def test_a_deleted_pod_is_created_again_once_it_is_gone() -> None:
    cluster = running_cluster(graceful=True)
    cluster.remove("worker-0")
    cluster.settle()
    cluster.go("worker-0")

    plan = cluster.step()

    assert [child.name for child in plan.create] == ["train-worker-0"]
    assert cluster.conditions == "Created T, Running T"


@pytest.mark.parametrize("before", ["Pending", "Running", "Succeeded", "Unknown"])
@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always", "ExitCode"])
def test_a_vanished_pod_is_created_again_without_a_verdict(policy: str, before: str) -> None:
    cluster = running_cluster(policy)
    cluster.set_phase(before, "worker-0")
    cluster.settle()
    cluster.go("worker-0")

    cluster.settle()

    assert cluster.created_pods[-1] == "train-worker-0"
    assert cluster.conditions == "Created T, Running T"


def test_a_vanished_running_pod_is_reported() -> None:
    cluster = running_cluster()
    cluster.go("worker-0")
    cluster.settle()

    assert [event for event in cluster.events if event.reason == "PyTorchJobRestarting"] == [
        Event(
            Severity.WARNING,
            "PyTorchJobRestarting",
            "PyTorchJob train is restarting because 1 Worker replica(s) failed.",
        )
    ]


def test_a_vanished_service_is_created_again() -> None:
    cluster = running_cluster()
    del cluster.services["train-worker-1"]

    plan = cluster.step()

    assert [(child.resource, child.name) for child in plan.create] == [(SERVICES, "train-worker-1")]


def test_a_failed_replica_is_counted_once_however_long_its_pod_takes_to_terminate() -> None:
    cluster = running_cluster(graceful=True)
    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.settle()
    cluster.set_phase("Failed", "worker-0", code=1, deleting=True, restarts=0)
    cluster.settle()

    assert cluster.reasons == ["ExitedWithCode", "PyTorchJobRestarting", "PyTorchJobRestarting"]
    assert cluster.counts.count(Count.RESTARTED) == 1


def test_a_failing_job_replaces_nothing() -> None:
    cluster = running_cluster(worker={"restartPolicy": "Never"})
    cluster.set_phase("Failed", "master-0", code=1)
    cluster.set_phase("Failed", "worker-0", code=1)

    plan = cluster.step()

    assert (plan.create, plan.delete) == ((), ())
    assert cluster.conditions == "Created T, Running F, Failed T"


def failing_again(**fields: Any) -> InMemoryCluster:
    """Build a job whose worker 0 has failed twice and is not replaced yet."""
    cluster = running_cluster(**fields)
    for _ in range(2):
        cluster.set_phase("Running")
        cluster.settle()
        cluster.set_phase("Failed", "worker-0", code=137)
        cluster.settle()
    return cluster


def test_a_pod_that_fails_again_stays_until_its_pause_ends() -> None:
    cluster = failing_again()
    pod = cluster.pods["train-worker-0"]

    assert cluster.decide().requeue_after_seconds == 10
    assert cluster.conditions == "Created T, Restarting T"
    cluster.wait(9)
    assert cluster.settle() == []
    cluster.wait(1)
    assert cluster.decide().delete == (Deletion(PODS, "train-worker-0", pod.uid),)


def test_a_pause_delays_no_other_replica() -> None:
    cluster = failing_again()
    before = cluster.pods["train-worker-1"]
    cluster.set_phase("Failed", "worker-1", code=137)
    cluster.settle()

    assert cluster.pods["train-worker-1"].uid != before.uid
    assert cluster.created_pods.count("train-worker-0") == 2


def test_a_failure_counts_before_its_pause_ends() -> None:
    cluster = failing_again(run_policy={"backoffLimit": 2})

    assert cluster.conditions == "Created T, Running F, Failed T"


def test_a_pause_ends_with_the_deadline() -> None:
    cluster = failing_again(run_policy={"activeDeadlineSeconds": 4})

    assert cluster.decide().requeue_after_seconds == 4
