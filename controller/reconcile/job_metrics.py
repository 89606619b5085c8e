"""Reports each job to the metrics after its reconcile: its present state from the caches, and what is new in its history."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog

from api import conditions
from api.children import Pod, time_of
from api.conditions import FALSE, TRUE
from api.job import ConditionType
from api.requests import Extended, extended_resources
from controller.domain import Key, Role
from controller.kind import Roles
from controller.reconcile.job_history import JobHistory
from controller.reconcile.jobs import JobRow, StoredStatus, stored_status
from controller.reconcile.load import LoadedJob
from controller.reconcile.observe import Sources, pods_of
from controller.telemetry.metrics.jobs import (
    CLOCK_PHASES,
    PHASES,
    REPLICA_STATES,
    REQUEST_STATES,
    JobSample,
    JobTotals,
    Requests,
)

_STATES: Final = (
    (ConditionType.SUCCEEDED, "succeeded"),
    (ConditionType.FAILED, "failed"),
    (ConditionType.SUSPENDED, "suspended"),
    (ConditionType.RESTARTING, "restarting"),
    (ConditionType.RUNNING, "running"),
)
"""The states that conditions mean; the first that is True counts."""
_ENDED: Final = frozenset({"succeeded", "failed"})
_NOT_STARTED: Final = frozenset({"", "Pending"})
_RUNNING: Final = 1
_REPLICA_STATES: Final = {"": 0, "Pending": 0, "Running": _RUNNING, "Succeeded": 2, "Failed": 3}
"""The index in ``REPLICA_STATES`` by phase; pods of an unknown phase count as running."""

log = structlog.get_logger()


class JobMetrics:
    """Reports the jobs of one kind."""

    def __init__(self, totals: JobTotals, sources: Sources, now: Callable[[], datetime]) -> None:
        self._totals = totals
        self._sources = sources
        self._now = now

    def begin(self, loaded: LoadedJob) -> None:
        """Remember what has happened before this process reconciles the job for the first time: another one has counted it."""
        if loaded.memory.history is not None:
            return
        loaded.memory.history = history = JobHistory()
        if not loaded.row.has_conditions:
            return
        with _logged():
            now = self._now()
            observed = self._observe(loaded, loaded.row, history, *self._pods_of(loaded, loaded.row))
            history.reached = tuple(phase for phase, _ in observed.new_phases(now))
            history.since = observed.since if history.reached else None
            history.known_since = now
            history.count_restarts(observed.pods, observed.batch_pods, observed.sizes)

    def record(self, loaded: LoadedJob, row: JobRow | None) -> None:
        """Report the job after a reconcile. ``row`` is the newest one of its name."""
        history, framework = loaded.memory.history, loaded.kind.framework
        if row is None or row.uid != loaded.row.uid or row.deleting or history is None:
            return
        with _logged():
            pods, batch_pods = self._pods_of(loaded, row)
            basis = _basis(row, (*pods, *batch_pods), was_suspended=_was_suspended(loaded))
            if basis == history.last_basis and row.uid in self._totals:
                return
            now = self._now()
            observed = self._observe(loaded, row, history, pods, batch_pods)
            history.is_complete = observed.is_complete(now, history)
            waiting_since = observed.waiting_since(history)
            self._totals.put(row.uid, observed.sample(row.namespace, framework, waiting_since))
            for phase, at in observed.new_phases(now):
                seconds = (at.replace(microsecond=0) - observed.since).total_seconds()
                self._totals.observe_phase(framework, phase, max(seconds, 0.0))
                history.since, history.reached = observed.since, (*history.reached, phase)
            if observed.has_ended:
                history.reached = PHASES
            kept = [pod for pod in pods if pod.uid not in loaded.memory.surplus_pods]
            for reason, count in history.count_restarts(kept, batch_pods, observed.sizes):
                self._totals.count_restarts(row.namespace, framework, reason, count)
            history.last_basis = basis

    def discard(self, loaded: LoadedJob) -> None:
        """Report that the job is left to another controller."""
        self._totals.discard(loaded.row.uid)

    def _pods_of(self, loaded: LoadedJob, row: JobRow) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
        return pods_of(self._sources, loaded.kind, Key(row.namespace, row.name), row.uid)

    def _observe(
        self,
        loaded: LoadedJob,
        row: JobRow,
        history: JobHistory,
        pods: Sequence[Pod],
        batch_pods: Sequence[Pod],
    ) -> "_ObservedJob":
        status, kind = stored_status(row), loaded.kind
        state = _state(status, row)
        needs_roles = state not in _ENDED or history.reached != PHASES
        begun = _resumed_at(status) or loaded.job.metadata.creation_timestamp or self._now()
        begun = begun.replace(microsecond=0)
        counts = Counter((pod.phase, pod.role, pod.extended) for pod in pods)
        for pod in batch_pods:
            role = pod.owner_name.removeprefix(f"{row.name}-")  # a batch Job is named after its role
            counts[pod.phase, role, pod.extended] += 1
        return _ObservedJob(
            status,
            state,
            history.since or begun,
            begun,
            kind.roles(kind.normal(loaded.job)) if needs_roles else {},
            pods,
            batch_pods,
            counts,
            history.reached,
            _was_suspended(loaded),
        )


@contextmanager
def _logged() -> Generator[None]:
    """Log an unexpected exception: it must not stop the job."""
    try:
        yield
    except Exception:
        log.exception("metrics of the job not updated")


@dataclass(frozen=True, slots=True)
class _ObservedJob:
    """A job and its pods at one moment."""

    status: StoredStatus
    state: str
    since: datetime
    """From when on its phases count: its creation, or the end of the suspension before its first phase."""
    begun: datetime
    """Its creation, or the end of its last suspension, in whole seconds."""
    roles: Roles
    """Empty if the job has ended and all its phases are counted."""
    pods: Sequence[Pod]
    batch_pods: Sequence[Pod]
    counts: Mapping[tuple[str, str, Extended], int]
    """The pods by phase, role and requests."""
    reached: Sequence[str]
    """Phases that are counted."""
    was_suspended: bool
    """Whether the job was suspended before this reconcile."""

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDED

    @property
    def sizes(self) -> Mapping[str, int]:
        """The replicas by the label of their role; empty if lost pods do not count, because the job has ended or is suspended."""
        if self.has_ended or self.state == "suspended" or self.was_suspended:
            return {}
        return {role.label: role.replicas for role in self.roles.values()}

    def is_complete(self, now: datetime, history: JobHistory) -> bool:
        """Return whether all pods have run since the job was created or last resumed."""
        if self.state == "suspended":
            return False
        return history.is_complete or self.has_ended or self._started(now) is not None

    def waiting_since(self, history: JobHistory) -> datetime | None:
        """Return since when the job waits for its pods, None if it does not.

        A job that runs with some of its pods may hold GPUs in vain. If another process has reconciled it before, it may be complete and have
        lost a pod, so that its waiting counts from the first reconcile here.
        """
        if self.state == "pending":
            return self.begun
        if self.has_ended or self.state == "suspended" or history.is_complete:
            return None
        return max(self.begun, history.known_since or self.begun)

    def sample(self, namespace: str, framework: str, waiting_since: datetime | None) -> JobSample:
        requests = self._requests()
        holding_since = self._ended_at() if _are_held(requests) else None
        return JobSample(
            namespace,
            framework,
            self.state,
            self._replicas(),
            requests,
            pending_since=waiting_since.timestamp() if waiting_since else None,
            holding_since=holding_since.timestamp() if holding_since else None,
            **self._clock(),
        )

    def _clock(self) -> dict[str, Any]:
        """Return the wall clock of the job, empty if its status has none that can be read."""
        clock = self.status.wall_clock
        since = time_of(str(clock.get("since"))) if clock else None
        if clock is None or since is None:
            return {}
        seconds = (clock.get(f"{phase}Seconds") for phase in CLOCK_PHASES)
        phase = str(clock.get("phase")).lower()
        return {
            "clock": tuple(value if isinstance(value, int) else 0 for value in seconds),
            "clock_phase": phase if phase in CLOCK_PHASES else "",
            "clock_since": round(since.timestamp()),
        }

    def new_phases(self, now: datetime) -> Iterator[tuple[str, datetime]]:
        """Yield the phases that the job has reached and that are not counted, and when it reached each."""
        if self.reached == PHASES:
            return
        tests = self._created, self._scheduled, self._started, self._running, self._finished
        for phase, test in zip(PHASES, tests, strict=True):
            if phase not in self.reached and (at := test(now)):
                yield phase, at

    def _ended_at(self) -> datetime | None:
        """Return since when the status reports the end.

        ``completionTime`` may be missing, and earlier: it is that of the launcher's Job, which may end while no operator runs.
        """
        ends = (self.status.find(type_, TRUE) for type_ in (ConditionType.SUCCEEDED, ConditionType.FAILED))
        return next((time_of(end.last_transition_time) for end in ends if end), None)

    def _replicas(self) -> tuple[int, ...]:
        replicas = [0, 0, 0, 0]
        for (phase, _, _), count in self.counts.items():
            replicas[_REPLICA_STATES.get(phase, _RUNNING)] += count
        return tuple(replicas)

    def _requests(self) -> Requests:
        """Return what pods request, and what the templates of pods that do not exist request."""
        found: dict[str, list[int]] = {}

        def add(state: str, extended: Extended, count: int) -> None:
            for resource, amount in extended:
                amounts = found.setdefault(resource, [0] * len(REQUEST_STATES))
                amounts[REQUEST_STATES.index(state)] += amount * count

        for (phase, _, extended), count in self.counts.items():
            state = REPLICA_STATES[_REPLICA_STATES.get(phase, _RUNNING)]
            if state in REQUEST_STATES:
                add("finished" if self.has_ended else state, extended, count)
        for role, count in self._missing():
            state = "suspended" if self.state == "suspended" else "pending"
            add(state, extended_resources(role.template.get("spec") or {}), count)
        return tuple((name, tuple(amounts)) for name, amounts in sorted(found.items()))

    def _missing(self) -> Iterator[tuple[Role, int]]:
        """Yield roles, and how many of their pods do not exist. The pods that a suspended job still has will be replaced."""
        present = Counter[str]()
        if self.state != "suspended":
            for (_, label, _), count in self.counts.items():
                present[label] += count
        for role in () if self.has_ended else self.roles.values():
            if role.replicas > present[role.label]:
                yield role, role.replicas - present[role.label]

    def _created(self, now: datetime) -> datetime | None:
        desired = sum(role.replicas for role in self.roles.values())
        are_created = 0 < desired <= len(self.pods) + len(self.batch_pods)
        return now if are_created and self.state != "suspended" else None

    def _scheduled(self, now: datetime) -> datetime | None:
        pods = (*self.pods, *self.batch_pods)
        if not self._created(now) or any(not pod.scheduled_at and pod.phase in _NOT_STARTED for pod in pods):
            return None
        return max((pod.scheduled_at for pod in pods if pod.scheduled_at), default=now)

    def _started(self, now: datetime) -> datetime | None:
        is_waiting = any(phase in _NOT_STARTED for phase, _, _ in self.counts)
        return None if is_waiting else self._created(now)

    def _running(self, now: datetime) -> datetime | None:
        condition = self.status.find(ConditionType.RUNNING, TRUE)
        return (time_of(condition.last_transition_time) or now) if condition else None

    def _finished(self, now: datetime) -> datetime | None:
        return (time_of(self.status.completion_time) or now) if self.has_ended else None


def _are_held(requests: Requests) -> bool:
    """Return whether pods of a finished job request resources."""
    finished = REQUEST_STATES.index("finished")
    return any(amounts[finished] for _, amounts in requests)


def _state(status: StoredStatus, row: JobRow) -> str:
    for type_, state in _STATES:
        if status.find(type_, TRUE) or (type_ == ConditionType.SUSPENDED and row.is_suspended):
            return state
    return "pending"


def _basis(row: JobRow, pods: Iterable[Pod], *, was_suspended: bool) -> int:
    """Return a hash of all that a report is computed from, by the versions of the objects."""
    return hash((was_suspended, row.resource_version, *(pod.resource_version for pod in pods)))


def _was_suspended(loaded: LoadedJob) -> bool:
    """Return whether the job was suspended before this reconcile."""
    return conditions.is_true(loaded.job.status, ConditionType.SUSPENDED)


def _resumed_at(status: StoredStatus) -> datetime | None:
    """Return the end of the job's last suspension, None if it had none."""
    resumed = status.find(ConditionType.SUSPENDED, FALSE)
    return time_of(resumed.last_transition_time) if resumed else None
