"""The next actions for a batch/v1 Job that depend on time: back-off, deadlines, time to live.

``tests/contract/test_batch.py`` compares the rest with the real controller.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rallypoint.local.batch.plan import FINALIZER, plan

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def spelled(seconds: float) -> str:
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    desired = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "template": {"spec": {"restartPolicy": "Never"}},
    }
    return {"metadata": {"name": "j"}, "spec": desired | spec, "status": status or {}}


def pod(name: str, phase: str = "Pending", *, ended: float = 0, has_finalizer: bool = True) -> dict[str, Any]:
    metadata = {"name": name, "uid": name, "creationTimestamp": spelled(0)}
    state = {"terminated": {"exitCode": 1, "finishedAt": spelled(ended)}}
    status = {"phase": phase, "containerStatuses": [{"name": "c", "restartCount": 0, "state": state}]}
    return {"metadata": metadata | ({"finalizers": [FINALIZER]} if has_finalizer else {}), "status": status}


def test_a_new_job_gets_its_pod() -> None:
    step = plan(job(), [], at(0))

    assert step.make == 1
    assert step.status["active"] == 1
    assert step.status["startTime"] == spelled(0)


def test_a_pod_is_counted_after_its_finalizer_is_removed() -> None:
    """First it is listed as uncounted, then its finalizer is removed, and only then it is counted."""
    listed = plan(job({"startTime": spelled(0)}), [pod("p", "Failed")], at(1))
    counted = plan(job(listed.status), [pod("p", "Failed", has_finalizer=False)], at(2))

    assert listed.status["uncountedTerminatedPods"] == {"failed": ["p"]}
    assert [released["metadata"]["name"] for released in listed.release] == ["p"]
    assert "failed" not in listed.status
    assert counted.status["failed"] == 1
    assert counted.status["uncountedTerminatedPods"] == {}


@pytest.mark.parametrize(
    ("failed", "seconds"),
    [
        pytest.param(1, 10, id="10 s after the first failure"),
        pytest.param(2, 20, id="twice as long after the second"),
        pytest.param(6, 320, id="and so on, doubling"),
        pytest.param(30, 600, id="at most 10 minutes"),
    ],
)
def test_the_next_pod_waits_for_its_back_off(failed: int, seconds: float) -> None:
    status = {"startTime": spelled(0), "failed": failed}
    pods = [pod("p", "Failed", ended=100, has_finalizer=False)]
    early = plan(job(status, backoffLimit=100), pods, at(101))
    late = plan(job(status, backoffLimit=100), pods, at(100 + seconds))

    assert (early.make, early.reconcile_at) == (0, at(100 + seconds))
    assert late.make == 1


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"terminated": {"exitCode": 1}}, id="without its end"),
        pytest.param({"terminated": {"exitCode": 1, "finishedAt": None}}, id="with null for its end"),
        pytest.param(None, id="without a state"),
    ],
)
def test_a_pod_without_an_end_time_ended_at_its_creation(state: dict[str, Any] | None) -> None:
    failed = pod("p", "Failed", has_finalizer=False)
    failed["status"]["containerStatuses"][0]["state"] = state
    step = plan(job({"startTime": spelled(0), "failed": 1}), [failed], at(1))

    assert step.reconcile_at == at(10)


def test_the_deadline_is_scheduled() -> None:
    status = {"startTime": spelled(0)}
    early = plan(job(status, activeDeadlineSeconds=60), [pod("p", "Running")], at(1))
    late = plan(job(status, activeDeadlineSeconds=60), [pod("p", "Running")], at(60))

    assert early.reconcile_at == at(60)
    assert [deleted["metadata"]["name"] for deleted in late.delete] == ["p"]
    assert late.status["conditions"][0]["reason"] == "DeadlineExceeded"


def test_a_job_fails_after_its_pods_are_gone() -> None:
    first = plan(
        job({"startTime": spelled(0)}, backoffLimit=0, parallelism=2), [pod("a", "Failed"), pod("b")], at(1)
    )
    second = plan(job(first.status, backoffLimit=0), [pod("a", "Failed", has_finalizer=False)], at(2))

    assert [condition["type"] for condition in first.status["conditions"]] == ["FailureTarget"]
    assert [condition["type"] for condition in second.status["conditions"]] == ["FailureTarget", "Failed"]
    assert second.status["failed"] == 2
    assert [event.reason for event in second.events] == ["BackoffLimitExceeded"]


def test_time_to_live() -> None:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": spelled(10)}
    status = {"conditions": [done]}
    early = plan(job(status, ttlSecondsAfterFinished=5), [], at(12))
    late = plan(job(status, ttlSecondsAfterFinished=5), [], at(15))
    without_ttl = plan(job(status), [], at(1000))

    assert (early.expired, early.reconcile_at) == (False, at(15))
    assert late.expired
    assert (without_ttl.expired, without_ttl.reconcile_at) == (False, None)


def test_the_status_of_a_finished_job_is_unchanged() -> None:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": spelled(10)}
    status = {"conditions": [done], "succeeded": 1}
    step = plan(job(status), [pod("p", "Running")], at(20))

    assert (step.status, step.make, step.delete) == (status, 0, ())
