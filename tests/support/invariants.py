"""Invariants of a cluster, checked at every change in the order of the server, whatever has happened to the controller."""

import copy
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from typing_extensions import override

from api.batch import BATCH_JOBS
from api.labels import RESTART_ATTEMPT
from api.meta import EVENTS, PODS, SERVICES
from tests.support.builders import NOON
from tests.support.history import History
from tests.support.workloads import Workload

FOREIGN = "rallypoint.testing/foreign"
"""The label of other owners' objects, which the controller must not delete."""
TERMINAL = ("Succeeded", "Failed")
_ENDED = {"Complete": "Succeeded", "Failed": "Failed"}
"""The job condition that each condition of its batch Job causes."""
INEXACT_SECONDS = 4.0
"""The tolerance of times: they and the Date headers of answers are whole seconds."""


class Invariants(History):
    """A history of jobs of one kind that records each violation."""

    def __init__(self, workload: Workload, deleted_by_others: set[str] | None = None) -> None:
        """``deleted_by_others`` are UIDs of objects that others delete; invariants of several kinds share it."""
        super().__init__()
        self.workload = workload
        self.violations: list[str] = []
        self.failed: Counter[tuple[str, str]] = Counter()
        """By job UID and role: the number of failed pods."""
        self.replaced: Counter[tuple[str, str]] = Counter()
        """By job UID and role: the number of pods deleted for their failure alone."""
        self.deleted_by_others = set[str]() if deleted_by_others is None else deleted_by_others
        self.end_event_counts: Counter[str] = Counter()
        """By job UID: how often events recorded its end."""
        self._failed_attempts: set[tuple[str, int]] = set()
        """Job UID and number of the attempts in which a pod failed, was late, or was deleted by others."""
        self._allowed_ends: defaultdict[str, set[str]] = defaultdict(set)
        """By job UID: the final conditions that have had a cause."""
        self._specs: defaultdict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        """By job UID: its specs, each with its version."""
        self._created_at: dict[str, int] = {}
        """By UID: the version of a pod at its creation."""
        self.forgets_removed_pods = False
        """Whether a new process may not know which pods the last one removed to scale down: it takes those that terminate for failed."""
        self.restored_jobs: set[str] = set()
        """UIDs of jobs that a restored backup has reset. The server does not know what was counted since."""
        self.time = NOON
        """The server's time of the change."""

    @override
    def record(self, type_: str, obj: dict[str, Any]) -> None:
        before = self.now.get((obj["kind"], obj["metadata"]["name"]))
        match obj["kind"]:
            case self.workload.resource.kind if type_ != "DELETED":
                self._job_changed(before or obj, obj)
                self._times_are_right(before or obj, obj)
            case self.workload.resource.kind:
                self._job_gone(obj)
            case BATCH_JOBS.kind:
                self._launcher_changed(obj)
            case PODS.kind | SERVICES.kind if FOREIGN in (obj["metadata"].get("labels") or {}):
                if type_ == "DELETED" and not self._can_be_deleted(obj):
                    self.violations.append(f"{_named(obj)} belongs to another owner and is gone")
            case EVENTS.kind if type_ != "DELETED" and obj["reason"] in self._ends:
                self._end_recorded(before, obj)
            case PODS.kind if before is None:
                self._pod_created(obj)
            case PODS.kind:
                self._pod_changed(type_, before or obj, obj)
            case _:
                pass
        super().record(type_, obj)
        if obj["kind"] == PODS.kind:
            self._launchers_counted(obj)

    def copy_state(self) -> "Invariants":
        """Return a copy of the state, for ``restore``."""
        then = copy.copy(self)
        then.now, then.created = self.now.copy(), self.created.copy()
        then.failed, then.replaced = self.failed.copy(), self.replaced.copy()
        then.end_event_counts = self.end_event_counts.copy()
        return then

    def restore(self, then: "Invariants") -> None:
        """Return to the state of then, as a restored server has. What that removes is no deletion, what it brings back no creation.

        Pods that are back may be deleted again, and jobs that had ended may end again.
        """
        self.now, self.created = then.now.copy(), then.created.copy()
        self.failed, self.replaced = then.failed.copy(), then.replaced.copy()
        self.end_event_counts = then.end_event_counts.copy()
        for (kind, _), obj in self.now.items():
            uid = obj["metadata"]["uid"]
            if kind == PODS.kind:
                self.deleted_by_others.add(uid)
            elif kind == self.workload.resource.kind:
                self.restored_jobs.add(uid)
                known = [(0, spec) for _, spec in self._specs[uid]]
                self._specs[uid] = [*known, (0, obj["spec"])]

    def _job_gone(self, job: dict[str, Any]) -> None:
        """Check that a user deleted the job, or its TTL did after it was over."""
        if job["metadata"]["uid"] in self.deleted_by_others:
            return
        ttl = job["spec"].get("runPolicy", {}).get("ttlSecondsAfterFinished")
        ended = (job.get("status") or {}).get("completionTime")
        if ttl is None or ended is None or not is_finished(job):
            self.violations.append(f"{_named(job)} is deleted without a reason")
        elif self._seconds_since(ended) < ttl - INEXACT_SECONDS:
            self.violations.append(f"{_named(job)} is deleted {self._seconds_since(ended)} s after its end")

    def _times_are_right(self, before: Mapping[str, Any], job: Mapping[str, Any]) -> None:
        """Check times against the server's clock, whatever the controller's clock says.

        The Job controller enforces a launcher's deadline. After a restore the Job may be older than its MPIJob's new start.
        """
        status = job.get("status") or {}
        for field in ("startTime", "completionTime"):
            time = status.get(field)
            if time is None or time == (before.get("status") or {}).get(field):
                continue
            created = -self._seconds_since(job["metadata"]["creationTimestamp"])
            if not created - INEXACT_SECONDS <= -self._seconds_since(time) <= INEXACT_SECONDS:
                self.violations.append(f"{_named(job)} has the {field} {time} at {self.time}")
        limit = job["spec"].get("runPolicy", {}).get("activeDeadlineSeconds")
        late = next(
            (condition for condition in status.get("conditions") or () if "deadline" in condition["message"]),
            None,
        )
        is_new_failure = has(job, "Failed") and not has(before, "Failed")
        by_launcher = self.workload.has_launcher_job and job["metadata"]["uid"] in self.restored_jobs
        created_at = job["metadata"]["creationTimestamp"]
        began = created_at if by_launcher else status.get("startTime", created_at)
        if is_new_failure and late and limit and self._seconds_since(began) < limit - INEXACT_SECONDS:
            self.violations.append(f"{_named(job)} is late after {self._seconds_since(began)} s")

    def _seconds_since(self, time: str) -> float:
        return (self.time - datetime.fromisoformat(time)).total_seconds()

    @property
    def _ends(self) -> tuple[str, ...]:
        """Return the reasons of events that record a job's end, and nothing else."""
        types = TERMINAL[:1] if self.workload.has_launcher_job else TERMINAL
        policies = ("FailurePolicy", "MaxRestartsExceeded", "PendingTimeout")
        return (
            *(f"{self.workload.resource.kind}{type_}" for type_ in (*types, *policies)),
            *self.workload.failures,
        )

    def _launchers_counted(self, pod: Mapping[str, Any]) -> None:
        if FOREIGN in pod["metadata"]["labels"] or not self.workload.is_launcher(pod):
            return
        owner = _owner(pod).get("uid")
        there = [
            other
            for (kind, _), other in self.now.items()
            if kind == PODS.kind
            and FOREIGN not in other["metadata"]["labels"]
            and self.workload.is_launcher(other)
            and _owner(other).get("uid") == owner
            and _phase(other) not in TERMINAL
        ]
        if len(there) > 1:
            self.violations.append(f"{_named(pod)} is one of {len(there)} launchers")

    def _launcher_changed(self, launcher: Mapping[str, Any]) -> None:
        owner = self._job_of(launcher)
        if owner is not None:
            for condition, end in _ENDED.items():
                if has(launcher, condition):
                    self._allowed_ends[owner["metadata"]["uid"]].add(end)

    def _launcher_pod_changed(self, pod: Mapping[str, Any]) -> None:
        """Record a failure of the attempt if the pod belongs to the launcher Job of a job."""
        launcher = self.now.get((BATCH_JOBS.kind, _owner(pod).get("name", "")))
        job = self._job_of(launcher) if launcher is not None else None
        if job is not None and self._ends_its_attempt(pod):
            self._failed_attempts.add((job["metadata"]["uid"], _attempt(pod)))

    def _ends_its_attempt(self, pod: Mapping[str, Any]) -> bool:
        return _phase(pod) == "Failed" or pod["metadata"]["uid"] in self.deleted_by_others

    def _job_changed(self, before: Mapping[str, Any], after: dict[str, Any]) -> None:
        specs = self._specs[after["metadata"]["uid"]]
        if not specs or specs[-1][1] != after["spec"]:
            specs.append((_version(after), after["spec"]))
        for type_ in TERMINAL:
            if has(before, type_) and not has(after, type_):
                self.violations.append(f"{_named(after)} is no longer {type_}")
            if has(after, type_) and not has(before, type_) and not self._has_reason(type_, after):
                self.violations.append(f"{_named(after)} is {type_} without a reason")
        if has(after, "Succeeded") and has(after, "Failed"):
            self.violations.append(f"{_named(after)} has both succeeded and failed")
        self._restarts_are_right(before, after)
        self._restarts_are_kept(before, after)

    def _restarts_are_kept(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Check that no role loses restarts.

        The restarts of an MPIJob's workers are the failed attempts of its launcher Job. A restored backup sets that Job back, and the controller
        may learn of the restored MPIJob first.
        """
        if self.workload.has_launcher_job and after["metadata"]["uid"] in self.restored_jobs:
            return
        for role, earlier in replica_statuses(before).items():
            now = replica_statuses(after).get(role)
            if now is not None and (now.get("restarts") or 0) < (earlier.get("restarts") or 0):
                self.violations.append(f"{_named(after)} loses restarts of {role}")

    def _restarts_are_right(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Check that a job restarts as a whole once for each attempt in which something failed, and not more often than it may."""
        uid, limit = after["metadata"]["uid"], (_failure_policy(after) or {}).get("maxRestarts")
        earlier, now = _restarts(before), _restarts(after)
        if now == earlier or uid in self.restored_jobs:
            return
        if now != earlier + 1:
            self.violations.append(f"{_named(after)} goes from attempt {earlier} to {now}")
        if (uid, earlier) not in self._failed_attempts and not _has_time_limit(after):
            self.violations.append(f"{_named(after)} restarts although nothing failed in attempt {earlier}")
        counted = after["status"].get("restartsCountTowardsMax", 0)
        if limit is not None and counted > limit:
            self.violations.append(f"{_named(after)} restarts {counted} times, more than {limit}")

    def _can_be_deleted(self, foreign: dict[str, Any]) -> bool:
        """Return whether another owner deletes it, or the job that it refers to is gone."""
        return foreign["metadata"]["uid"] in self.deleted_by_others or (
            "ownerReferences" in foreign["metadata"] and self._job_of(foreign) is None
        )

    def _has_reason(self, type_: str, job: dict[str, Any]) -> bool:
        ends = self._allowed_ends[job["metadata"]["uid"]]
        return type_ in ends or (type_ == "Failed" and _has_time_limit(job))

    def _end_recorded(self, before: Mapping[str, Any] | None, event: dict[str, Any]) -> None:
        """A restored server has lost counted events, so an event that is new to it has been recorded once since.

        It may get one more, of an end whose write was answered only after the restore had undone it.
        """
        uid = event["involvedObject"]["uid"]
        if before is None and uid in self.restored_jobs:
            self.end_event_counts[uid] += 1
        else:
            self.end_event_counts[uid] += event["count"] - (before["count"] if before else 0)
        if self.end_event_counts[uid] > 1 + (uid in self.restored_jobs):
            self.violations.append(f"the end of {event['involvedObject']['name']} is recorded again")

    def _pod_created(self, pod: dict[str, Any]) -> None:
        self._created_at[pod["metadata"]["uid"]] = _version(pod)
        job = self._job_of(pod)
        if job is None:
            return  # created for a job deleted meanwhile; garbage collection deletes it
        if is_finished(job):
            self.violations.append(f"{_named(pod)} is created for a job that has ended")
        earlier = [
            name
            for (kind, name), other in self.now.items()
            if kind == PODS.kind
            and self._job_of(other) is job
            and FOREIGN not in other["metadata"]["labels"]
            and _attempt(other) < _attempt(pod)
        ]
        if earlier and job["metadata"]["uid"] not in self.restored_jobs:
            self.violations.append(f"{_named(pod)} of attempt {_attempt(pod)} is created beside {earlier}")
        # Any spec so far: the controller may not know the latest.
        if not any(self._is_expected(job, spec, pod) for _, spec in self._specs[job["metadata"]["uid"]]):
            self.violations.append(f"{_named(pod)} is not in any spec of its job")

    def _pod_changed(self, type_: str, before: dict[str, Any], pod: dict[str, Any]) -> None:
        job = self._job_of(pod)
        if job is None:
            self._launcher_pod_changed(pod)
            return
        role = job["metadata"]["uid"], self.workload.role_of(pod)
        self.failed[role] += _phase(pod) == "Failed" != _phase(before)
        if _phase(pod) in TERMINAL:
            self._allowed_ends[role[0]].add(_phase(pod))
        if pod["metadata"]["uid"] in self.deleted_by_others:
            self._allowed_ends[role[0]].add("Failed")  # a deleted running pod counts as failed
        if self._ends_its_attempt(pod):
            self._failed_attempts.add((role[0], _attempt(pod)))
        is_going = type_ == "DELETED" or "deletionTimestamp" in pod["metadata"]
        if self.forgets_removed_pods and is_going and not all(self._expected_since_creation(job, pod)):
            self._allowed_ends[role[0]].add("Failed")
            self._failed_attempts.add((role[0], _attempt(pod)))
        if not is_going or "deletionTimestamp" in before["metadata"] or is_finished(job):
            return
        if pod["metadata"]["uid"] in self.deleted_by_others or not all(
            self._expected_since_creation(job, pod)
        ):
            return
        if _attempt(pod) < _restarts(job):
            return  # the job restarts as a whole, and its status says so already
        self.replaced[role] += 1
        if _phase(before) != "Failed":
            self.violations.append(f"{_named(pod)} is deleted without a reason")

    def _expected_since_creation(self, job: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[bool]:
        """Yield for each spec that was valid during the pod's life whether it has that pod."""
        specs = self._specs[job["metadata"]["uid"]]
        created = self._created_at[pod["metadata"]["uid"]]
        for (_, spec), (until, _) in zip(specs, [*specs[1:], (sys.maxsize, {})], strict=True):
            if until > created:
                yield self._is_expected(job, spec, pod)

    def _is_expected(self, job: Mapping[str, Any], spec: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
        is_suspended = spec.get("runPolicy", {}).get("suspend", False)
        names = self.workload.pod_names(job["metadata"]["name"], spec)
        return not is_suspended and pod["metadata"]["name"] in names

    def _job_of(self, pod: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the job that controls the pod, if it exists."""
        owner = _owner(pod)
        job = self.now.get((self.workload.resource.kind, owner.get("name", "")))
        return job if job is not None and job["metadata"]["uid"] == owner.get("uid") else None


def _owner(obj: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(obj["metadata"].get("ownerReferences") or ()), {})
    return found


def _phase(pod: Mapping[str, Any]) -> str:
    return str(pod["status"]["phase"])


def _attempt(pod: Mapping[str, Any]) -> int:
    return int(pod["metadata"]["labels"].get(RESTART_ATTEMPT, 0))


def _restarts(job: Mapping[str, Any]) -> int:
    return int((job.get("status") or {}).get("restarts", 0))


def _failure_policy(job: Mapping[str, Any]) -> dict[str, Any] | None:
    found: dict[str, Any] | None = job["spec"].get("runPolicy", {}).get("failurePolicy")
    return found


def _has_time_limit(job: Mapping[str, Any]) -> bool:
    """Return whether the job may fail although no pod has."""
    return not {"activeDeadlineSeconds", "pendingTimeoutSeconds"}.isdisjoint(job["spec"].get("runPolicy", {}))


def _version(obj: Mapping[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


def has(job: Mapping[str, Any], type_: str) -> bool:
    """Return whether that condition is true."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any((condition["type"], condition["status"]) == (type_, "True") for condition in conditions)


def is_finished(job: Mapping[str, Any]) -> bool:
    return any(has(job, type_) for type_ in TERMINAL)


def replica_statuses(job: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = (job.get("status") or {}).get("replicaStatuses") or {}
    return found


def _named(obj: Mapping[str, Any]) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"
