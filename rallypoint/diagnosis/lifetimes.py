"""When each pod of a job reached each stage, from the pods that exist and from the events of those that do not.

Kubernetes records whole seconds, and keeps events for an hour: of older deleted pods nothing is known. Local mode keeps their last status.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from api.pod_problems import describe_exit, describe_exit_code
from rallypoint.diagnosis.objects import (
    Object,
    container_statuses,
    deletion_requested_at,
    event_time,
    init_container_statuses,
    is_condition_true,
    is_finished,
    is_pod_name,
    is_pod_terminal,
    name_of,
    parse_timestamp,
    replica_specs,
    spec_of,
    state_of,
    status_of,
    transition_time,
)
from rallypoint.diagnosis.snapshot import ArchivedPod, JobSnapshot
from rallypoint.diagnosis.terminations import EXITED, pod_failure

_DISRUPTIONS = {"Preempted", "Evicted", "TaintManagerEviction"}
_IMAGE_REASONS = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}


@dataclass(frozen=True, slots=True)
class Stop:
    """A container ended ``at`` and was started in place, or will be if ``until`` is None."""

    at: datetime
    until: datetime | None
    text: str
    started: datetime | None = None
    """When the container had started before."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The life of one pod. A time is None if the pod has not reached the stage, or if that is unknown."""

    name: str
    created: datetime
    scheduled: datetime | None = None
    pulled: datetime | None = None
    """When the last image was there; only events tell."""
    initialized: datetime | None = None
    """None also in a pod without init containers."""
    started: datetime | None = None
    """When the last of its containers started for the first time."""
    ready: datetime | None = None
    ended: datetime | None = None
    failure: str = ""
    """How it failed; empty if it did not, or if that is unknown."""
    is_pulling: bool = False
    """Whether it waits for an image now."""
    has_init_containers: bool = False
    stops: Sequence[Stop] = ()


def lifetimes(snapshot: JobSnapshot) -> list[Lifetime]:
    """Return the lifetimes of all known pods, deleted ones too, the oldest first."""
    archived = {pod.uid: pod for pod in snapshot.archived_pods}
    existing = [
        lifetime(pod, snapshot.events_of(pod), archived.get(pod["metadata"]["uid"])) for pod in snapshot.pods
    ]
    return sorted([*_deleted(snapshot, existing), *existing], key=lambda pod: (pod.created, pod.name))


def lifetime(pod: Object, events: Sequence[Object], archived: ArchivedPod | None = None) -> Lifetime:
    """Return the lifetime of a pod that exists. ``events`` are its own, the newest first."""
    created = parse_timestamp(pod["metadata"].get("creationTimestamp"))
    assert created, "the API server sets the time"
    runs = archived.runs if archived else {}
    stops = [
        stop for status in container_statuses(pod) for stop in _stops(status, runs.get(status["name"], ()))
    ]
    failure = pod_failure(pod) if status_of(pod).get("phase") == "Failed" else None
    waiting = {
        state_of(status, "waiting").get("reason")
        for status in (*init_container_statuses(pod), *container_statuses(pod))
    }
    newest = next((event.get("reason") for event in events if event.get("type") == "Normal"), "")
    first = (_first_start(events, created) or (archived.started if archived else None)) if stops else None
    return Lifetime(
        name_of(pod),
        created,
        scheduled=scheduled_at(pod),
        pulled=_newest(events, "Pulled", created),
        initialized=initialized_at(pod),
        started=first or min((stop.started for stop in stops if stop.started), default=started_at(pod)),
        ready=transition_time(pod, "Ready") if is_condition_true(pod, "Ready") and not stops else None,
        ended=_ended(pod),
        failure=failure.text if failure else "",
        is_pulling=bool(waiting & _IMAGE_REASONS) or (newest == "Pulling" and not started_at(pod)),
        has_init_containers=bool(spec_of(pod).get("initContainers")),
        stops=stops,
    )


def created_at(pod: Object) -> datetime | None:
    return parse_timestamp(pod["metadata"].get("creationTimestamp"))


def scheduled_at(pod: Object) -> datetime | None:
    """Without a condition PodScheduled, a pod that was created for a node counts as scheduled from its creation."""
    if not spec_of(pod).get("nodeName"):
        return None
    return (
        transition_time(pod, "PodScheduled") if is_condition_true(pod, "PodScheduled") else None
    ) or created_at(pod)


def initialized_at(pod: Object) -> datetime | None:
    return transition_time(pod, "Initialized") if is_condition_true(pod, "Initialized") else None


def started_at(pod: Object) -> datetime | None:
    """Return when the last of its containers started, in this run or the previous one."""
    found: list[datetime] = []
    for status in container_statuses(pod):
        state = state_of(status, "running") or state_of(status, "terminated")
        at, made = parse_timestamp(state.get("startedAt")), created_at(pod)
        if at is None or (
            made and at < made
        ):  # The kubelet writes 1970 for a container that could not start.
            return None
        found.append(at)
    return max(found, default=None)


def slot_name(job: Object, pod_name: str) -> str:
    """Return the name of the replica that the pod is or was: a launcher's pods differ by a suffix."""
    launcher = f"{name_of(job)}-launcher"
    if pod_name.rpartition("-")[0] != launcher:
        return pod_name
    has_launcher = any(role.lower() == "launcher" for role in replica_specs(job))
    return launcher if has_launcher else pod_name


def _stops(status: Object, runs: Sequence[tuple[datetime, datetime]]) -> list[Stop]:
    """Return how the container ended before its current state, the last time first. A status has only that; the archive has all ``runs``."""
    last = _stop(status)
    if last is None:
        return []
    return [
        last,
        *(
            Stop(end, following, f"container {status['name']} ended", start)
            for (start, end), (following, _) in pairwise(runs)
            if end < last.at
        ),
    ]


def _stop(status: Object) -> Stop | None:
    """Return how the container last ended before its current state, if it was started in place."""
    last = (status.get("lastState") or {}).get("terminated") or {}
    now = state_of(status, "terminated")
    if not status.get("restartCount") or not last:
        return None
    at = parse_timestamp(last.get("finishedAt"))
    until = parse_timestamp((state_of(status, "running") or now).get("startedAt"))
    text = f"container {status['name']} ended with {_describe(last)}"
    return Stop(at, until, text, parse_timestamp(last.get("startedAt"))) if at else None


def _describe(end: Object) -> str:
    return describe_exit(
        int(end.get("exitCode") or 0), str(end.get("reason") or ""), str(end.get("message") or "")
    )


def _ended(pod: Object) -> datetime | None:
    """Return when the last container of a pod that has ended did."""
    if not is_pod_terminal(pod):
        return None
    times = (
        parse_timestamp(state_of(status, "terminated").get("finishedAt"))
        for status in container_statuses(pod)
    )
    known = max((at for at in times if at), default=None)
    return (
        known
        or transition_time(pod, "DisruptionTarget")
        or transition_time(pod, "Ready")
        or deletion_requested_at(pod)
        or created_at(pod)
    )


def _first_time(event: Object) -> datetime | None:
    return parse_timestamp(event.get("firstTimestamp")) or parse_timestamp(event_time(event))


def _newest(events: Iterable[Object], reason: str, since: datetime) -> datetime | None:
    times = (parse_timestamp(event_time(event)) for event in events if event.get("reason") == reason)
    return next((at for at in times if at and at >= since), None)


def _first_start(events: Iterable[Object], since: datetime) -> datetime | None:
    """Return when the last of the containers, without init containers, started for the first time."""
    first: dict[str, datetime] = {}
    for event in events:
        container, at = str(event["involvedObject"].get("fieldPath") or ""), _first_time(event)
        if (
            event.get("reason") == "Started"
            and at
            and at >= since
            and not container.startswith("spec.initContainers")
        ):
            first[container] = min(at, first.get(container, at))
    return max(first.values(), default=None)


def _deleted(snapshot: JobSnapshot, existing: Sequence[Lifetime]) -> Iterator[Lifetime]:
    """Yield the lifetimes of pods that no longer exist, without those whose end nothing shows: they would seem to run.

    A pod that never got a node waited for one until it was deleted with its job.
    """
    archived = {pod.uid: pod for pod in snapshot.archived_pods}
    found = [
        pod
        for uid, events in _deleted_pod_events(snapshot).items()
        if (pod := _deleted_pod(snapshot, events, archived.get(uid)))
    ]
    has_ended = is_finished(snapshot.job) or not snapshot.pods_known
    exits = _reported_exits(snapshot)
    starts: dict[str, list[datetime]] = {}
    for pod in (*existing, *found):
        starts.setdefault(pod.name, []).append(pod.created)
    for pod in found:
        successor = min((start for start in starts[pod.name] if start > pod.created), default=None)
        reported = next(
            (
                (at, code)
                for at, code in exits.get(pod.name, ())
                if at >= pod.created and (successor is None or at <= successor)
            ),
            None,
        )
        if reported:
            yield replace(pod, ended=reported[0], failure=f"ended with {describe_exit_code(reported[1])}")
        elif pod.ended or successor or (has_ended and not pod.scheduled and not pod.started):
            yield replace(pod, ended=pod.ended or successor)


def _deleted_pod_events(snapshot: JobSnapshot) -> dict[str, list[Object]]:
    """Return the events of each deleted pod of the job, the newest first, by UID; none for a pod that only an archive knows."""
    there = {pod["metadata"]["uid"] for pod in snapshot.pods}
    found: dict[str, list[Object]] = {pod.uid: [] for pod in snapshot.archived_pods if pod.uid not in there}
    for event in snapshot.newest_events:
        about = event["involvedObject"]
        uid = str(about.get("uid") or "")
        if (
            about.get("kind") == "Pod"
            and uid not in there
            and is_pod_name(snapshot.job, str(about.get("name")))
        ):
            found.setdefault(uid, []).append(event)
    return found


def _deleted_pod(
    snapshot: JobSnapshot, events: Sequence[Object], archived: ArchivedPod | None
) -> Lifetime | None:
    """Return the lifetime, without its end if only its successor shows that; None for a pod of an earlier job of the same name."""
    if archived and archived.last_state:
        return _archived_lifetime(archived, archived.last_state, events)
    times = [at for event in events if (at := _first_time(event))]
    created = archived.created if archived else min(times, default=None)
    if created is None or created < snapshot.created:
        return None
    reasons = (str(event.get("reason")) for event in events)
    killed = _newest(events, "Killing", created)
    return Lifetime(
        archived.name if archived else str(events[0]["involvedObject"].get("name")),
        created,
        scheduled=_newest(events, "Scheduled", created) or (created if archived else None),
        pulled=_newest(events, "Pulled", created),
        started=_first_start(events, created) or (archived.started if archived else None),
        ended=killed or (archived.ended if archived else None),
        failure=next((reason for reason in reasons if reason in _DISRUPTIONS), ""),
    )


def _archived_lifetime(archived: ArchivedPod, pod: Object, events: Sequence[Object]) -> Lifetime:
    """Return the lifetime of a deleted pod from its last status. How it ended after its deletion was requested is no failure."""
    life, failure = lifetime(pod, events, archived), pod_failure(pod)
    ends = [state_of(status, "terminated").get("finishedAt") for status in container_statuses(pod)]
    known = [parse_timestamp(end) for end in ends]
    last = max((at for at in known if at), default=None) if known and all(known) else None
    reasons = (str(event.get("reason")) for event in events)
    disruption = next((reason for reason in reasons if reason in _DISRUPTIONS), "")
    return replace(
        life,
        ended=last or deletion_requested_at(pod) or archived.deleted,
        failure=disruption or (life.failure if failure and failure.is_own else ""),
        ready=None,
        is_pulling=False,
    )


def _reported_exits(snapshot: JobSnapshot) -> Mapping[str, list[tuple[datetime, int]]]:
    """Return time and exit code of the failures of pods that the operator has reported, by pod."""
    found: dict[str, list[tuple[datetime, int]]] = {}
    for event in snapshot.events_of(snapshot.job):
        match, at = EXITED.match(str(event.get("message"))), _first_time(event)
        if match and at and int(match[2]):
            found.setdefault(match[1], []).append((at, int(match[2])))
    return found
