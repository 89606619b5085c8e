"""The wall clock of a job: how many seconds it has spent in each phase, for its status.

The status has settled seconds, and the present phase with its beginning. It is written only along with other changes of the status, and when
the last pod becomes Ready: what happened since the last write is read from the times of the pods. All times are whole seconds, so the phases
add up to the age of the job, whatever the operator missed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from api import conditions
from api.children import Pod
from api.job import ConditionType, JobStatus, RunPolicy
from api.wall_clock import COUNTED_PHASES, WallClock, WallClockPhase
from controller.domain import Snapshot
from controller.policy import checkpoints

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_NOT_STARTED: Final = frozenset({"", "Pending"})
_BY_SLOWEST_POD: Final = (
    WallClockPhase.PLACING,
    WallClockPhase.PULLING,
    WallClockPhase.STARTING,
    WallClockPhase.RENDEZVOUS,
    WallClockPhase.RUNNING,
)
"""The phases of pods. While a job starts, it is in the first one that one of its pods is in."""
_STOPPED: Final = frozenset({WallClockPhase.QUEUED, WallClockPhase.RECOVERING, WallClockPhase.FINISHED})
"""The phases in which no pod works."""


@dataclass(frozen=True, slots=True)
class Period:
    """A part of the job's life in one phase."""

    phase: WallClockPhase
    start: datetime
    end: datetime

    @property
    def seconds(self) -> int:
        return round((self.end - self.start).total_seconds())


@dataclass(frozen=True, slots=True)
class JobView:
    """What the clock reads of a job at one moment."""

    status: JobStatus
    """With all other changes of this reconcile."""
    pods: Sequence[Pod]
    """Of the current attempt."""
    size: int
    """The number of pods that the job needs."""
    is_held: bool
    """Whether the job waits for quota or its gang."""
    created: datetime
    now: datetime
    """In whole seconds, like all times."""


def is_kept(policy: RunPolicy) -> bool:
    """Return whether the status of such a job has a wall clock."""
    return policy.failure_policy is not None if policy.wall_clock is None else policy.wall_clock


def view(
    stored: JobStatus | None,
    status: JobStatus,
    snapshot: Snapshot,
    size: int,
    *,
    is_held: bool,
    created: datetime | None,
    now: datetime,
) -> JobView:
    """Return what the clock reads. A failure that begins the next attempt is still one of the pods of the ``stored`` attempt."""
    before = stored or JobStatus()
    first, last = before.pods_attempt, before.restarts or 0
    pods = [pod for pod in snapshot.all_pods if first <= pod.attempt <= last]
    now = now.replace(microsecond=0)
    begun = min((created or now).replace(microsecond=0), now)
    return JobView(status, pods, size, is_held and not pods, begun, now)


def advanced(before: WallClock | None, job: JobView) -> WallClock:
    """Return the clock at this moment, the same one if the job is still in the same phase."""
    clock = before or WallClock(phase=_first_phase(job), since=job.created)
    if clock.phase == WallClockPhase.FINISHED:
        return clock
    since = clock.since or job.created
    phase = _present(clock.phase, job)
    end = min(job.status.completion_time or job.now, job.now) if phase is WallClockPhase.FINISHED else job.now
    end = max(end, since)
    periods = [*_periods(WallClockPhase(clock.phase), phase, since, end, job)]
    present = Period(phase or periods[-1].phase, end, end)
    if periods[-1].phase is present.phase:
        present = periods.pop()
    seconds: dict[WallClockPhase, int | None] = {of: getattr(clock, _field(of)) for of in COUNTED_PHASES}
    for period in periods:
        seconds[period.phase] = (seconds[period.phase] or 0) + period.seconds
    if phase in _STOPPED and not conditions.is_true(job.status, ConditionType.SUCCEEDED):
        _move_lost_work(seconds, periods, job.pods)
    found = {_field(of): value for of, value in seconds.items() if value or of is WallClockPhase.LOST}
    moved = WallClock.model_validate({"phase": str(present.phase), "since": present.start, **found})
    return before if before and moved.to_wire() == before.to_wire() else moved


def must_be_written(before: WallClock | None, after: WallClock) -> bool:
    """Return whether the clock is written although nothing else in the status has changed: only if the rendezvous has ended."""
    return (
        before is not None
        and before.phase == WallClockPhase.RENDEZVOUS
        and after.phase == WallClockPhase.RUNNING
    )


def _first_phase(job: JobView) -> str:
    is_queued = job.is_held or conditions.is_true(job.status, ConditionType.SUSPENDED)
    return WallClockPhase.QUEUED if is_queued else WallClockPhase.PLACING


def _field(phase: WallClockPhase) -> str:
    return f"{phase.lower()}_seconds"


def _present(before: str, job: JobView) -> WallClockPhase | None:
    """Return the phase of the job, None if it is what its pods do."""
    status = job.status
    if conditions.is_finished(status):
        return WallClockPhase.FINISHED
    if conditions.is_true(status, ConditionType.SUSPENDED):
        return WallClockPhase.QUEUED
    if _is_restarting(status):
        return WallClockPhase.RECOVERING
    if conditions.is_true(status, ConditionType.RUNNING):
        if before == WallClockPhase.RUNNING:
            return WallClockPhase.RUNNING
        if before == WallClockPhase.RECOVERING:
            is_back = _all_started(job) or not status.restarts
            return WallClockPhase.RUNNING if is_back else WallClockPhase.RECOVERING
        return None
    if before == WallClockPhase.RECOVERING:
        return WallClockPhase.RECOVERING
    return WallClockPhase.QUEUED if job.is_held else None


def _is_restarting(status: JobStatus) -> bool:
    """Return whether the job recovers from a failure. A suspension ends that: the job then starts anew, though its condition stays."""
    found = status.conditions or ()
    restarting = conditions.find(found, ConditionType.RESTARTING)
    if restarting is None or restarting.status != conditions.TRUE:
        return False
    suspended = conditions.find(found, ConditionType.SUSPENDED)
    resumed, failed = suspended.last_transition_time if suspended else None, restarting.last_update_time
    return resumed is None or failed is None or failed > resumed


def _periods(
    before: WallClockPhase, after: WallClockPhase | None, since: datetime, end: datetime, job: JobView
) -> Iterator[Period]:
    """Yield what the job did since then, in order and without gaps, at least one period."""
    failed = end
    if after is WallClockPhase.RECOVERING or conditions.is_true(job.status, ConditionType.FAILED):
        is_earlier_known = before in {WallClockPhase.QUEUED, WallClockPhase.RECOVERING}
        failed = min(_failed_at(job, since + timedelta(seconds=1) if is_earlier_known else since), end)
    match before:
        case WallClockPhase.RECOVERING:
            is_back = after is not WallClockPhase.QUEUED and _all_started(job)
            is_new = after is not WallClockPhase.RECOVERING or failed < end
            back = _started_again_at(job) or failed if is_back and is_new else failed
            back = min(max(back, since), failed)
            yield Period(before, since, back)
            if back < failed:
                yield Period(WallClockPhase.RUNNING, back, failed)
        case WallClockPhase.RUNNING:
            yield Period(before, since, failed)
        case WallClockPhase.QUEUED:
            created = (pod.created_at for pod in job.pods if pod.created_at)
            until = min(max(min(created, default=failed), since), failed)
            if after is WallClockPhase.QUEUED:
                until = failed
            yield Period(before, since, until)
            if after is not WallClockPhase.QUEUED:
                yield from _startup(until, failed, job)
        case _:
            yield from _startup(since, failed, job, is_met=before is not WallClockPhase.RENDEZVOUS)
    if failed < end:
        yield Period(WallClockPhase.RECOVERING, failed, end)


def _startup(start: datetime, end: datetime, job: JobView, *, is_met: bool = True) -> Iterator[Period]:
    """Yield the phases between these times by the slowest pod. The last one may just have begun.

    ``is_met`` is whether a pod that has failed counts as one that was Ready: nothing tells, unless the rendezvous was observed before.
    """
    changes: dict[datetime, Counter[WallClockPhase]] = {start: Counter()}
    for pod in job.pods:
        for phase, begun, ended in _pod_phases(pod, is_met=is_met):
            for at, change in ((begun, 1), (ended, -1)):
                if at is not None and at <= end:
                    changes.setdefault(max(at, start), Counter())[phase] += change
    current = Counter[WallClockPhase]()
    present, since = None, start
    for at in sorted(changes):
        current.update(changes[at])
        phase = _slowest(current, job.size)
        if present is not None and phase is not present and since < at:
            yield Period(present, since, at)
        if phase is not present:
            present, since = phase, at
    yield Period(present or WallClockPhase.PLACING, since, end)


def _slowest(current: Counter[WallClockPhase], size: int) -> WallClockPhase:
    phase = next((phase for phase in _BY_SLOWEST_POD if current[phase] > 0), WallClockPhase.PLACING)
    is_short = phase is WallClockPhase.RUNNING and current[phase] < size
    return WallClockPhase.RENDEZVOUS if is_short else phase


def _pod_phases(pod: Pod, *, is_met: bool) -> Iterator[tuple[WallClockPhase, datetime, datetime | None]]:
    """Yield the phases of one pod with their begin and end. A stage that it has passed at an unknown time took no time."""
    started = _start(pod) if pod.phase not in _NOT_STARTED else None
    is_lost = is_met and pod.phase == "Failed"
    ready = (pod.ready_at or started) if pod.ready or pod.phase == "Succeeded" or is_lost else None
    pulled = pod.pulled_at or started
    prepared = pod.prepared_at or pulled
    scheduled = pod.scheduled_at or prepared
    at = pod.created_at or scheduled or _LONG_AGO
    for phase, reached in (
        (WallClockPhase.PLACING, scheduled),
        (WallClockPhase.STARTING, prepared),
        (WallClockPhase.PULLING, pulled),
        (WallClockPhase.STARTING, started),
        (WallClockPhase.RENDEZVOUS, ready),
        (WallClockPhase.RUNNING, None),
    ):
        until = None if reached is None else max(reached, at)
        yield phase, at, until
        if until is None:
            return
        at = until


def _start(pod: Pod) -> datetime:
    """Return when the last container of a pod that has started did; long ago if that is unknown."""
    ends = (end.started_at for end in pod.exits if end.started_at and not end.init)
    return pod.running_since or max(ends, default=_LONG_AGO)


def _all_started(job: JobView) -> bool:
    return len(job.pods) >= job.size and not any(pod.phase in _NOT_STARTED for pod in job.pods)


def _started_again_at(job: JobView) -> datetime | None:
    """Return when the last pod started, or when the commands of restarted pods did after their pause; None if that is unknown."""
    times = [_start(pod) for pod in job.pods]
    if not times or _LONG_AGO in times:
        return None
    last = job.status.last_attempt
    return max(*times, (last and last.restart_time) or _LONG_AGO)


def _failed_at(job: JobView, since: datetime) -> datetime:
    """Return when the first failure since then was; now if nothing tells."""
    last = job.status.last_attempt
    if last and last.end_time and last.end_time >= since:
        return last.end_time
    times = (
        end.finished_at
        for pod in job.pods
        if pod.phase == "Failed"
        for end in pod.exits
        if end.code and end.finished_at and end.finished_at >= since
    )
    return min(times, default=job.now)


def _move_lost_work(
    seconds: dict[WallClockPhase, int | None], periods: Sequence[Period], pods: Iterable[Pod]
) -> None:
    """Count the work after the last checkpoint as lost, if the job has run and any of its pods ever reported a checkpoint."""
    run = next((period for period in reversed(periods) if period.phase is WallClockPhase.RUNNING), None)
    saved = checkpoints.newest(pods)
    before = seconds[WallClockPhase.LOST]
    if run is None or (saved is None and before is None):
        return
    since = min(max(saved.replace(microsecond=0) if saved else run.start, run.start), run.end)
    lost = Period(WallClockPhase.LOST, since, run.end).seconds
    seconds[WallClockPhase.RUNNING] = (seconds[WallClockPhase.RUNNING] or 0) - lost
    seconds[WallClockPhase.LOST] = (before or 0) + lost
