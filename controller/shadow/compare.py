"""Compares one job: what this operator would change, and how its children and its status differ from those that exist. Pure.

Three comparisons complement each other. The plan for the observed job shows what this operator would do next. The children that it would
have created are compared field by field with those that exist, which planning itself never reads. And the status is built once more from
the children alone: a condition that is true already would hide that this operator never sets it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from api import conditions
from api.batch import BATCH_JOBS
from api.job import ConditionType, Job, JobStatus, RunPolicy
from api.labels import CHECKPOINT_DIR
from api.labels import SERVICES as SERVICES_ANNOTATION
from api.meta import PODS, SERVICES
from controller.domain import Child, Plan, Problem, Snapshot, WriteMode
from controller.kind import JobKind, Options
from controller.reconcile import plan as planning
from controller.shadow.comparable import MISSING, child_differences, words_of
from controller.shadow.declared import Difference, Rule
from controller.shadow.defaults import Object
from controller.shadow.desired import desired_children

ROUNDS: Final = 5
"""How many plans build a status from nothing: at most creation, start, pods, and end."""
END_SLACK: Final = timedelta(seconds=1)
"""Times are in whole seconds: a pod that ended this long after its job may have ended before it."""

_OWN_ANNOTATIONS: Final = frozenset({CHECKPOINT_DIR, SERVICES_ANNOTATION})
"""Annotations of jobs that only this operator reads."""
_GO_FIELDS: Final = frozenset(
    {
        *("clean_pod_policy", "ttl_seconds_after_finished", "active_deadline_seconds", "backoff_limit"),
        *("scheduling_policy", "suspend", "managed_by"),
    }
)
"""The fields of ``runPolicy`` that the Go operators have."""

Children = Mapping[tuple[str, str], Child]
"""By kind and name."""

_ABOUT: Final = {"Pod": Rule.POD, "Service": Rule.SERVICE, "Job": Rule.LAUNCHER}


@dataclass(frozen=True, slots=True)
class Observed:
    """One job at one moment: what planning reads, and the children as the API server has them, by kind and name."""

    kind: JobKind[Any]
    job: Job
    malformed: tuple[Problem, ...]
    snapshot: Snapshot
    children: Mapping[tuple[str, str], Object]
    now: datetime
    options: Options


def without_own_fields(job: Job) -> Job:
    """Return the job without what only this operator reads, such as its failure policy: the other operator does nothing about it."""
    annotations = job.metadata.annotations or {}
    given = {name: text for name, text in annotations.items() if name not in _OWN_ANNOTATIONS}
    metadata = job.metadata.model_copy(update={"annotations": given or None})
    if (policy := job.spec.run_policy) is None:
        return job.model_copy(update={"metadata": metadata})
    own = {name: field.default for name, field in RunPolicy.model_fields.items() if name not in _GO_FIELDS}
    spec = job.spec.model_copy(update={"run_policy": policy.model_copy(update=own)})
    return job.model_copy(update={"metadata": metadata, "spec": spec})


def plan_of(observed: Observed) -> Plan:
    """Return what this operator would do next."""
    return planning.decide(
        observed.kind, observed.job, observed.snapshot, observed.now, observed.options, observed.malformed
    )


def required_children(observed: Observed) -> dict[tuple[str, str], Child]:
    """Return the children to compare, by kind and name.

    Those that planning creates once are compared as it would create them now. The others follow the state of the job, so
    they come from the plan.
    """
    return _required(_desired(observed), plan_of(observed))


def _required(desired: Children, plan: Plan) -> dict[tuple[str, str], Child]:
    planned = {
        (child.resource.kind, child.name): child
        for child in plan.create
        if child.write_mode is not WriteMode.CHECK_NAME
    }
    return {**desired, **planned}


def _desired(observed: Observed) -> Children:
    return desired_children(observed.kind, observed.job, observed.snapshot, observed.now, observed.options)


def job_differences(observed: Observed) -> list[Difference]:
    """Return all differences of a job. None is settled: ``declared`` says which of them are on purpose."""
    plan = plan_of(observed)
    invalid = list(_validation_differences(observed, plan))
    if invalid:
        return invalid
    desired = _desired(observed)
    return [
        *_planned_differences(observed, plan),
        *_child_differences(observed, plan, desired),
        *_status_differences(observed, plan, desired),
    ]


def _validation_differences(observed: Observed, plan: Plan) -> Iterator[Difference]:
    """Yield that this operator refuses a job that the other one accepts."""
    job = observed.job
    found = [*observed.malformed] or planning.problems(observed.kind, job, observed.options)
    if not found or conditions.is_finished(job.status):
        return
    has_children = bool(observed.snapshot.pods or observed.snapshot.batch_jobs)
    theirs = "started" if has_children or (job.status and job.status.start_time) else "not started"
    fields = ", ".join(dict.fromkeys(problem.field for problem in found))
    yield Difference(Rule.VALIDATION, "status", "/invalid", f"invalid: {fields}", theirs)


def _planned_differences(observed: Observed, plan: Plan) -> Iterator[Difference]:
    """Yield what this operator would create, change or delete."""
    is_finished = conditions.is_finished(observed.job.status)
    for child in plan.create:
        subject, is_there = _subject(child), (child.resource.kind, child.name) in observed.children
        if child.write_mode is WriteMode.PATCH:
            change = {key: value for key, value in child.body().items() if key != "metadata"}
            for field in _leaves(change):
                yield Difference(Rule.CHANGE, subject, field, "changed", "not changed")
        elif not is_there and child.write_mode not in {WriteMode.CHECK_NAME, WriteMode.UPDATE_IF_PRESENT}:
            yield Difference(Rule.CHILDREN, subject, _field_of_missing(observed), "created", MISSING)
    for deletion in plan.delete:
        subject = f"{deletion.resource.kind} {deletion.name}"
        live = observed.children.get((deletion.resource.kind, deletion.name))
        if live is not None and (not deletion.uid or live["metadata"].get("uid") == deletion.uid):
            rule, field = (Rule.CLEANUP, "/finished") if is_finished else (Rule.DELETION, "")
            yield Difference(rule, subject, field, "deleted", "kept")
    if plan.delete_job:
        yield Difference(Rule.EXPIRY, "job", "", "deleted", "kept")


def _field_of_missing(observed: Observed) -> str:
    """Return the field under which a missing child is reported: training-operator makes none for a port without a name."""
    if observed.kind.flow is None and any(
        not port.get("name")
        for role in observed.kind.roles(observed.kind.normal(observed.job)).values()
        for container in (role.template.get("spec") or {}).get("containers") or ()
        for port in container.get("ports") or ()
    ):
        return "/unnamedPort"
    return ""


def _leaves(change: Mapping[str, Any], at: str = "") -> Iterator[str]:
    for key, value in change.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{at}/{key}")
        else:
            yield f"{at}/{key}"


def _child_differences(observed: Observed, plan: Plan, desired: Children) -> Iterator[Difference]:
    """Yield the fields in which the existing children differ, and the children that this operator does not know."""
    required, words = _required(desired, plan), words_of(observed.job.spec.to_wire())
    planned = {(child.resource.kind, child.name) for child in plan.create}
    for key, child in required.items():
        live = observed.children.get(key)
        if live is None or child.write_mode is WriteMode.PATCH:
            continue
        if child.write_mode is not WriteMode.CREATE and key not in planned:
            continue  # it follows the state of the job, and this operator leaves it as it is now
        rule = _ABOUT.get(child.resource.kind, Rule.SUPPORT)
        if _owner(live) != observed.job.metadata.uid:
            if child.write_mode is not WriteMode.CREATE_IF_ABSENT:
                yield Difference(rule, _subject(child), "/metadata/owner/uid", "the job", "another owner")
            continue
        if child.write_mode is WriteMode.CREATE and child.resource not in {PODS, SERVICES, BATCH_JOBS}:
            continue  # a PodGroup that exists is changed by a patch, which the plan contains
        for found in child_differences(child.resource.kind, child.body(), live, words):
            yield Difference(rule, _subject(child), found.field, found.ours, found.theirs)
    deleted = {(deletion.resource.kind, deletion.name) for deletion in plan.delete}
    for (kind, name), live in observed.children.items():
        is_own = _owner(live) == observed.job.metadata.uid and not live["metadata"].get("deletionTimestamp")
        if is_own and required and (kind, name) not in required and (kind, name) not in deleted:
            yield Difference(Rule.CHILDREN, f"{kind} {name}", "", MISSING, "created")


def _status_differences(observed: Observed, plan: Plan, desired: Children) -> Iterator[Difference]:
    job = observed.job
    theirs, reported = _facts(job.status), set[str]()
    if plan.status is not None:
        ours = _facts(plan.status)
        for field in sorted({*ours, *theirs}):
            mine, other = ours.get(field, MISSING), theirs.get(field, MISSING)
            if mine != other:
                reported.add(field)
                yield from _status_difference(observed, field, mine, other)
    if not _can_replay(observed, desired):
        return
    ours = _facts(_replayed(observed))
    for field in sorted({*ours, *theirs} - reported):
        mine, other = ours.get(field, MISSING), theirs.get(field, MISSING)
        if mine != other and _is_replayed(field, mine, other, is_finished=conditions.is_finished(job.status)):
            yield from _status_difference(observed, field, mine, other)


def _status_difference(observed: Observed, field: str, mine: str, other: str) -> Iterator[Difference]:
    rule = Rule.TIME
    if field.startswith("/conditions/"):
        rule = Rule.CONDITION
    elif field.startswith("/replicaStatuses/"):
        rule = Rule.COUNTER
        role = field.split("/")[2]
        if role not in observed.kind.roles(observed.kind.normal(observed.job)):
            field = f"/removedRoles/{role}"
    if rule is Rule.CONDITION and _is_late(observed, field, mine):
        field = "/activeDeadlineSeconds"
    yield Difference(rule, "status", field, mine, other)


def _is_late(observed: Observed, field: str, mine: str) -> bool:
    """Return whether this operator ends the job because its deadline has passed."""
    policy, status = observed.job.spec.policy, observed.job.status
    return (
        policy.active_deadline_seconds is not None
        and status is not None
        and status.start_time is not None
        and (observed.now - status.start_time).total_seconds() >= policy.active_deadline_seconds
        and not conditions.is_finished(status)
        and field.endswith(("/Failed", "/Running"))
    )


def _facts(status: JobStatus | None) -> dict[str, str]:
    """Return what is compared of a status, by JSON pointer: texts, times and counters of zero are not."""
    if status is None:
        return {}
    facts = {
        f"/conditions/{condition.type}": f"{condition.status} {condition.reason}"
        for condition in status.conditions or ()
    }
    for role, counts in (status.replica_statuses or {}).items():
        for name, value in counts.to_wire().items():
            if value and name != "labelSelector":
                facts[f"/replicaStatuses/{role}/{name}"] = str(value)
    for name, moment in (("startTime", status.start_time), ("completionTime", status.completion_time)):
        if moment is not None:
            facts[f"/{name}"] = "set"
    return facts


def _can_replay(observed: Observed, desired: Children) -> bool:
    """Return whether the children alone determine the status: none is missing, none was replaced, and none has ended since the job did."""
    job, snapshot = observed.job, observed.snapshot
    status = job.status
    if status is None or not status.conditions or job.spec.policy.suspend:
        return False
    if conditions.is_true(status, ConditionType.RESTARTING) or any(pod.deleting for pod in snapshot.pods):
        return False
    names = {("Pod", pod.name) for pod in snapshot.pods} | {("Job", row.name) for row in snapshot.batch_jobs}
    needed = {key for key, child in desired.items() if child.resource in {PODS, BATCH_JOBS}}
    if not needed or not needed <= names:
        return False
    if not conditions.is_finished(status):
        return True
    end = status.completion_time
    return end is not None and all(
        done.finished_at is not None and done.finished_at <= end + END_SLACK
        for pod in snapshot.pods
        for done in pod.exits
    )


def _replayed(observed: Observed) -> JobStatus | None:
    """Return the status that this operator would have built from the children that exist."""
    status: JobStatus | None = None
    for _ in range(ROUNDS):
        job = observed.job.model_copy(update={"status": status})
        after = planning.decide(observed.kind, job, observed.snapshot, observed.now, observed.options).status
        if after is None or after == status:
            break
        status = after
    return status


_ENDS: Final[Collection[str]] = {"/conditions/Succeeded", "/conditions/Failed"}


def _is_replayed(field: str, mine: str, other: str, *, is_finished: bool) -> bool:
    """Return whether a difference of the rebuilt status counts: not what only the job's past explains."""
    if is_finished:
        return field in _ENDS
    if field.startswith("/conditions/"):
        return field not in {"/conditions/Restarting", "/conditions/Suspended"} and "True" in mine + other
    return not field.endswith(("/restarts", "/replacing"))


def _subject(child: Child) -> str:
    return f"{child.resource.kind} {child.name}"


def _owner(live: Object) -> str:
    references = live["metadata"].get("ownerReferences") or ()
    return next((str(ref.get("uid")) for ref in references if ref.get("controller")), "")
