"""A launcher that is a Job of batch/v1: how it is made, changed and resumed, and what its end means.

Source: mpi-operator 0.8, pkg/controller/mpi_job_controller.go, newLauncherJob and syncJobSchedulingDirectives.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from api.batch import BATCH_JOBS, BatchJob, placement_of
from api.children import Pod
from api.job import owner_reference
from api.meta import Resource
from api.mpijob import MPIJob
from controller.domain import Child, Snapshot, Upkeep
from controller.kinds.mpi.names import launcher_name


def body(
    job: MPIJob, owner: Resource, marks: Mapping[str, str], template: Mapping[str, Any], *, suspended: bool
) -> dict[str, Any]:
    """The Job that runs that pod template.

    Differs: without its TTL, which it is given when its end is known. See docs/decisions/0018-mpijob-v2beta1.md.
    """
    policy = job.spec.policy
    limits = {"backoffLimit": policy.backoff_limit, "activeDeadlineSeconds": policy.active_deadline_seconds}
    spec: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    if suspended:
        spec["suspend"] = True
    return {
        "apiVersion": BATCH_JOBS.api_version,
        "kind": BATCH_JOBS.kind,
        "metadata": {
            "name": launcher_name(job),
            "labels": dict(marks),
            "ownerReferences": [owner_reference(owner, job)],
        },
        "spec": {**spec, "podReplacementPolicy": "Failed", "template": template},
    }


def change(launched: BatchJob, spec: Mapping[str, Any]) -> Child:
    """That very Job with these fields of its spec."""
    body = {"metadata": {"uid": launched.uid}, "spec": spec}
    return Child(BATCH_JOBS, launched.name, lambda: body, Upkeep.CHANGE)


def resumed(launched: BatchJob, template: Mapping[str, Any]) -> list[Child]:
    """What lets a suspended Job run, where that template now says."""
    moved = _replaced(msgspec.json.decode(launched.placement), placement_of(template))
    goes_on = change(launched, {"suspend": False, **({"template": moved} if moved else {})})
    if not (moved and launched.started):
        return [goes_on]
    # Older servers take no other place for a Job that has a start; newer ones clear it themselves when a Job is suspended.
    body = {"metadata": {"uid": launched.uid}, "status": {"startTime": None}}
    cleared = Child(BATCH_JOBS, launched.name, lambda: body, Upkeep.CHANGE, first=1, subresource="status")
    return [cleared, goes_on]


def tries(job: MPIJob, snapshot: Snapshot) -> int:
    """How often the launcher that there is has failed so far, and been tried again."""
    failures = sum(one.failures for one in snapshot.batch_jobs if one.name == launcher_name(job))
    return failures + sum(pod.restarts for pod in snapshot.batch_pods)


def why(reason: str, text: str, pods: Iterable[Pod]) -> tuple[str, str]:
    """Under which reason the job has failed, and in which words; with what is known of the launcher that failed last.

    Differs: where mpi-operator ends in a bare ``/`` and ``: ``, there is nothing, or the exit code. See
    docs/decisions/0018-mpijob-v2beta1.md.
    """
    failed = max(
        (pod for pod in pods if pod.phase == "Failed"), key=lambda pod: pod.resource_version, default=None
    )
    if failed is None or reason != "BackoffLimitExceeded":
        return reason or "MPIJobFailed", text
    codes = [f"container {done.container} exited with code {done.code}" for done in failed.exits if done.code]
    detail = failed.message or ", ".join(codes)
    return f"{reason}/{failed.reason}".rstrip("/"), f"{text}: {detail}" if detail else text


def _replaced(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch of a pod template: labels and annotations are added to, what chooses a node is replaced."""
    marks = {
        name: {
            key: text
            for key, text in (wanted["metadata"][name] or {}).items()
            if (live["metadata"][name] or {}).get(key) != text
        }
        for name in wanted["metadata"]
    }
    places: dict[str, Any] = {}
    for name, value in wanted["spec"].items():
        there = live["spec"][name]
        if (there or None) == (value or None):
            continue
        places[name] = (
            {**dict.fromkeys(there or ()), **(value or {})} if name == "nodeSelector" else value or None
        )
    change = {"metadata": {name: one for name, one in marks.items() if one}, "spec": places}
    return {part: one for part, one in change.items() if one}
