"""The labels and annotations by which YuniKorn schedules a job as one application whose pods start together.

YuniKorn reserves the resources of all task groups with pods of its own, and then replaces these by the job's pods. It needs no object
besides the pods.

Source: YuniKorn 1.6, the user guide's pages "Gang scheduling" and "Labels and annotations in YuniKorn".
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from api import labels
from api.job import Job, SchedulingPolicy
from api.requests import requests
from controller.domain import Role
from controller.kind import Roles

_PLACEMENT: Final = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints")
"""The fields of a pod that its placeholder has, too, so that it reserves room where the pod can go."""


def member(
    job: Job, roles: Roles, label: str, members: Mapping[str, int], body: dict[str, Any]
) -> dict[str, Any]:
    """Return the pod or pod template as a member of the job's application.

    A template with task groups of its own stays as it is, and so do labels and annotations that it sets.

    Args:
        label: that of the pod's role.
        members: how many pods of each role start together.
    """
    metadata = body["metadata"]
    given = metadata.get("annotations") or {}
    if labels.TASK_GROUPS in given:
        return body
    policy = job.spec.policy.scheduling
    marks = {labels.YUNIKORN_APP: _application(job)}
    if policy.queue:
        marks[labels.YUNIKORN_QUEUE] = policy.queue
    groups = [_task_group(role, members[name]) for name, role in roles.items() if members.get(name)]
    annotations = {labels.TASK_GROUPS: msgspec.json.encode(groups).decode()}
    if any(group["name"] == label for group in groups):
        annotations[labels.TASK_GROUP_NAME] = label
    if parameters := _parameters(job, policy):
        annotations[labels.SCHEDULING_PARAMETERS] = parameters
    metadata = {
        **metadata,
        "labels": {**marks, **(metadata.get("labels") or {})},
        "annotations": {**annotations, **given},
    }
    return {**body, "metadata": metadata}


def _application(job: Job) -> str:
    """Return the name of the application. Each attempt is one: YuniKorn reserves only for a new one."""
    attempt = job.status.pods_attempt if job.status else 0
    return f"{job.metadata.uid}-{attempt}" if attempt else job.metadata.uid


def _task_group(role: Role, members: int) -> dict[str, Any]:
    spec = role.template.get("spec") or {}
    try:
        needed = {name: str(amount) for name, amount in requests(spec).items()}
    except ValueError:
        needed = {}  # the API server refuses such a pod with a message
    group: dict[str, Any] = {"name": role.label, "minMember": members, "minResource": needed}
    return {**group, **{name: spec[name] for name in _PLACEMENT if spec.get(name)}}


def _parameters(job: Job, policy: SchedulingPolicy) -> str:
    given = (job.metadata.annotations or {}).get(labels.SCHEDULING_PARAMETERS, "")
    timeout = policy.schedule_timeout_seconds
    return given or ("" if timeout is None else f"placeholderTimeoutInSeconds={timeout}")
