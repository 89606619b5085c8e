"""The checker of quotas finds what it must find in made-up histories."""

from itertools import count
from typing import Any

import pytest

from tests.support.schedulers.quota import violations

Change = tuple[str, dict[str, Any]]
_VERSIONS = count(1)


def pod(type_: str = "ADDED", phase: str = "Pending", *, name: str = "worker-0", job: str = "a") -> Change:
    return type_, {
        "kind": "Pod",
        "metadata": {
            **_meta(name, job),
            "uid": f"{job}-{name}",
            "labels": {"training.kubeflow.org/replica-type": "worker"},
        },
        "status": {"phase": phase},
    }


def workload(
    type_: str = "MODIFIED",
    *,
    reserved: bool = True,
    finished: bool = False,
    size: int = 1,
    returned: int = 0,
    job: str = "a",
) -> Change:
    conditions = [
        {"type": "QuotaReserved", "status": str(reserved)},
        {"type": "Finished", "status": str(finished)},
    ]
    status = {
        "conditions": conditions,
        "admission": {"podSetAssignments": [{"name": "worker", "count": size}]} if reserved else None,
        "reclaimablePods": [{"name": "worker", "count": returned}] if returned else [],
    }
    return type_, {"kind": "Workload", "metadata": _meta(f"workload-{job}", job), "status": status}


def _meta(name: str, job: str) -> dict[str, Any]:
    owners = [{"uid": job, "controller": True}]
    return {"name": name, "resourceVersion": str(next(_VERSIONS)), "ownerReferences": owners}


RIGHT: dict[str, list[Change]] = {
    "a pod with quota": [workload(), pod(), pod("MODIFIED", "Succeeded"), workload(finished=True)],
    "quota returned after the pod": [workload(), pod(), pod("DELETED"), workload(reserved=False)],
    "quota of an ended pod returned": [workload(), pod(), pod("MODIFIED", "Succeeded"), workload(returned=1)],
    "a deleted Workload after the pod": [workload(), pod(), pod("DELETED"), workload("DELETED")],
}
WRONG: dict[str, list[Change]] = {
    "a pod before the quota": [pod(), workload()],
    "more pods than quota": [workload(), pod(), pod(name="worker-1")],
    "an early release": [workload(), pod("ADDED", "Running"), workload(reserved=False)],
    "an early end": [workload(), pod("ADDED", "Running"), workload(finished=True)],
    "an early deletion": [workload(), pod("ADDED", "Running"), workload("DELETED")],
    "quota of a running pod returned": [workload(), pod("ADDED", "Running"), workload(returned=1)],
    "a pod that comes late": [workload(), workload(reserved=False), pod()],
    "the quota of another job": [workload(), pod(job="b")],
    "more quota than there is": [workload(size=2), workload(size=2, job="b")],
}


def job(type_: str = "MODIFIED", *, active: int = 0, name: str = "a") -> Change:
    metadata = {"name": name, "uid": name, "resourceVersion": str(next(_VERSIONS))}
    status = {"replicaStatuses": {"Worker": {"active": active}}}
    return type_, {"kind": "PyTorchJob", "metadata": metadata, "status": status}


def launcher(name: str, of: str) -> Change:
    """A batch Job of a job."""
    return "ADDED", {"kind": "Job", "metadata": {**_meta(name, of), "uid": name}}


@pytest.mark.parametrize("changes", RIGHT.values(), ids=RIGHT)
def test_a_right_history(changes: list[Change]) -> None:
    assert list(violations(reversed(changes), cpus=2)) == []


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_a_wrong_history(changes: list[Change]) -> None:
    assert list(violations(changes, cpus=2))


def test_the_pods_of_a_batch_job_need_the_quota_of_its_owner() -> None:
    changes = [launcher("a-launcher", "a"), workload(), pod(job="a-launcher"), pod(name="worker-1")]

    assert len(list(violations(changes[:3], cpus=2))) == 0
    assert len(list(violations(changes, cpus=2))) == 1


OVER: dict[str, list[Change]] = {
    "an early end": WRONG["an early end"],
    "a deleted job": [
        workload(),
        pod("ADDED", "Running"),
        job(active=1),
        job("DELETED"),
        workload("DELETED"),
    ],
}


@pytest.mark.parametrize("changes", OVER.values(), ids=OVER)
def test_by_status_jobs_that_are_over_return_their_quota_early(changes: list[Change]) -> None:
    assert list(violations(changes, cpus=2))
    assert list(violations(changes, cpus=2, by_status=True)) == []


def test_by_status_a_pod_needs_quota_from_when_its_job_counts_it() -> None:
    starts = [workload(), pod("ADDED", "Running")]
    lost = [workload(reserved=False), pod("MODIFIED", "Running"), job(), pod("DELETED", "Running")]

    assert list(violations([*starts, *lost], cpus=2, by_status=True)) == []
    starts = [workload(), pod("ADDED", "Running"), job(active=1)]
    lost = [workload(reserved=False), pod("MODIFIED", "Running"), job(), pod("DELETED", "Running")]
    assert list(violations([*starts, *lost], cpus=2, by_status=True))
