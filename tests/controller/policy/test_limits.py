"""The active deadline, the backoff limit and the restarts that count for it."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.children import Exit, Pod
from api.job import JobStatus, RunPolicy
from api.pod_problems import Trouble
from controller.domain import Failure, Snapshot
from controller.kinds.pytorch import PYTORCH
from controller.policy import limits
from tests.support.builders import NOON, pod, pytorch_job

OUT_OF_TRIES = "Job train has failed because it has reached the specified backoff limit"
OUT_OF_TIME = "Job train has failed because it was active longer than specified deadline"


def restarts(*pods: Pod, policy: str = "OnFailure", used: dict[str, int] | None = None) -> int:
    fields = {"restartPolicy": policy}
    roles = PYTORCH.roles(pytorch_job(master=fields, worker=fields))
    replica_statuses = {role: {"restarts": count} for role, count in (used or {}).items()}
    status = JobStatus.model_validate({"replicaStatuses": replica_statuses} if used else {})
    return limits.restarts(roles, pods, status)


@pytest.mark.parametrize(
    ("limit", "count", "reached"),
    [
        pytest.param(None, 10**6, False, id="no limit"),
        pytest.param(-1, 0, True, id="a negative limit is reached at once"),
        pytest.param(0, 0, False, id="limit 0 without restarts"),
        pytest.param(0, 1, True, id="limit 0 after a restart"),
        pytest.param(1, 0, False, id="limit 1 without restarts"),
        pytest.param(1, 1, True, id="limit 1 after a restart"),
        pytest.param(3, 2, False, id="limit 3 after two restarts"),
        pytest.param(3, 3, True, id="limit 3 after three restarts"),
        pytest.param(3, 9, True, id="limit 3 after nine restarts"),
    ],
)
def test_the_backoff_limit_is_reached(limit: int | None, count: int, reached: bool) -> None:
    assert limits.out_of_tries(RunPolicy(backoff_limit=limit), count) is reached


@pytest.mark.parametrize(
    ("pods", "count"),
    [
        pytest.param([], 0, id="no pods"),
        pytest.param([pod(restarts=2), pod(index=1, restarts=1)], 3, id="restarts in place are summed"),
        pytest.param([pod("master", restarts=1), pod(restarts=1)], 2, id="restarts of all roles are summed"),
        pytest.param([pod(phase="Pending", restarts=2)], 2, id="a pending pod counts"),
        pytest.param([pod(phase="Failed")], 1, id="a failed pod counts, as it will be replaced"),
        pytest.param(
            [pod(phase="Failed", restarts=2)], 3, id="a failed pod counts with its earlier restarts"
        ),
        pytest.param([pod(phase="Failed", deleting=True)], 1, id="a terminating failed pod counts"),
        pytest.param([pod(restarts=1, deleting=True)], 1, id="a terminating running pod adds no restart"),
        pytest.param([pod("chief", phase="Failed")], 0, id="a pod of another role does not count"),
    ],
)
def test_the_restart_count(pods: list[Pod], count: int) -> None:
    assert restarts(*pods) == count


def test_restarts_of_replaced_pods_count() -> None:
    assert restarts(pod(restarts=1), used={"Worker": 2, "Master": 1}) == 4


def test_restart_policy_never_counts_no_restarts() -> None:
    assert restarts(pod(phase="Failed", restarts=3), policy="Never", used={"Worker": 5}) == 0


@given(st.lists(st.tuples(st.sampled_from(["Running", "Failed"]), st.integers(0, 5)), max_size=2))
def test_replacing_a_failed_pod_does_not_change_the_count(pods: list[tuple[str, int]]) -> None:
    before = [pod(index=at, phase=phase, restarts=n) for at, (phase, n) in enumerate(pods)]
    failed = [pod for pod in before if pod.phase == "Failed"]
    used = {"Worker": sum(1 + pod.restarts for pod in failed)}

    assert restarts(*(pod for pod in before if pod not in failed), used=used) == restarts(*before)


@pytest.mark.parametrize(
    ("seconds", "late"),
    [
        pytest.param(9.999, False, id="just before"),
        pytest.param(10, True, id="exactly then"),
        pytest.param(10.001, True, id="just after"),
    ],
)
def test_past_deadline(seconds: float, late: bool) -> None:
    policy, now = RunPolicy(active_deadline_seconds=10), NOON + timedelta(seconds=seconds)

    assert limits.past_deadline(policy, NOON, now) is late


@pytest.mark.parametrize(
    ("deadline", "started"),
    [
        pytest.param(10, None, id="a job that has not started"),
        pytest.param(None, NOON, id="a job without a deadline"),
    ],
)
def test_a_job_without_a_start_time_or_deadline_is_never_late(
    deadline: int | None, started: datetime | None
) -> None:
    policy, now = RunPolicy(active_deadline_seconds=deadline), NOON + timedelta(days=1)

    assert limits.deadline_in(policy, started, now) is None
    assert not limits.past_deadline(policy, started, now)


def test_the_deadline_is_due_in_the_remaining_time() -> None:
    policy, now = RunPolicy(active_deadline_seconds=10), NOON + timedelta(seconds=4)

    assert limits.deadline_in(policy, NOON, now) == 6


@pytest.mark.parametrize("deadline", [0, -5])
def test_a_zero_or_negative_deadline_is_past_at_the_start(deadline: int) -> None:
    assert limits.past_deadline(RunPolicy(active_deadline_seconds=deadline), NOON, NOON)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        pytest.param({}, "", id="no limits"),
        pytest.param({"backoff_limit": 2}, OUT_OF_TRIES, id="out of tries"),
        pytest.param({"active_deadline_seconds": 1}, OUT_OF_TIME, id="out of time"),
        pytest.param(
            {"backoff_limit": 2, "active_deadline_seconds": 1},
            OUT_OF_TRIES,
            id="the backoff limit is reported first",
        ),
        pytest.param({"backoff_limit": 3, "active_deadline_seconds": 9}, "", id="neither is reached"),
    ],
)
def test_exceeded(policy: dict[str, Any], message: str) -> None:
    roles, now = PYTORCH.roles(pytorch_job()), NOON + timedelta(seconds=5)
    pods, status = (pod(restarts=2),), JobStatus(start_time=NOON)

    assert limits.exceeded(RunPolicy(**policy), "train", roles, Snapshot(pods), status, now) == message


def exit_at(seconds: float, code: int = 1, message: str = "", container: str = "pytorch") -> Exit:
    return Exit(container, code, "Error", message, finished_at=NOON + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("pods", "cause"),
    [
        pytest.param([pod(), pod(index=1)], "", id="pods without a failure"),
        pytest.param([pod(code=0)], "", id="a pod that succeeded"),
        pytest.param(
            [pod(phase="Failed", exits=(exit_at(1, 3, "\x1b[31mno luck\x1b[0m\x07\r\n\n"),))],
            "; last failure: train-worker-0: container pytorch ended with exit code 3: no luck",
            id="a message with terminal control",
        ),
        pytest.param(
            [pod(phase="Failed", exits=(exit_at(1, 3, "no luck"),))],
            "; last failure: train-worker-0: container pytorch ended with exit code 3: no luck",
            id="a failed pod",
        ),
        pytest.param(
            [pod(previous_failure=exit_at(1, 137))],
            "; last failure: train-worker-0: container pytorch ended with exit code 137, killed by SIGKILL",
            id="a container that runs again",
        ),
        pytest.param(
            [pod(previous_failure=exit_at(1, 2)), pod(index=1, previous_failure=exit_at(2, 3))],
            "; last failure: train-worker-1: container pytorch ended with exit code 3",
            id="the last of two failures",
        ),
        pytest.param(
            [pod(exits=(Exit("pytorch", 2),)), pod(index=1, previous_failure=exit_at(2, 3))],
            "; last failure: train-worker-1: container pytorch ended with exit code 3",
            id="a failure of an unknown time is older",
        ),
        pytest.param(
            [pod(phase="Failed", reason="Evicted", message="no memory")],
            "; last failure: train-worker-0: Evicted: no memory",
            id="an evicted pod",
        ),
        pytest.param([pod(phase="Failed", code=143, deleting=True)], "", id="a deleted pod"),
        pytest.param(
            [pod(phase="Pending", troubles=(Trouble("ErrImagePull", "Error pod train-worker-0 …", "x"),))],
            "; Error pod train-worker-0 …",
            id="a pod that does not run",
        ),
    ],
)
def test_the_message_of_an_exceeded_limit_ends_with_the_last_failure(pods: list[Pod], cause: str) -> None:
    message = at_deadline(Snapshot(tuple(pods)))

    assert message == f"{OUT_OF_TIME}{cause}"
    assert limits.was_exceeded("train", message)


def at_deadline(snapshot: Snapshot) -> str:
    roles, policy = PYTORCH.roles(pytorch_job()), RunPolicy(active_deadline_seconds=1)
    later = NOON + timedelta(seconds=5)
    return limits.exceeded(policy, "train", roles, snapshot, JobStatus(start_time=NOON), later)


FAILURES = {
    "train-worker-0": Failure("u", 1, NOON, "train-worker-0: older"),
    "train-worker-1": Failure("u", 1, NOON + timedelta(seconds=1), "train-worker-1: newer"),
}


@pytest.mark.parametrize(
    ("pods", "cause"),
    [
        pytest.param((pod(),), "; last failure: train-worker-1: newer", id="its replacement runs"),
        pytest.param(
            (pod(phase="Pending", troubles=(Trouble("ErrImagePull", "…", "x"),)),),
            "; last failure: train-worker-1: newer",
            id="its replacement does not run",
        ),
        pytest.param(
            (pod(phase="Failed", reason="Evicted"),),
            "; last failure: train-worker-0: Evicted",
            id="another pod shows a failure",
        ),
    ],
)
def test_a_failure_of_a_replaced_pod_is_remembered(pods: tuple[Pod, ...], cause: str) -> None:
    assert at_deadline(Snapshot(pods, failures=FAILURES)) == f"{OUT_OF_TIME}{cause}"


@pytest.mark.parametrize(
    ("message", "is_limit"),
    [
        (OUT_OF_TRIES, True),
        (f"{OUT_OF_TRIES}; last failure: train-worker-0: Evicted", True),
        (f"{OUT_OF_TRIES} of another job", False),
        (OUT_OF_TIME, True),
        ("PyTorchJob train is failed because 1 Worker replica(s) failed.", False),
        (OUT_OF_TIME.replace("train", "other"), False),
        (None, False),
    ],
)
def test_an_exceeded_limit_is_recognized_by_its_message(message: str | None, is_limit: bool) -> None:
    assert limits.was_exceeded("train", message) is is_limit
