"""What a job did when: the time at which it reached each phase, and the spans of its life without gaps.

Both come from conditions, pods and events as they are now. The status has no field for them: see docs/decisions/0027-timeline.md.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from api.job import ConditionType
from rallypoint.diagnosis.kueue import local_queue_of
from rallypoint.diagnosis.lifetimes import (
    Lifetime,
    created_at,
    initialized_at,
    lifetimes,
    scheduled_at,
    slot_name,
    started_at,
)
from rallypoint.diagnosis.objects import (
    FINISHED,
    Object,
    condition,
    desired_pods,
    event_time,
    is_condition_true,
    is_finished,
    missing_pod_names,
    name_of,
    parse_timestamp,
    spec_of,
    status_of,
    transition_time,
)
from rallypoint.diagnosis.rendezvous import waiting_pods
from rallypoint.diagnosis.snapshot import JobSnapshot

_EARLY_SECONDS = 5.0
"""A job that is suspended this early was created so."""
_STATES = (ConditionType.RUNNING, ConditionType.RESTARTING, ConditionType.SUSPENDED)

SPANS = (
    "queued",
    "suspended",
    "restarting",
    "creating",
    "scheduling",
    "pulling",
    "initializing",
    "starting",
    "awaiting launcher",
    "rendezvous",
    "running",
    "active",
)
"""The names of spans. A job is in the first one that fits one of its replicas; ``active`` means that no pod is known."""


@dataclass(frozen=True, slots=True)
class Phase:
    """``done`` of ``total`` pods have reached the phase, the last of them ``at``. In a phase of the job itself both are 0."""

    name: str
    at: datetime | None
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the job's life, with a name of ``SPANS``. ``end`` is None if it lasts."""

    name: str
    start: datetime
    end: datetime | None


@dataclass(frozen=True, slots=True)
class Restart:
    """A pod that failed and was replaced, or a container that was started in place."""

    at: datetime
    pod: str
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    spans: Sequence[Span]
    """Without gaps, from the job's creation to its end."""
    restarts: Sequence[Restart]
    """The oldest first."""


def timeline(snapshot: JobSnapshot) -> Timeline:
    """Return the spans and the restarts of the job."""
    return phases_and_timeline(snapshot)[1]


def phases_and_timeline(snapshot: JobSnapshot) -> tuple[list[Phase], Timeline]:
    """Return the phases in order, and the timeline. Deleted pods do not count in phases, except as restarts."""
    pods, pauses = lifetimes(snapshot), list(_pauses(snapshot))
    restarts = list(_restarts(snapshot, pods, pauses))
    return list(_phases(snapshot, pods, restarts)), Timeline(_spans(snapshot, pods, pauses), restarts)


def _phases(snapshot: JobSnapshot, lives: Sequence[Lifetime], restarts: Sequence[Restart]) -> Iterator[Phase]:
    yield Phase("created", snapshot.created)
    for workload in snapshot.workloads:
        yield Phase("queued", parse_timestamp(workload["metadata"].get("creationTimestamp")))
        admitted = is_condition_true(workload, "Admitted")
        yield Phase("admitted", transition_time(workload, "Admitted") if admitted else None)
    started = _start_time(snapshot)
    if started and started > snapshot.created:
        yield Phase("started", started)
    yield from _of_pods(snapshot, lives, restarts)
    for type_ in _STATES:
        if is_condition_true(snapshot.job, type_):
            yield Phase(str(type_), transition_time(snapshot.job, type_))
    for type_ in FINISHED:
        if is_condition_true(snapshot.job, type_):
            yield Phase(str(type_), _end_time(snapshot))


def _of_pods(
    snapshot: JobSnapshot, lives: Sequence[Lifetime], restarts: Sequence[Restart]
) -> Iterator[Phase]:
    pods = [pod for pod in snapshot.pods if pod["metadata"]["uid"] not in snapshot.replaced_pod_uids]
    if not pods:
        return
    total = len(pods) if is_finished(snapshot.job) else max(desired_pods(snapshot.job), len(pods))
    existing = {(name_of(pod), created_at(pod)) for pod in pods}
    current = [life for life in lives if (life.name, life.created) in existing]
    yield _reached("created", map(created_at, pods), total)
    yield _reached("scheduled", map(scheduled_at, pods), total)
    if any(life.pulled or life.is_pulling for life in current):
        # Only events tell when an image was there, but what has started has its images.
        pulled = [life.pulled or life.started for life in current if not life.is_pulling]
        yield _reached("pulled", pulled, total)
    if any(spec_of(pod).get("initContainers") for pod in pods):
        yield _reached("initialized", map(initialized_at, pods), total)
    yield _reached("started", map(started_at, pods), total)
    waiting = waiting_pods(snapshot)
    if waiting or any(_rendezvous_end(life) for life in current):
        yield _reached("ready", (life.ready for life in current if life.name not in waiting), total)
    if restarts:
        yield Phase("restarted", restarts[-1].at, len({restart.pod for restart in restarts}), total)


def _reached(name: str, times: Iterable[datetime | None], total: int) -> Phase:
    found = [at for at in times if at]
    return Phase(name, max(found, default=None), len(found), total)


def _start_time(snapshot: JobSnapshot) -> datetime | None:
    return parse_timestamp(status_of(snapshot.job).get("startTime"))


def _end_time(snapshot: JobSnapshot) -> datetime | None:
    """Return when the job finished; None if it has not."""
    for type_ in FINISHED:
        if is_condition_true(snapshot.job, type_):
            completed = parse_timestamp(status_of(snapshot.job).get("completionTime"))
            return completed or transition_time(snapshot.job, type_)
    return None


def _rendezvous_end(pod: Lifetime) -> datetime | None:
    """Return when a pod that was not Ready at its start became Ready."""
    return pod.ready if pod.started and pod.ready and pod.ready > pod.started else None


def _restarts(
    snapshot: JobSnapshot, pods: Sequence[Lifetime], pauses: Sequence["_Interval"]
) -> Iterator[Restart]:
    last: dict[str, Lifetime] = {slot_name(snapshot.job, pod.name): pod for pod in pods}
    stops = (Restart(stop.at, pod.name, stop.text) for pod in pods for stop in pod.stops)
    replaced = (
        Restart(pod.ended, pod.name, pod.failure or "was replaced")
        for pod in pods
        if last[slot_name(snapshot.job, pod.name)] is not pod and pod.ended and not _is_paused(pod, pauses)
    )
    yield from sorted((*stops, *replaced), key=lambda restart: (restart.at, restart.pod))


def _is_paused(pod: Lifetime, pauses: Sequence["_Interval"]) -> bool:
    """Return whether the pod ended because its job was suspended."""
    return any(pod.ended and pause.start <= pod.ended <= pause.end for pause in pauses)


def _spans(snapshot: JobSnapshot, pods: Sequence[Lifetime], pauses: Sequence["_Interval"]) -> list[Span]:
    """Return the spans, without those shorter than a second unless it is the last one and lasts."""
    start, end = snapshot.created, _end_time(snapshot)
    until = max(end or snapshot.now, start)
    changes: dict[datetime, Counter[str]] = {start: Counter(), until: Counter()}
    for part in (*pauses, *_parts(snapshot, pods, pauses, until)):
        first, last = max(part.start, start), min(part.end, until)
        if first < last:
            changes.setdefault(first, Counter())[part.name] += 1
            changes.setdefault(last, Counter())[part.name] -= 1
    spans: list[Span] = []
    current = Counter[str]()
    times = sorted(changes)
    for at, following in pairwise(times):
        current.update(changes[at])
        idle = spans[-1].name if spans else "active" if end else "creating"
        name = next((name for name in SPANS if current[name] > 0), idle)
        if spans and spans[-1].name == name:
            spans[-1] = Span(name, spans[-1].start, following)
        else:
            spans.append(Span(name, at, following))
    if end is None and spans:
        spans[-1] = Span(spans[-1].name, spans[-1].start, None)
    return spans


@dataclass(frozen=True, slots=True)
class _Interval:
    """What one replica, or the job, does in a part of its life."""

    name: str
    start: datetime
    end: datetime


def _parts(
    snapshot: JobSnapshot, pods: Sequence[Lifetime], pauses: Sequence[_Interval], until: datetime
) -> Iterator[_Interval]:
    begin = max((pause.end for pause in pauses if pause.start == snapshot.created), default=snapshot.created)
    slots: dict[str, list[Lifetime]] = {}
    for pod in pods:
        slots.setdefault(slot_name(snapshot.job, pod.name), []).append(pod)
    waiting = waiting_pods(snapshot)
    for slot, lives in slots.items():
        yield _Interval(_absent(snapshot.job, slot), begin, lives[0].created)
        for number, life in enumerate(lives):
            following = lives[number + 1].created if number + 1 < len(lives) else None
            again = number > 0 and not _is_paused(lives[number - 1], pauses)
            yield from _parts_of_pod(life, following, until, again=again, waits=life.name in waiting)
            if following and life.ended and (life.failure or life.started):
                gap = "creating" if _is_paused(life, pauses) else "restarting"
                yield _Interval(gap, life.ended, following)
    if not is_finished(snapshot.job) and snapshot.pods_known:
        for slot in missing_pod_names(snapshot.job, snapshot.pods):
            if slot not in slots:
                yield _Interval(_absent(snapshot.job, slot), begin, until)


def _absent(job: Object, slot: str) -> str:
    """Return the span of a replica without a pod. A launcher is created once the workers run."""
    return "awaiting launcher" if slot == f"{name_of(job)}-launcher" else "creating"


def _parts_of_pod(
    pod: Lifetime, following: datetime | None, until: datetime, *, again: bool, waits: bool
) -> Iterator[_Interval]:
    """Yield the parts of one pod, up to its successor if it failed and has one."""
    stages = [("scheduling", pod.scheduled)]
    if pod.scheduled:
        before_start = [("initializing", pod.initialized)] if pod.has_init_containers else []
        if pod.pulled or pod.is_pulling:
            before_start.append(("pulling", None if pod.is_pulling else pod.pulled))
        known = sorted((stage for stage in before_start if stage[1]), key=lambda stage: str(stage[1]))
        stages += [
            *known,
            *(stage for stage in reversed(before_start) if not stage[1]),
            ("starting", pod.started),
        ]
        if waits or (not pod.ended and _rendezvous_end(pod)):
            stages.append(("rendezvous", None if waits else pod.ready))
    at, end = pod.created, pod.ended or following or until
    for name, reached in stages:
        following_at = min(max(reached or end, at), end)
        yield _Interval("restarting" if again else name, at, following_at)
        at = following_at
        if reached is None and pod.started is None:
            break
    else:
        yield _Interval("running", at, end)
    for stop in pod.stops:
        yield _Interval("restarting", stop.at, stop.until or end)


def _pauses(snapshot: JobSnapshot) -> Iterator[_Interval]:
    """Yield when the job was suspended, by its events; without them, what its condition and its start time show."""
    job = snapshot.job
    name = "queued" if snapshot.workloads or local_queue_of(job) else "suspended"
    changes = sorted(
        (at, str(event.get("reason")).endswith("Suspended"))
        for event in snapshot.events_of(job)
        if str(event.get("reason")).endswith(("Suspended", "Resumed"))
        for at in {parse_timestamp(event.get("firstTimestamp")), parse_timestamp(event_time(event))}
        if at and at >= snapshot.created
    )
    if condition(job, ConditionType.SUSPENDED):
        since = transition_time(job, ConditionType.SUSPENDED)
        if since and since not in {at for at, _ in changes}:
            changes = sorted([*changes, (since, is_condition_true(job, ConditionType.SUSPENDED))])
    is_first_known = all(suspends for _, suspends in changes[:1])
    paused_at = None if is_first_known else snapshot.created
    for at, suspends in changes:
        if suspends and paused_at is None:
            # A job that was created suspended got its condition a moment later.
            paused_at = snapshot.created if (at - snapshot.created).total_seconds() < _EARLY_SECONDS else at
        elif not suspends and paused_at is not None:
            yield _Interval(name, paused_at, at)
            paused_at = None
    if paused_at is not None and not is_finished(job):
        yield _Interval(name, paused_at, snapshot.now)
