"""What must hold at every change of a cluster, whatever has happened to the controller; told of each change in the server's order."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from api.labels import REPLICA_TYPE
from api.meta import EVENTS, PODS, SERVICES
from api.names import child_name
from api.v1.pytorchjob import RESOURCE
from controller.testing.history import History

FOREIGN = "rallypoint.testing/foreign"
"""The label of what somebody else has made; nothing of ours may delete it."""
TERMINAL = ("Succeeded", "Failed")
ENDS = tuple(f"{RESOURCE.kind}{one}" for one in TERMINAL)
"""The reasons of the events that tell of an end."""


class Laws(History):
    """A history that notes each breach."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: list[str] = []
        self.failed: Counter[tuple[str, str]] = Counter()
        """By job UID and role: pods that have failed."""
        self.replaced: Counter[tuple[str, str]] = Counter()
        """By job UID and role: pods that were deleted because they had failed, and for nothing else."""
        self.excused: set[str] = set()
        """UIDs of what others delete."""
        self.ends_told: Counter[str] = Counter()
        """By job UID: how often its end was told."""
        self._may_end: defaultdict[str, set[str]] = defaultdict(set)
        """By job UID: the ends for which there has been a reason."""
        self._specs: defaultdict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        """By job UID: its specs, with the version that each came with."""
        self._made_at: dict[str, int] = {}
        """By UID: the version that a pod was made at."""

    @override
    def take(self, type_: str, obj: dict[str, Any]) -> None:
        before = self.now.get((obj["kind"], obj["metadata"]["name"]))
        match obj["kind"]:
            case RESOURCE.kind if type_ != "DELETED":
                self._job_changed(before or obj, obj)
            case PODS.kind | SERVICES.kind if FOREIGN in (obj["metadata"].get("labels") or {}):
                if type_ == "DELETED" and not self._may_go(obj):
                    self.broken.append(f"{_named(obj)} belongs to somebody else and is gone")
            case EVENTS.kind if type_ != "DELETED" and obj["reason"] in ENDS:
                self._end_told(before, obj)
            case PODS.kind if before is None:
                self._pod_made(obj)
            case PODS.kind:
                self._pod_changed(type_, before or obj, obj)
            case _:
                pass
        super().take(type_, obj)

    def _job_changed(self, before: Mapping[str, Any], after: dict[str, Any]) -> None:
        specs = self._specs[after["metadata"]["uid"]]
        if not specs or specs[-1][1] != after["spec"]:
            specs.append((_version(after), after["spec"]))
        for type_ in TERMINAL:
            if has(before, type_) and not has(after, type_):
                self.broken.append(f"{_named(after)} is no longer {type_}")
            if has(after, type_) and not has(before, type_) and not self._has_reason(type_, after):
                self.broken.append(f"{_named(after)} is {type_} without a reason")
        if has(after, "Succeeded") and has(after, "Failed"):
            self.broken.append(f"{_named(after)} has both succeeded and failed")
        for role, told in replica_statuses(before).items():
            now = replica_statuses(after).get(role)
            if now is not None and (now.get("restarts") or 0) < (told.get("restarts") or 0):
                self.broken.append(f"{_named(after)} forgets restarts of {role}")

    def _may_go(self, foreign: dict[str, Any]) -> bool:
        """Whether somebody deletes it, or the job that it refers to is gone."""
        return foreign["metadata"]["uid"] in self.excused or (
            "ownerReferences" in foreign["metadata"] and self._job_of(foreign) is None
        )

    def _has_reason(self, type_: str, job: dict[str, Any]) -> bool:
        limited = "activeDeadlineSeconds" in job["spec"].get("runPolicy", {})
        return type_ in self._may_end[job["metadata"]["uid"]] or (type_ == "Failed" and limited)

    def _end_told(self, before: Mapping[str, Any] | None, event: dict[str, Any]) -> None:
        uid = event["involvedObject"]["uid"]
        self.ends_told[uid] += event["count"] - (before["count"] if before else 0)
        if self.ends_told[uid] > 1:
            self.broken.append(f"the end of {event['involvedObject']['name']} is told again")

    def _pod_made(self, pod: dict[str, Any]) -> None:
        self._made_at[pod["metadata"]["uid"]] = _version(pod)
        job = self._job_of(pod)
        if job is None:
            return  # made for a job that went meanwhile; it goes, too
        if is_finished(job):
            self.broken.append(f"{_named(pod)} is made for a job that has ended")
        # Any spec so far: the latest may be news to the controller.
        if not any(_wants(job, spec, pod) for _, spec in self._specs[job["metadata"]["uid"]]):
            self.broken.append(f"{_named(pod)} is none that its job asks for")

    def _pod_changed(self, type_: str, before: dict[str, Any], pod: dict[str, Any]) -> None:
        job = self._job_of(pod)
        if job is None:
            return
        role = job["metadata"]["uid"], pod["metadata"]["labels"][REPLICA_TYPE]
        self.failed[role] += _phase(pod) == "Failed" != _phase(before)
        if _phase(pod) in TERMINAL:
            self._may_end[role[0]].add(_phase(pod))
        if pod["metadata"]["uid"] in self.excused:
            self._may_end[role[0]].add("Failed")  # a running pod that somebody removes counts as failed
        is_going = type_ == "DELETED" or "deletionTimestamp" in pod["metadata"]
        if not is_going or "deletionTimestamp" in before["metadata"] or is_finished(job):
            return
        if pod["metadata"]["uid"] in self.excused or not all(self._wanted_since_made(job, pod)):
            return
        self.replaced[role] += 1
        if _phase(before) != "Failed":
            self.broken.append(f"{_named(pod)} is deleted without a reason")

    def _wanted_since_made(self, job: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[bool]:
        """Whether each spec that was valid in the pod's life asks for it."""
        specs = self._specs[job["metadata"]["uid"]]
        made = self._made_at[pod["metadata"]["uid"]]
        for (_, spec), (until, _) in zip(specs, [*specs[1:], (sys.maxsize, {})], strict=True):
            if until > made:
                yield _wants(job, spec, pod)

    def _job_of(self, pod: Mapping[str, Any]) -> dict[str, Any] | None:
        """The job that controls the pod, if it is still there."""
        owner: dict[str, Any] = next(iter(pod["metadata"].get("ownerReferences") or ()), {})
        job = self.now.get((RESOURCE.kind, owner.get("name", "")))
        return job if job is not None and job["metadata"]["uid"] == owner.get("uid") else None


def _wants(job: Mapping[str, Any], spec: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    is_suspended = spec.get("runPolicy", {}).get("suspend", False)
    return not is_suspended and pod["metadata"]["name"] in pod_names(job["metadata"]["name"], spec)


def _phase(pod: Mapping[str, Any]) -> str:
    return str(pod["status"]["phase"])


def _version(obj: Mapping[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


def pod_names(job: str, spec: Mapping[str, Any]) -> set[str]:
    """The pods that a spec asks for."""
    roles = spec["pytorchReplicaSpecs"]
    return {
        child_name(job, name.lower(), index)
        for name, role in roles.items()
        for index in range(role.get("replicas", 1))
    }


def has(job: Mapping[str, Any], type_: str) -> bool:
    """Whether that condition is true."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any((one["type"], one["status"]) == (type_, "True") for one in conditions)


def is_finished(job: Mapping[str, Any]) -> bool:
    return any(has(job, type_) for type_ in TERMINAL)


def replica_statuses(job: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = (job.get("status") or {}).get("replicaStatuses") or {}
    return found


def _named(obj: Mapping[str, Any]) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"
