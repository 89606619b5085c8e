"""Which restarts of a job's pods are counted, and why."""

from typing import Any

import pytest

from api.children import Exit, Pod
from controller.reconcile.job_history import JobHistory, failure_reason, restart_reason
from tests.support.builders import NOON, pod

SIZES = {"master": 1, "worker": 2}
OOM = Exit("pytorch", 137, "OOMKilled")


def restarts(history: JobHistory, *pods: Pod, batch: tuple[Pod, ...] = ()) -> list[tuple[str, int]]:
    return history.count_restarts(pods, batch, SIZES)


def launcher(uid: str, phase: str, **fields: Any) -> Pod:
    return pod(phase=phase, name=f"pi-launcher-{uid}", uid=uid, **fields)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"code": 1}, "error", id="an exit code"),
        pytest.param({"exits": (OOM,)}, "oom", id="out of memory"),
        pytest.param({"reason": "Evicted"}, "evicted", id="evicted by its node"),
        pytest.param({"code": 137, "disruption": "EvictionByEvictionAPI"}, "evicted", id="drained"),
        pytest.param({"disruption": "TerminationByKubelet"}, "evicted", id="ended by its node"),
        pytest.param({"reason": "Preempting"}, "preempted", id="preempted by its node"),
        pytest.param({"code": 143, "disruption": "PreemptionByScheduler"}, "preempted", id="preempted"),
        pytest.param({"disruption": "DeletionByTaintManager"}, "node_lost", id="its node is not ready"),
        pytest.param({"disruption": "DeletionByPodGC"}, "node_lost", id="its node is gone"),
        pytest.param(
            {"reason": "Terminated", "disruption": "TerminationByKubelet"}, "node_lost", id="shutdown"
        ),
        pytest.param({"reason": "UnexpectedAdmissionError"}, "other", id="not admitted by its node"),
        pytest.param({}, "other", id="unknown"),
        pytest.param({"phase": "Running", "deleting": True, "code": 143}, "other", id="deleted by a user"),
    ],
)
def test_the_reason_of_a_replaced_pod(fields: dict[str, Any], reason: str) -> None:
    row: dict[str, Any] = {"phase": "Failed", **fields}

    assert restart_reason(pod(**row)) == reason


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        pytest.param([pod(), pod(phase="Failed", code=1)], "error", id="a failed pod"),
        pytest.param(
            [pod(phase="Failed", exits=(OOM,), resource_version=9), pod(phase="Failed", code=1)],
            "oom",
            id="the pod that failed last",
        ),
        pytest.param(
            [pod(deleting=True, disruption="PreemptionByScheduler")], "preempted", id="a pod that is deleted"
        ),
        pytest.param(
            [pod(restarts=1, previous_failure=OOM), pod(phase="Failed", code=1)],
            "error",
            id="a failed pod counts before a restarted one",
        ),
        pytest.param(
            [
                pod(restarts=1, previous_failure=Exit("pytorch", 1, finished_at=NOON)),
                pod(restarts=1, previous_failure=OOM),
            ],
            "error",
            id="the last restart in place",
        ),
        pytest.param([pod(phase="Succeeded", code=0), pod(restarts=1)], "other", id="no failure"),
        pytest.param([], "other", id="no pod"),
    ],
)
def test_the_reason_of_a_failed_job(pods: list[Pod], reason: str) -> None:
    assert failure_reason(pods) == reason


def test_a_failed_pod_is_counted_once_and_when_it_is_replaced() -> None:
    history = JobHistory()
    failed = pod(phase="Failed", code=1)

    assert restarts(history, failed) == []
    assert restarts(history) == []
    assert restarts(history, pod(uid="second", phase="Pending")) == [("error", 1)]
    assert restarts(history, pod(uid="second")) == []


def test_the_first_observation_of_a_failed_pod_gives_the_reason() -> None:
    """The controller deletes the failed pod itself."""
    history = JobHistory()
    restarts(history, pod(phase="Failed", exits=(OOM,)))
    restarts(history, pod(phase="Failed", deleting=True, disruption="DeletionByPodGC"))

    assert restarts(history, pod(uid="second")) == [("oom", 1)]


def test_a_running_pod_that_somebody_deletes_is_counted() -> None:
    history = JobHistory()
    restarts(history, pod(deleting=True, disruption="PreemptionByScheduler"))

    assert restarts(history, pod(uid="second")) == [("preempted", 1)]


@pytest.mark.parametrize(
    ("gone", "counted"),
    [
        pytest.param({"phase": "Failed", "disruption": "DeletionByPodGC"}, [("node_lost", 1)], id="failed"),
        pytest.param({"phase": "Pending"}, [("other", 1)], id="deleted before it started"),
        pytest.param({"phase": "Succeeded"}, [], id="succeeded"),
        pytest.param({"deleting": True}, [("other", 1)], id="deleted while it ran"),
    ],
)
def test_a_pod_that_goes_between_two_reconciles(gone: dict[str, Any], counted: list[tuple[str, int]]) -> None:
    history = JobHistory()
    restarts(history, pod())
    history.record_lost_pod(pod(**gone))

    assert restarts(history, pod(uid="second")) == counted


def test_a_pod_of_a_smaller_job_is_not_replaced() -> None:
    history = JobHistory()
    restarts(history, pod(index=1, phase="Failed", code=1))
    history.count_restarts((), (), {"worker": 1})

    assert restarts(history, pod(index=1, uid="second")) == []


def test_the_pods_of_a_suspended_job_are_not_replaced() -> None:
    history = JobHistory()
    restarts(history, pod(phase="Failed", code=1))
    history.count_restarts((), (), {})

    assert restarts(history, pod(uid="second")) == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"previous_failure": Exit("pytorch", 1)}, "error", id="a failure"),
        pytest.param({"previous_failure": OOM}, "oom", id="out of memory"),
        pytest.param({"exits": (Exit("wait", 1, init=True),)}, "error", id="an init container"),
        pytest.param({}, "other", id="a success"),
    ],
)
def test_restarts_in_place(fields: dict[str, Any], reason: str) -> None:
    history = JobHistory()
    assert restarts(history, pod(restarts=1, **fields)) == [(reason, 1)]
    assert restarts(history, pod(restarts=1, **fields)) == []
    assert restarts(history, pod(restarts=4, **fields)) == [(reason, 3)]


def test_the_replacement_of_a_restarted_pod_begins_at_zero() -> None:
    history = JobHistory()
    restarts(history, pod(restarts=3))
    restarts(history)

    assert restarts(history, pod(uid="second", restarts=1)) == [("other", 1)]


def test_failed_launchers_are_counted_when_another_follows() -> None:
    """The Job keeps them, and the name of each is another one."""
    history = JobHistory()
    first, second = launcher("a", "Failed", code=1), launcher("b", "Failed", exits=(OOM,), resource_version=2)

    assert restarts(history, batch=(first,)) == []
    assert restarts(history, batch=(first, launcher("b", "Running"))) == [("error", 1)]
    assert restarts(history, batch=(first, second)) == []
    assert restarts(history, batch=(first, second, launcher("c", "Pending"))) == [("oom", 1)]
    assert restarts(history, batch=(first, second, launcher("c", "Succeeded"))) == []


def test_a_launcher_that_is_gone_with_its_job_is_counted_when_another_follows() -> None:
    """The whole job restarts."""
    history = JobHistory()
    failed = launcher("a", "Failed", code=1)

    assert restarts(history, batch=(failed,)) == []
    assert restarts(history) == []
    assert restarts(history, batch=(launcher("b", "Pending", resource_version=2),)) == [("error", 1)]
    assert restarts(history, batch=(launcher("b", "Running", resource_version=3),)) == []
