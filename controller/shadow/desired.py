"""The children that planning would create for a job that has none, in whatever order its kind creates them.

Planning decides on the children that exist. So it runs once for each role, on a snapshot without the children of that role, in which the
other pods are healthy.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from api.children import Pod
from api.job import Job
from controller.domain import Child, Snapshot, WriteMode
from controller.kind import JobKind, Options
from controller.reconcile import plan as planning

_GROUP_RUNS = "Running"
"""A phase of PodGroups in which a gang does not wait."""


def desired_children(
    kind: JobKind[Any], job: Job, snapshot: Snapshot, now: datetime, options: Options
) -> Mapping[tuple[str, str], Child]:
    """Return the children by kind and name; empty for an invalid job."""
    policy = job.spec.policy.model_copy(update={"suspend": False, "active_deadline_seconds": None})
    spec = job.spec.model_copy(update={"run_policy": policy})
    fresh = job.model_copy(update={"spec": spec, "status": None})
    group = snapshot.group and msgspec.structs.replace(snapshot.group, phase=_GROUP_RUNS)
    whole = replace(
        snapshot,
        pods=tuple(map(_healthy, snapshot.pods)),
        answered=frozenset(pod.uid for pod in snapshot.pods),
        batch_pods=(),
        group=group,
        failures={},
        is_blocked=False,
    )
    found: dict[tuple[str, str], Child] = {}
    for role in kind.roles(kind.normal(job)).values():
        without = replace(
            whole,
            pods=tuple(pod for pod in whole.pods if pod.role != role.label),
            services=tuple(service for service in whole.services if service.role != role.label),
            batch_jobs=(),
        )
        for child in planning.decide(kind, fresh, without, now, options).create:
            if child.write_mode not in {WriteMode.CHECK_NAME, WriteMode.PATCH}:
                found.setdefault((child.resource.kind, child.name), child)
    return found


def _healthy(pod: Pod) -> Pod:
    return msgspec.structs.replace(
        pod,
        phase="Running",
        ready=True,
        deleting=False,
        exits=(),
        previous_failure=None,
        restarts=0,
        troubles=(),
        reason="",
        address=pod.address,
        failed_before=0,
    )
