"""Gang scheduling: a PodGroup makes the scheduler start a job's pods together or not at all. This module decides about its existence,
content and members.

It also says what a waiting group waits for, for the status of its job.

With Volcano, pods are created once the group is Inqueue; with the coscheduling of scheduler-plugins and with Kubernetes' own gang scheduling,
pods wait in the scheduler. YuniKorn has no group: its pods say what their job needs.

Source: training-operator 1.9, pkg/controller.v1/common/scheduling.go and util.go, pkg/controller.v1/control/podgroup_control.go.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from api import conditions, labels, quantity
from api.children import FINAL_PHASES, STARTED_PHASES, UNADMITTED_PHASES, PodGroup
from api.job import ConditionType, Job, JobStatus, owner_reference
from api.meta import COSCHEDULING_POD_GROUPS, NATIVE_POD_GROUPS, VOLCANO_POD_GROUPS, Resource
from api.pod_problems import is_gang_refusal
from api.queues import queue_of, queue_problem
from api.requests import Amounts, requests, total
from controller.domain import Child, Deletion, Role, Snapshot, WriteMode
from controller.kind import Roles
from controller.kind.idle import is_waiting_for_gang
from controller.policy import native_gang, yunikorn

VOLCANO = "volcano"
KUBERNETES = "kubernetes"
"""Kubernetes' own gang scheduling."""
YUNIKORN = "yunikorn"
REPORT_AFTER_SECONDS: Final = 30.0
"""A gang that waits for less needs no explanation: schedulers work in cycles of a second or more."""
REPORT_AGAIN_SECONDS: Final = 300.0
"""How often the explanation is renewed, because changes of a queue trigger no reconcile."""


@dataclass(frozen=True, slots=True)
class GroupRules:
    """How the PodGroups of the two originals differ."""

    default_queue: str
    """The queue of a job that names none; empty leaves it to Volcano."""
    follows_queue: bool
    """Whether an existing group moves to another queue with its job; in training-operator's API the queue is immutable."""
    copies_annotations: bool
    """Whether a new group gets the annotations of its job."""


TRAINING_OPERATOR = GroupRules("default", follows_queue=False, copies_annotations=True)
MPI_OPERATOR = GroupRules("", follows_queue=True, copies_annotations=False)
"""Source: mpi-operator 0.8, pkg/controller/podgroup.go."""

_FIELDS = {
    VOLCANO_POD_GROUPS: ("minMember", "minResources", "queue", "priorityClassName"),
    COSCHEDULING_POD_GROUPS: ("minMember", "minResources", "scheduleTimeoutSeconds"),
}
"""The fields of a group's spec that this operator owns."""


def scheduler_of(flag: str) -> str:
    """Return the scheduler that a value of ``--gang-scheduler-name`` means; empty if gang scheduling is disabled.

    Source: training-operator 1.9, pkg/controller.v1/common/job_controller.go and cmd/training-operator.v1/main.go.
    """
    if flag == "None":
        return ""
    return flag.lower() if flag.lower() in {VOLCANO, KUBERNETES, YUNIKORN} else flag


def groups_of(scheduler: str) -> Resource | None:
    """Return the PodGroup resource of this scheduler, None if it has none or is empty."""
    if scheduler in {"", YUNIKORN}:
        return None
    return {VOLCANO: VOLCANO_POD_GROUPS, KUBERNETES: NATIVE_POD_GROUPS}.get(
        scheduler, COSCHEDULING_POD_GROUPS
    )


def is_waiting(scheduler: str, snapshot: Snapshot) -> bool:
    """Return whether no pod may be created yet: Volcano must admit the group to its queue first, or a group of earlier pods still exists."""
    group = snapshot.group
    if scheduler == VOLCANO:
        return group is None or group.deleting or is_unadmitted(group)
    return is_leaving(scheduler, snapshot)


def is_leaving(scheduler: str, snapshot: Snapshot) -> bool:
    """Return whether no pod of any version may be created yet, because Kubernetes' group of earlier pods still exists."""
    return scheduler == KUBERNETES and native_gang.is_leaving(snapshot.group, snapshot)


def is_unadmitted(group: PodGroup) -> bool:
    """Return whether Volcano has not admitted the group to its queue."""
    return not group.deleting and group.phase in UNADMITTED_PHASES


class GangWait(NamedTuple):
    """Why a gang does not start, empty if it need not be reported, and the seconds until that may change without an event."""

    message: str = ""
    due_seconds: float | None = None


def report_due_in(kind: str, status: JobStatus | None, now: datetime) -> float:
    """Return the seconds until a waiting gang is reported, 0 if it is due or the status reports it already."""
    if is_waiting_for_gang(kind, status):
        return 0.0
    given = status or JobStatus()
    restarting = conditions.find(given.conditions or (), ConditionType.RESTARTING)
    restarted = restarting.last_transition_time if restarting else None
    times = (given.start_time, given.last_reconcile_time, restarted)
    since = max(filter(None, times), default=now)
    return max(REPORT_AFTER_SECONDS - (now - since).total_seconds(), 0.0)


def gang_wait(scheduler: str, job: Job, status: JobStatus, snapshot: Snapshot, now: datetime) -> GangWait:
    """Return what the job's group waits for: its queue is missing, closed or full, or no nodes fit its pods.

    Differs: the original says nothing about a waiting group. See docs/decisions/0015-gang-scheduling.md.
    """
    group = snapshot.group
    if groups_of(scheduler) is None:
        return GangWait()
    if group is not None and is_leaving(scheduler, snapshot):
        return _reported(job, status, now, f"its earlier PodGroup {group.name}, which is being deleted")
    if group is not None and (group.deleting or _has_started(group, snapshot)):
        return GangWait()
    if group is None:  # it is about to be created, which triggers no reconcile
        return GangWait(due_seconds=REPORT_AFTER_SECONDS)
    unscheduled = [
        trouble.message
        for pod in snapshot.all_pods
        if pod.phase == "Pending" and not pod.deleting
        for trouble in pod.troubles
        if trouble.is_scheduling
    ]
    waits_in_queue = is_waiting(scheduler, snapshot)
    if not unscheduled and not waits_in_queue:
        return GangWait()
    spec = msgspec.json.decode(group.spec) or {}
    queue = queue_of(spec) if scheduler == VOLCANO else ""
    # One pod that fits no node keeps the others of its gang waiting, whose messages only say that.
    of_pod = min(unscheduled, key=is_gang_refusal, default="")
    # kube-scheduler counts in the group's message, and names what a pod lacks only in that pod's.
    is_known = scheduler == KUBERNETES and of_pod and not is_gang_refusal(of_pod)
    causes = [of_pod if is_known else group.message or of_pod]
    if waits_in_queue and snapshot.queue is not None:
        causes.insert(0, queue_problem(queue, snapshot.queue, spec.get("minResources") or {}))
    cause = "; ".join(filter(None, causes)) or (
        f"the scheduler {scheduler} does not say why; see the events of the PodGroup"
    )
    where = f" in queue {queue}" if queue else ""
    if scheduler == KUBERNETES:
        state = "not scheduled"
    elif group.phase in FINAL_PHASES:
        state = "starting again"
    else:
        state = f"{group.phase or 'without a phase'}{where}"
    needed = native_gang.min_count(spec) if scheduler == KUBERNETES else spec.get("minMember", 0)
    text = f"its PodGroup {group.name}, which is {state} and needs {needed} pods at once: {cause}"
    return _reported(job, status, now, text)


def _has_started(group: PodGroup, snapshot: Snapshot) -> bool:
    """Return whether the group waits for nothing.

    Once a pod has failed or the gang has succeeded, the controller of scheduler-plugins leaves the phase as it is, even while the group starts
    again with new pods: then these count.

    Source: scheduler-plugins 0.32, pkg/controllers/podgroup_controller.go, Reconcile.
    """
    if group.phase in FINAL_PHASES:
        spec = msgspec.json.decode(group.spec) or {}
        started = sum(pod.phase in {"Running", "Succeeded"} for pod in snapshot.all_pods)
        return started >= int(spec.get("minMember", 0))
    return group.phase in STARTED_PHASES


def _reported(job: Job, status: JobStatus, now: datetime, text: str) -> GangWait:
    """Return that the job waits for this, without a message until it has waited long enough."""
    left = report_due_in(job.kind, status, now)
    if left > 0:
        return GangWait(due_seconds=left)
    return GangWait(f"{job.kind} {job.metadata.name} waits for {text}", REPORT_AGAIN_SECONDS)


def group(
    scheduler: str,
    owner: Resource,
    job: Job,
    roles: Roles,
    snapshot: Snapshot,
    rules: GroupRules = TRAINING_OPERATOR,
    later: Collection[str] = (),
) -> Iterator[Child]:
    """Yield the job's PodGroup if it must be created or changed.

    Roles that start ``later``, when others run, are not members yet: the scheduler would wait for them, and they for the others.

    Differs: compares values, whereas the original writes the group in each reconcile; fields of other owners stay. See
    docs/decisions/0015-gang-scheduling.md.
    """
    resource, there = groups_of(scheduler), snapshot.group
    if resource is None or (scheduler == KUBERNETES and native_gang.has_no_group(roles, snapshot)):
        return
    if there is None:
        annotations = job.metadata.annotations if rules.copies_annotations else None
        body = partial(
            _body, resource, owner, job, _spec(resource, job, roles, {}, rules, later), annotations
        )
        yield Child(resource, job.metadata.name, body, first=1)
    elif not there.deleting:
        current = msgspec.json.decode(there.spec) or {}
        if resource == NATIVE_POD_GROUPS:
            change = native_gang.change(current, _members(job, roles, later), _pods(roles), snapshot)
        else:
            change = _change(current, _spec(resource, job, roles, current, rules, later), _FIELDS[resource])
        if change:
            patch = {"metadata": {"uid": there.uid}, "spec": change}
            yield Child(resource, job.metadata.name, lambda: patch, WriteMode.PATCH, first=1)


def remains(scheduler: str, snapshot: Snapshot) -> tuple[Deletion, ...]:
    """Return the group of a job that runs no pods any more."""
    group, resource = snapshot.group, groups_of(scheduler)
    if group is None or group.deleting or resource is None:
        return ()
    return (Deletion(resource, group.name, group.uid),)


@dataclass(frozen=True, slots=True)
class Membership:
    """Makes pods members of the gang of one job.

    Roles that start ``later``, when others run, are no part of what must be free at the start.
    """

    scheduler: str
    job: Job
    roles: Roles
    snapshot: Snapshot
    later: Collection[str] = ()

    def of(self, role: Role, pod: Child) -> Child:
        """Return the pod as a member of the gang; it keeps the scheduler that it names."""
        return replace(pod, body=partial(self._body, role, pod))

    def enlisted(self, role: Role, body: dict[str, Any]) -> dict[str, Any]:
        """Return the pod or pod template as a member of the gang, whatever scheduler it names.

        Source: mpi-operator 0.8, pkg/controller/podgroup.go, decoratePodTemplateSpec.
        """
        return self._member(role, body, self.scheduler, {})

    def _body(self, role: Role, pod: Child) -> dict[str, Any]:
        body = pod.body()
        name = body["spec"].get("schedulerName") or self.scheduler
        return self._member(role, body, name, {labels.TASK_SPEC: role.label})

    def _member(
        self, role: Role, body: dict[str, Any], scheduler_name: str, of_volcano: Mapping[str, str]
    ) -> dict[str, Any]:
        """``of_volcano`` are the annotations that only Volcano's members get, besides the name of the group."""
        if self.scheduler == KUBERNETES:
            is_alone = native_gang.has_no_group(self.roles, self.snapshot)
            return body if is_alone else native_gang.member(self.job, self.roles, body)
        body = self._marked(role, body, of_volcano)
        return {**body, "spec": {**self._prioritized(body["spec"]), "schedulerName": scheduler_name}}

    def _prioritized(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return the pod spec with the priority class of the policy if it names none and coscheduling orders gangs by their pods' priority.

        Differs: in the original, the class has no effect with coscheduling. See docs/decisions/0015-gang-scheduling.md.
        """
        name = self.job.spec.policy.scheduling.priority_class
        is_by_pod = groups_of(self.scheduler) == COSCHEDULING_POD_GROUPS
        return (
            {**spec, "priorityClassName": name}
            if name and is_by_pod and not spec.get("priorityClassName")
            else spec
        )

    def _marked(self, role: Role, body: dict[str, Any], of_volcano: Mapping[str, str]) -> dict[str, Any]:
        if self.scheduler == YUNIKORN:
            first = _first_roles(self.roles, self.later)
            members = _members_by_role(first, _members(self.job, self.roles, self.later))
            return yunikorn.member(self.job, self.roles, role.label, members, body)
        name = self.job.metadata.name
        if self.scheduler == VOLCANO:
            kind, marks = "annotations", {labels.GROUP_NAME: name, **of_volcano}
        else:
            kind, marks = "labels", {labels.POD_GROUP: name}
        metadata = {**body["metadata"], kind: {**body["metadata"].get(kind, {}), **marks}}
        return {**body, "metadata": metadata}


def is_elsewhere(scheduler: str, role: Role) -> bool:
    """Return whether the template names another scheduler, which ignores the gang. Kubernetes' own gangs work in each kube-scheduler."""
    requested = (role.template.get("spec") or {}).get("schedulerName")
    return bool(requested) and requested != scheduler and scheduler != KUBERNETES


def is_named(scheduler: str, roles: Roles) -> bool:
    """Return whether a template names that scheduler, or need not name it."""
    return scheduler == KUBERNETES or any(
        (role.template.get("spec") or {}).get("schedulerName") == scheduler for role in roles.values()
    )


def _body(
    resource: Resource,
    owner: Resource,
    job: Job,
    spec: dict[str, Any],
    annotations: Mapping[str, str] | None,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": job.metadata.name, "ownerReferences": [owner_reference(owner, job)]}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def _spec(
    resource: Resource,
    job: Job,
    roles: Roles,
    current: Mapping[str, Any],
    rules: GroupRules,
    later: Collection[str],
) -> dict[str, Any]:
    """Return the desired values of the fields that this operator owns; ``current`` is the current spec."""
    policy = job.spec.policy.scheduling
    members = _members(job, roles, later)
    if resource == NATIVE_POD_GROUPS:
        return native_gang.spec(job, roles, members)
    spec: dict[str, Any] = {"minMember": members}
    resources = policy.min_resources
    if resources is None:
        resources = {
            name: str(amount) for name, amount in _least(_first_roles(roles, later), members).items()
        }
    if (
        resources or resource == VOLCANO_POD_GROUPS
    ):  # which makes a group without limits pass its queue's limits
        spec["minResources"] = {name: _canonical(amount) for name, amount in resources.items()}
    if resource == VOLCANO_POD_GROUPS:
        before = current.get("queue")
        queue = (policy.queue or before) if rules.follows_queue else (before or policy.queue)
        if queue := queue or rules.default_queue:
            spec["queue"] = queue
        if policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
    elif policy.schedule_timeout_seconds is not None:
        spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds
    return spec


def _members(job: Job, roles: Roles, later: Collection[str]) -> int:
    """Return how many pods must start together."""
    policy = job.spec.policy.scheduling
    total = _pods(roles)
    members = total if policy.min_available is None else policy.min_available
    if not later:
        return members
    count = _pods(_first_roles(roles, later))
    return max(min(members, count), members - (total - count))


def _first_roles(roles: Roles, later: Collection[str]) -> Roles:
    """Return the roles that start first: all but those that start ``later``."""
    return {name: role for name, role in roles.items() if name not in later}


def _pods(roles: Roles) -> int:
    return sum(role.replicas for role in roles.values())


def _least(roles: Roles, members: int) -> Amounts:
    """Return the sum of the requests of the first ``members`` pods, in the order of the roles.

    Differs: the original sums up only containers, ignores limits without a request, and takes the roles in any order. See
    docs/decisions/0015-gang-scheduling.md.
    """
    needed: Amounts = {}
    counts = _members_by_role(roles, members)
    for name, role in roles.items():
        count = counts[name]
        try:
            requested = requests(role.template.get("spec") or {})
        except ValueError:
            continue  # the API server refuses such a pod with a message
        if count:
            needed = total(needed, {resource: amount * count for resource, amount in requested.items()})
    return needed


def _members_by_role(roles: Roles, members: int) -> dict[str, int]:
    return members_of({name: role.replicas for name, role in roles.items()}, members)


def members_of(replicas: Mapping[str, int], members: int) -> dict[str, int]:
    """Return how many of the first ``members`` pods belong to each role, in the order of the roles."""
    counts = {}
    for name, count in replicas.items():
        counts[name] = max(min(members, count), 0)
        members -= counts[name]
    return counts


def _change(current: Mapping[str, Any], wanted: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """Return the merge patch of the fields that differ; null removes a field."""
    change: dict[str, Any] = {}
    for field in fields:
        before, after = current.get(field) or None, wanted.get(field) or None
        if isinstance(before, dict) and isinstance(after, dict):
            if _numbers(before) != _numbers(after):
                change[field] = {**dict.fromkeys(before), **after}
        elif before != after:
            change[field] = after
    return change


def _numbers(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return quantities in a comparable form: ``1Gi`` is 1073741824. Other values stay unchanged."""
    return {name: quantity.value(str(amount)) or amount for name, amount in written.items()}


def _canonical(amount: int | str) -> str:
    return quantity.canonical(str(amount)) or str(amount)
