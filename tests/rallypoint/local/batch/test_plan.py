"""What a batch/v1 Job needs next, where a real controller would have to be waited for: back-off, deadlines, time to live.

What it shares with the real one is in ``tests/contract/test_batch.py``.
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


def pod(name: str, phase: str = "Pending", *, ended: float = 0, kept: bool = True) -> dict[str, Any]:
    metadata = {"name": name, "uid": name, "creationTimestamp": spelled(0)}
    state = {"terminated": {"exitCode": 1, "finishedAt": spelled(ended)}}
    status = {"phase": phase, "containerStatuses": [{"name": "c", "restartCount": 0, "state": state}]}
    return {"metadata": metadata | ({"finalizers": [FINALIZER]} if kept else {}), "status": status}


def test_a_new_job_gets_its_pod() -> None:
    step = plan(job(), [], at(0))

    assert step.make == 1
    assert step.status["active"] == 1
    assert step.status["startTime"] == spelled(0)


def test_a_pod_is_counted_once_it_need_not_be_kept() -> None:
    """First it is listed, then released; only when nobody can lose it any more it is counted."""
    listed = plan(job({"startTime": spelled(0)}), [pod("p", "Failed")], at(1))
    counted = plan(job(listed.status), [pod("p", "Failed", kept=False)], at(2))

    assert listed.status["uncountedTerminatedPods"] == {"failed": ["p"]}
    assert [one["metadata"]["name"] for one in listed.release] == ["p"]
    assert "failed" not in listed.status
    assert counted.status["failed"] == 1
    assert counted.status["uncountedTerminatedPods"] == {}


@pytest.mark.parametrize(
    ("failed", "seconds"),
    [
        pytest.param(1, 10, id="10 s after the first failure"),
        pytest.param(2, 20, id="twice as long after the second"),
        pytest.param(6, 320, id="and so on"),
        pytest.param(30, 600, id="at most 10 minutes"),
    ],
)
def test_the_next_pod_is_held_back(failed: int, seconds: float) -> None:
    status = {"startTime": spelled(0), "failed": failed}
    pods = [pod("p", "Failed", ended=100, kept=False)]
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
def test_a_pod_that_does_not_say_when_it_ended_ended_when_it_was_made(state: dict[str, Any] | None) -> None:
    failed = pod("p", "Failed", kept=False)
    failed["status"]["containerStatuses"][0]["state"] = state
    step = plan(job({"startTime": spelled(0), "failed": 1}), [failed], at(1))

    assert step.reconcile_at == at(10)


def test_the_deadline_is_looked_for() -> None:
    status = {"startTime": spelled(0)}
    early = plan(job(status, activeDeadlineSeconds=60), [pod("p", "Running")], at(1))
    late = plan(job(status, activeDeadlineSeconds=60), [pod("p", "Running")], at(60))

    assert early.reconcile_at == at(60)
    assert [one["metadata"]["name"] for one in late.delete] == ["p"]
    assert late.status["conditions"][0]["reason"] == "DeadlineExceeded"


def test_it_has_not_failed_before_its_pods_are_gone() -> None:
    first = plan(
        job({"startTime": spelled(0)}, backoffLimit=0, parallelism=2), [pod("a", "Failed"), pod("b")], at(1)
    )
    second = plan(job(first.status, backoffLimit=0), [pod("a", "Failed", kept=False)], at(2))

    assert [one["type"] for one in first.status["conditions"]] == ["FailureTarget"]
    assert [one["type"] for one in second.status["conditions"]] == ["FailureTarget", "Failed"]
    assert second.status["failed"] == 2
    assert [event.reason for event in second.events] == ["BackoffLimitExceeded"]


def test_time_to_live() -> None:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": spelled(10)}
    status = {"conditions": [done]}
    early = plan(job(status, ttlSecondsAfterFinished=5), [], at(12))
    late = plan(job(status, ttlSecondsAfterFinished=5), [], at(15))
    kept = plan(job(status), [], at(1000))

    assert (early.expired, early.reconcile_at) == (False, at(15))
    assert late.expired
    assert (kept.expired, kept.reconcile_at) == (False, None)


def test_what_a_finished_job_says_stays() -> None:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": spelled(10)}
    status = {"conditions": [done], "succeeded": 1}
    step = plan(job(status), [pod("p", "Running")], at(20))

    assert (step.status, step.make, step.delete) == (status, 0, ())
