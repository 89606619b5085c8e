"""The batch Job of a launcher: its body, its patches, and the reason of its failure.

Source: mpi-operator 0.8, pkg/controller/mpi_job_controller.go, newLauncherJob and syncJobSchedulingDirectives.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from api.batch import BATCH_JOBS, BatchJob, placement_of
from api.children import Pod, describe_end, end_order
from api.job import owner_reference
from api.labels import RESTART_ATTEMPT
from api.meta import Resource
from api.mpijob import MPIJob
from controller.domain import Child, Snapshot, WriteMode
from controller.kinds.mpi.names import launcher_name

_BACKOFF_LIMIT, DEADLINE_EXCEEDED = "BackoffLimitExceeded", "DeadlineExceeded"
"""Reasons of a Job that has reached a limit. Source: Kubernetes, batch/v1."""
END_SECONDS: Final = 1
"""The shortest deadline of a Job."""


def body(
    job: MPIJob, owner: Resource, labels: Mapping[str, str], template: Mapping[str, Any], *, suspended: bool
) -> dict[str, Any]:
    """Return the Job that runs the pod template.

    Differs: the TTL is set only after the Job has finished. See docs/decisions/0018-mpijob-v2beta1.md.
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
            "labels": dict(labels),
            "ownerReferences": [owner_reference(owner, job)],
        },
        "spec": {**spec, "podReplacementPolicy": "Failed", "template": template},
    }


def of_attempt(body: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the Job with the number of its attempt, and without a deadline: that counts over all attempts."""
    metadata = body["metadata"]
    spec = {name: value for name, value in body["spec"].items() if name != "activeDeadlineSeconds"}
    return {
        **body,
        "metadata": {**metadata, "labels": {**metadata["labels"], RESTART_ATTEMPT: str(number)}},
        "spec": spec,
    }


def patch(launcher: BatchJob, spec: Mapping[str, Any]) -> Child:
    """Return the patch that sets these fields in the spec of this Job, and of no other with its name."""
    body = {"metadata": {"uid": launcher.uid}, "spec": spec}
    return Child(BATCH_JOBS, launcher.name, lambda: body, WriteMode.PATCH)


def resume_patches(launcher: BatchJob, template: Mapping[str, Any]) -> list[Child]:
    """Return the patches that resume a suspended Job with the scheduling directives of the template."""
    placement = _template_patch(msgspec.json.decode(launcher.placement), placement_of(template))
    resume = patch(launcher, {"suspend": False, **({"template": placement} if placement else {})})
    if not (placement and launcher.started):
        return [resume]
    # Older servers reject new scheduling directives for a Job with a start time; newer ones clear it when a Job is suspended.
    body = {"metadata": {"uid": launcher.uid}, "status": {"startTime": None}}
    clear_start = Child(
        BATCH_JOBS, launcher.name, lambda: body, WriteMode.PATCH, first=1, subresource="status"
    )
    return [clear_start, resume]


def end_patch(launcher: BatchJob) -> Iterator[Child]:
    """Yield the patch that ends a Job whose owner has finished. Unlike a deletion, it keeps the failed pods."""
    if not (launcher.is_finished or launcher.deleting or launcher.active_deadline_seconds == END_SECONDS):
        yield patch(launcher, {"activeDeadlineSeconds": END_SECONDS})


def failed_attempts(job: MPIJob, snapshot: Snapshot) -> int:
    """Return how often the current launcher has failed and been retried."""
    failures = sum(
        batch_job.failures for batch_job in snapshot.batch_jobs if batch_job.name == launcher_name(job)
    )
    return failures + sum(pod.restarts for pod in snapshot.batch_pods)


def failure_reason(reason: str, text: str, pods: Iterable[Pod]) -> tuple[str, str]:
    """Return the reason and the message of a failed job, with the details of the launcher pod that failed last.

    Differs: mpi-operator ends with a bare ``/`` and ``: `` if the pod has no details; this ends without them, or with the exit code. See
    docs/decisions/0018-mpijob-v2beta1.md.
    """
    failed = max(
        (pod for pod in pods if pod.phase == "Failed" or pod.previous_failure),
        key=lambda pod: pod.resource_version,
        default=None,
    )
    if failed is None or reason not in {_BACKOFF_LIMIT, DEADLINE_EXCEEDED}:
        return reason or "MPIJobFailed", text
    # At the deadline the Job controller deletes the pod, so that its last end is not its own.
    ended = () if reason == DEADLINE_EXCEEDED and failed.deleting else failed.exits
    ends = [end for end in ended if end.code]
    if not ends and failed.previous_failure:
        ends = [failed.previous_failure]
    detail = failed.message or ", ".join(map(describe_end, sorted(ends, key=end_order)))
    if reason == _BACKOFF_LIMIT:
        reason = f"{reason}/{failed.reason}".rstrip("/")
    return reason, f"{text}: {detail}" if detail else text


def _template_patch(live: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch of a pod template: it adds labels and annotations, and replaces scheduling directives."""
    metadata = {
        name: {
            key: text
            for key, text in (desired["metadata"][name] or {}).items()
            if (live["metadata"][name] or {}).get(key) != text
        }
        for name in desired["metadata"]
    }
    spec: dict[str, Any] = {}
    for name, value in desired["spec"].items():
        current = live["spec"][name]
        if (current or None) == (value or None):
            continue
        spec[name] = (
            {**dict.fromkeys(current or ()), **(value or {})} if name == "nodeSelector" else value or None
        )
    change = {"metadata": {name: added for name, added in metadata.items() if added}, "spec": spec}
    return {name: value for name, value in change.items() if value}
