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
        "metadata": {**_meta(name, job), "labels": {"training.kubeflow.org/replica-type": "worker"}},
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


@pytest.mark.parametrize("changes", RIGHT.values(), ids=RIGHT)
def test_a_right_history(changes: list[Change]) -> None:
    assert list(violations(reversed(changes), cpus=2)) == []


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_a_wrong_history(changes: list[Change]) -> None:
    assert list(violations(changes, cpus=2))
