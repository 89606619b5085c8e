"""The PodGroup of Kubernetes' own gang scheduling, and the membership of pods in it.

kube-scheduler accepts a gang only if all its pods have the same ``schedulerName``, and the priority of their group.

Source: Kubernetes 1.37, staging/src/k8s.io/api/scheduling/v1beta1/types.go; pkg/scheduler/schedule_one_podgroup.go, validatePodGroup.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from api.children import PodGroup
from api.job import Job
from controller.domain import Problem, Snapshot
from controller.kind import Roles


def has_no_group(roles: Roles, snapshot: Snapshot) -> bool:
    """Return whether the job gets no group, and its pods stay as they are.

    Either a template names a group of the user's, or the pods are older than the flag: in no group. Kubernetes keeps a group that has pods.
    """
    is_older = snapshot.group is None and bool(snapshot.pods or snapshot.batch_pods)
    return is_older or _names_group(roles)


def problems(roles: Roles, path: str, *, is_scheduler: bool) -> Iterator[Problem]:
    """Return the templates with ``evictionResponders`` whose pods are in a group: Kubernetes refuses such pods.

    ``path`` is the field of the replica specs. ``is_scheduler`` says whether this scheduler's groups are for all jobs.

    Source: Kubernetes 1.37, pkg/apis/core/validation/validation.go, ValidatePodSpec.
    """
    gets_group = is_scheduler and not _names_group(roles)
    for role in roles.values():
        template = _spec_of(role.template)
        if template.get("evictionResponders") and (template.get("schedulingGroup") or gets_group):
            why = "--gang-scheduler-name=kubernetes sets it" if gets_group else "the template sets it"
            text = f"Forbidden: may not be set beside schedulingGroup, and {why}"
            yield Problem(f"{path}[{role.name}].template.spec.evictionResponders", text, at_start=True)


def spec(job: Job, roles: Roles, members: int) -> dict[str, Any]:
    """Return the spec of a new group; ``members`` pods start together. The API server allows no other change than that of ``minCount``.

    All pods are preempted together, unless the job can do with fewer: then one by one.
    """
    policy = job.spec.policy.scheduling
    total = sum(role.replicas for role in roles.values())
    is_whole = policy.min_available is None or policy.min_available >= total
    wanted: dict[str, Any] = {
        "schedulingPolicy": _gang(members),
        "disruptionMode": {"all": {}} if is_whole else {"single": {}},
        "priorityClassName": priority_class(job, roles),
        "schedulingConstraints": policy.scheduling_constraints and policy.scheduling_constraints.to_wire(),
        "resourceClaims": [claim.to_wire() for claim in policy.resource_claims or ()],
    }
    return {name: value for name, value in wanted.items() if value}


def change(current: Mapping[str, Any], members: int, job_size: int, snapshot: Snapshot) -> dict[str, Any]:
    """Return the merge patch of an existing group; empty if it needs none. ``job_size`` is the number of pods in the job's spec.

    A pod that has succeeded is no member any more. While others run, that matters only to one that waits for a node.
    """
    gang = (current.get("schedulingPolicy") or {}).get("gang")
    succeeded = sum(pod.phase == "Succeeded" for pod in snapshot.pods)
    if succeeded:
        is_complete = len(snapshot.pods) >= job_size and all(
            pod.phase in {"Running", "Succeeded"} for pod in snapshot.pods
        )
        if is_complete:
            return {}
        members = min(members, job_size - succeeded)
    if gang is None or gang.get("minCount") == max(members, 1):
        return {}
    return {"schedulingPolicy": _gang(members)}


def min_count(current: Mapping[str, Any]) -> int:
    """Return how many pods of the group must start together; 0 if it says nothing."""
    return int(((current.get("schedulingPolicy") or {}).get("gang") or {}).get("minCount") or 0)


def is_leaving(group: PodGroup | None, snapshot: Snapshot) -> bool:
    """Return whether the group of pods that are gone still exists: new pods would keep it from being deleted.

    Source: Kubernetes 1.37, pkg/controller/scheduling/podgroupprotection.
    """
    return group is not None and group.deleting and not (snapshot.pods or snapshot.batch_pods)


def priority_class(job: Job, roles: Roles) -> str:
    """Return the priority class of the group: that of the policy, else of the first template that names one.

    Source: mpi-operator 0.8, pkg/controller/podgroup.go, calculatePriorityClassName.
    """
    named = (str(_spec_of(role.template).get("priorityClassName") or "") for role in roles.values())
    return job.spec.policy.scheduling.priority_class or next(filter(None, named), "")


def member(job: Job, roles: Roles, body: dict[str, Any]) -> dict[str, Any]:
    """Return the pod or pod template as a member of the job's group, with the group's priority if it names none."""
    added: dict[str, Any] = {"schedulingGroup": {"podGroupName": job.metadata.name}}
    if (name := priority_class(job, roles)) and not body["spec"].get("priorityClassName"):
        added["priorityClassName"] = name
    return {**body, "spec": {**body["spec"], **added}}


def _names_group(roles: Roles) -> bool:
    """Return whether a template names a group of the user's."""
    return any(_spec_of(role.template).get("schedulingGroup") for role in roles.values())


def _gang(members: int) -> dict[str, Any]:
    return {"gang": {"minCount": max(members, 1)}}


def _spec_of(template: Mapping[str, Any]) -> Mapping[str, Any]:
    return template.get("spec") or {}
