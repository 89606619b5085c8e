"""The metrics of jobs, by namespace and framework: training-operator's counters, the states of jobs and pods, and how long jobs take.

The reconciler reports a ``JobSample`` after each reconcile, and the totals change by the difference to the job's last one. A scrape only reads
the totals. A namespace and framework without jobs lose their series after an hour.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, cast, overload

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from typing_extensions import override

from controller.telemetry.metrics.family import Family, Group, Label

COUNTS = ("created", "deleted", "successful", "failed", "restarted")
STATES = ("suspended", "pending", "running", "restarting", "succeeded", "failed")
REPLICA_STATES = ("pending", "running", "succeeded", "failed")
REQUEST_STATES = ("suspended", "pending", "running", "finished")
RESTART_REASONS = ("error", "oom", "evicted", "node_lost", "preempted", "other")
FAILURE_REASONS = (*RESTART_REASONS, "deadline", "invalid", "pending_timeout")
RESTART_ACTIONS = ("RestartJob", "RestartJobAndIgnoreMaxRestarts")
PHASES = ("created", "scheduled", "started", "running", "finished")
CLOCK_PHASES = (
    "queued",
    "placing",
    "pulling",
    "starting",
    "rendezvous",
    "running",
    "lost",
    "recovering",
)
MINUTE, HOUR, DAY = 60, 3600, 86400
PHASE_BUCKETS = (
    *(1, 2, 5, 10, 20, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 40 * MINUTE),
    *(HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 12 * HOUR, DAY, 2 * DAY, 4 * DAY, 7 * DAY, 14 * DAY),
)
"""They fit jobs of seconds and of days."""
IDLE_TIME = timedelta(hours=1)
"""The series of a namespace and framework without jobs are removed after this time."""
MAX_RESOURCES = 16
"""Extended resources with series of their own, for each namespace and framework: their names are in the hands of users."""
OTHER_RESOURCES = "other"

FRAMEWORK = Label("framework", meaning="one for each kind")
_JOB = (Label("job_namespace", meaning="namespaces with a job in the last hour"), FRAMEWORK)

COUNTERS = {
    "created": Family("training_operator_jobs_created_total", "counter", "Jobs created", _JOB),
    "deleted": Family("training_operator_jobs_deleted_total", "counter", "Jobs deleted for their TTL", _JOB),
    "successful": Family("training_operator_jobs_successful_total", "counter", "Jobs that succeeded", _JOB),
    "failed": Family("training_operator_jobs_failed_total", "counter", "Jobs that failed", _JOB),
    "restarted": Family(
        "training_operator_jobs_restarted_total", "counter", "Failed pods that are replaced", _JOB
    ),
}
JOBS = Family(
    "rallypoint_jobs",
    "gauge",
    "Jobs by state",
    (*_JOB, Label("state", STATES, "a `pending` job neither runs nor has ended")),
)
REPLICAS = Family(
    "rallypoint_job_replicas",
    "gauge",
    "Existing pods of jobs by state",
    (*_JOB, Label("state", REPLICA_STATES, "pods that do not exist yet do not count")),
)
REQUESTED = Family(
    "rallypoint_job_requested_resources",
    "gauge",
    "Extended resources, such as GPUs, that jobs request",
    (
        *_JOB,
        Label(
            "resource",
            meaning=f"such as `nvidia.com/gpu`; `{OTHER_RESOURCES}` for those above {MAX_RESOURCES} in a namespace",
        ),
        Label(
            "state",
            REQUEST_STATES,
            "of suspended jobs; of pods that have not started or do not exist yet; of running pods; of unfinished pods of finished jobs",
        ),
    ),
)
PHASE_SECONDS = Family(
    "rallypoint_job_phase_seconds",
    "histogram",
    "Time from the creation of a job, or from the end of the suspension before its first phase, until it reached a phase for the first time",
    (
        FRAMEWORK,
        Label("phase", PHASES, "all pods `created`, `scheduled`, `started`; the job `running`, `finished`"),
    ),
    PHASE_BUCKETS,
)
FAILURES = Family(
    "rallypoint_job_failures_total",
    "counter",
    "Failed jobs by cause; for a job that reached its `backoffLimit`, the cause of its last pod failure",
    (
        *_JOB,
        Label(
            "reason",
            FAILURE_REASONS,
            "as of restarts; `deadline`: `activeDeadlineSeconds`; `invalid`: the operator or the API server refused the job or a pod of it; `pending_timeout`: `pendingTimeoutSeconds`. A hang has no reason of its own: it counts as the last failure of a container of the job, else as `other`",
        ),
    ),
)
RESTARTS = Family(
    "rallypoint_job_pod_restarts_total",
    "counter",
    "Failed or deleted pods that were replaced, and containers that restarted in place",
    (*_JOB, Label("reason", RESTART_REASONS, "`error`: a container failed; `node_lost`: also by a shutdown")),
)
JOB_RESTARTS = Family(
    "rallypoint_job_restarts_total",
    "counter",
    "Restarts of jobs as a whole by their failure policy",
    (*_JOB, Label("action", RESTART_ACTIONS, "only `RestartJob` counts towards `maxRestarts`")),
)
OLDEST_PENDING = Family(
    "rallypoint_job_oldest_pending_seconds",
    "gauge",
    "Longest time that a job has waited for its pods, in seconds; 0 if none waits",
    _JOB,
)
OLDEST_HOLDING = Family(
    "rallypoint_job_oldest_holding_seconds",
    "gauge",
    "Seconds since the end of the oldest finished job whose pods still hold extended resources; 0 if there is none",
    _JOB,
)
WALL_CLOCK = Family(
    "rallypoint_job_wall_clock_seconds",
    "gauge",
    "Seconds that existing jobs with `status.wallClock` have spent in each phase",
    (
        *_JOB,
        Label(
            "phase",
            CLOCK_PHASES,
            "`running` without what failures made `lost`; the phases add up to the age of the jobs",
        ),
    ),
)

OPERATOR_GROUP = Group(
    "Jobs",
    "The names are training-operator's. A change is counted once, after the status that reports it has been written. Differs: the "
    "original counts every existing job as created whenever it starts, counts one restart twice or more, and omits jobs that fail because "
    "of their `backoffLimit` or `activeDeadlineSeconds`; it never removes a series.",
    tuple(COUNTERS.values()),
)
GROUP = Group(
    "States of jobs",
    "The Go operators do not have these metrics. Only the leader exposes them and the counters above, and jobs that another controller "
    "manages (`managedBy`) do not count. A phase counts once for each job, in whole seconds as the API's times are; what happens while no "
    "process leads is not counted, and a new leader knows only the last suspension of a job. While the API server does not serve a kind, its "
    "jobs do not count. When a namespace has had no job of a framework for an hour, these series and the counters above are removed. "
    "`increase` does not contain what a counter shows at its first scrape, such as a job that fails within seconds in a namespace without "
    "other jobs; `(X unless X offset 1h) or increase(X[1h])` does.",
    (
        JOBS,
        REPLICAS,
        REQUESTED,
        PHASE_SECONDS,
        FAILURES,
        RESTARTS,
        JOB_RESTARTS,
        OLDEST_PENDING,
        OLDEST_HOLDING,
        WALL_CLOCK,
    ),
)

Requests = tuple[tuple[str, tuple[int, ...]], ...]
"""Extended resources, and the requested amount of each in the order of ``REQUEST_STATES``."""


class JobSample(NamedTuple):
    """One job at one moment."""

    namespace: str
    framework: str
    state: str
    """One of ``STATES``."""
    replicas: tuple[int, ...] = (0, 0, 0, 0)
    """Pods in the order of ``REPLICA_STATES``."""
    requests: Requests = ()
    pending_since: float | None = None
    """Of a job that waits for pods, in seconds since 1970."""
    holding_since: float | None = None
    """Of a finished job whose pods hold extended resources: its end, in seconds since 1970."""
    clock: tuple[int, ...] = ()
    """The settled seconds of its wall clock in the order of ``CLOCK_PHASES``; empty if it has none."""
    clock_phase: str = ""
    """The phase that it has been in since ``clock_since``, in seconds since 1970; empty at the end."""
    clock_since: int = 0


@dataclass(slots=True)
class _Totals:
    """The totals of one namespace and framework. Lists have the order of the label's values."""

    size: int = 0
    """Number of jobs."""
    counts: list[int] = field(default_factory=lambda: [0] * len(COUNTS))
    jobs: list[int] = field(default_factory=lambda: [0] * len(STATES))
    replicas: list[int] = field(default_factory=lambda: [0] * len(REPLICA_STATES))
    requests: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    failures: list[int] = field(default_factory=lambda: [0] * len(FAILURE_REASONS))
    restarts: list[int] = field(default_factory=lambda: [0] * len(RESTART_REASONS))
    job_restarts: list[int] = field(default_factory=lambda: [0] * len(RESTART_ACTIONS))
    pending: dict[str, float] = field(default_factory=dict[str, float])
    """The jobs that wait for pods, by UID, and since when."""
    holding: dict[str, float] = field(default_factory=dict[str, float])
    """The finished jobs whose pods hold extended resources, by UID, and when they ended."""
    clock: list[int] = field(default_factory=lambda: [0] * len(CLOCK_PHASES))
    """The settled seconds of all wall clocks."""
    clock_jobs: list[int] = field(default_factory=lambda: [0] * len(CLOCK_PHASES))
    """The number of jobs that are in each phase."""
    clock_since: list[int] = field(default_factory=lambda: [0] * len(CLOCK_PHASES))
    """The sum of the times since when they are."""

    def change(self, uid: str, sample: JobSample, sign: int) -> None:
        self.size += sign
        self.jobs[STATES.index(sample.state)] += sign
        _add(self.replicas, sample.replicas, sign)
        for resource, amounts in sample.requests:
            _add(self.requests.setdefault(resource, [0] * len(REQUEST_STATES)), amounts, sign)
        _add(self.clock, sample.clock, sign)
        if sample.clock_phase:
            phase = CLOCK_PHASES.index(sample.clock_phase)
            self.clock_jobs[phase] += sign
            self.clock_since[phase] += sign * sample.clock_since
        for times, since in (
            (self.pending, sample.pending_since),
            (self.holding, sample.holding_since),
        ):
            if sign < 0:
                times.pop(uid, None)
            elif since is not None:
                times[uid] = since

    def clock_seconds(self, now: float) -> list[float]:
        """Return the seconds of all wall clocks in the order of ``CLOCK_PHASES``, the present phases up to now."""
        return [
            seconds + max(jobs * now - since, 0.0)
            for seconds, jobs, since in zip(self.clock, self.clock_jobs, self.clock_since, strict=True)
        ]

    def combine_resources(self, requests: Requests) -> Requests:
        """Return requests of known resources, and of new ones while there is room for their series; the rest are combined."""
        names = {resource for resource, _ in requests}
        if len(self.requests.keys() | names) <= MAX_RESOURCES:
            return requests
        self.requests = {resource: amounts for resource, amounts in self.requests.items() if any(amounts)}
        room = MAX_RESOURCES - len(self.requests.keys() - {OTHER_RESOURCES})
        known = self.requests.keys() | set(sorted(names - self.requests.keys())[: max(room, 0)])
        found: dict[str, list[int]] = {}
        for resource, amounts in requests:
            name = resource if resource in known else OTHER_RESOURCES
            _add(found.setdefault(name, [0] * len(REQUEST_STATES)), amounts, 1)
        return tuple((name, tuple(amounts)) for name, amounts in found.items())


class JobTotals(Collector):
    """The series of all jobs that this process reconciles; none before it leads and after it has stopped."""

    def __init__(
        self,
        registry: CollectorRegistry,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``now`` is the API server's clock."""
        self._now = now
        self._samples: dict[str, JobSample] = {}
        self._totals: dict[tuple[str, str], _Totals] = {}
        self._idle: dict[tuple[str, str], datetime] = {}
        """Totals without jobs, and since when, in this order."""
        self._phases = PHASE_SECONDS.histogram(registry)
        registry.register(self)

    def start(self, framework: str) -> None:
        """Create the series that depend on the framework only."""
        for phase in PHASES:
            self._phases.labels(framework, phase)

    def stop(self) -> None:
        """Remove all series: another process will lead."""
        self._samples.clear()
        self._totals.clear()
        self._idle.clear()
        self._phases.clear()

    def put(self, uid: str, sample: JobSample) -> None:
        """Record the present state of a job."""
        before = self._samples.get(uid)
        if before == sample:
            return
        totals = self._get(sample.namespace, sample.framework)
        if before is not None:
            self._change(uid, before, -1)
        if sample.requests:
            sample = sample._replace(requests=totals.combine_resources(sample.requests))
        self._samples[uid] = sample
        self._change(uid, sample, 1)

    def discard(self, uid: str) -> None:
        """Record that a job is gone, or left to another controller."""
        sample = self._samples.pop(uid, None)
        if sample is not None:
            self._change(uid, sample, -1)

    def __contains__(self, uid: str) -> bool:
        return uid in self._samples

    def count(self, namespace: str, framework: str, event: str) -> None:
        """``event`` is one of ``COUNTS``."""
        self._get(namespace, framework).counts[COUNTS.index(event)] += 1

    def count_failure(self, namespace: str, framework: str, reason: str) -> None:
        """Count a failed job. ``reason`` is one of ``FAILURE_REASONS``."""
        self._get(namespace, framework).failures[FAILURE_REASONS.index(reason)] += 1

    def count_restarts(self, namespace: str, framework: str, reason: str, count: int = 1) -> None:
        """``reason`` is one of ``RESTART_REASONS``."""
        self._get(namespace, framework).restarts[RESTART_REASONS.index(reason)] += count

    def count_job_restart(self, namespace: str, framework: str, action: str) -> None:
        """Count the restart of a whole job. ``action`` is one of ``RESTART_ACTIONS``."""
        self._get(namespace, framework).job_restarts[RESTART_ACTIONS.index(action)] += 1

    def observe_phase(self, framework: str, phase: str, seconds: float) -> None:
        """Record that a job has reached one of ``PHASES``."""
        self._phases.labels(framework, phase).observe(seconds)

    @override
    def collect(self) -> Iterator[Metric]:
        self._remove_idle()
        totals, now = list(self._totals.items()), self._now().timestamp()
        for index, event in enumerate(COUNTS):
            yield _metric(COUNTERS[event], ((key, own.counts[index]) for key, own in totals))
        yield _metric(FAILURES, _each(FAILURE_REASONS, ((key, own.failures) for key, own in totals)))
        yield _metric(RESTARTS, _each(RESTART_REASONS, ((key, own.restarts) for key, own in totals)))
        job_restarts = ((key, own.job_restarts) for key, own in totals)
        yield _metric(JOB_RESTARTS, _each(RESTART_ACTIONS, job_restarts))
        yield _metric(JOBS, _each(STATES, ((key, own.jobs) for key, own in totals)))
        yield _metric(REPLICAS, _each(REPLICA_STATES, ((key, own.replicas) for key, own in totals)))
        requests = (
            ((*key, resource), amounts) for key, own in totals for resource, amounts in own.requests.items()
        )
        yield _metric(REQUESTED, _each(REQUEST_STATES, requests))
        yield _metric(OLDEST_PENDING, ((key, _age(own.pending, now)) for key, own in totals))
        yield _metric(OLDEST_HOLDING, ((key, _age(own.holding, now)) for key, own in totals))
        yield _metric(WALL_CLOCK, _each(CLOCK_PHASES, ((key, own.clock_seconds(now)) for key, own in totals)))

    def _get(self, namespace: str, framework: str) -> _Totals:
        self._remove_idle()
        key = (namespace, framework)
        totals = self._totals.get(key)
        if totals is None:
            totals = self._totals[key] = _Totals()
            self._idle[key] = self._now()
        return totals

    def _change(self, uid: str, sample: JobSample, sign: int) -> None:
        key = (sample.namespace, sample.framework)
        totals = self._totals[key]
        totals.change(uid, sample, sign)
        if totals.size:
            self._idle.pop(key, None)
        else:
            self._idle[key] = self._now()

    def _remove_idle(self) -> None:
        while self._idle:
            key, since = next(iter(self._idle.items()))
            if self._now() - since < IDLE_TIME:
                return
            del self._idle[key], self._totals[key]


def _age(times: Mapping[str, float], now: float) -> float:
    """Return how long ago the first of these times was, 0 if there is none."""
    return max(now - min(times.values(), default=now), 0.0)


def _add(totals: list[int], amounts: Iterable[int], sign: int) -> None:
    for index, amount in enumerate(amounts):
        totals[index] += sign * amount


def _each(
    values: Sequence[str], rows: Iterable[tuple[tuple[str, ...], Sequence[float]]]
) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the labels and the number of each value."""
    return (
        ((*labels, value), number) for labels, row in rows for value, number in zip(values, row, strict=True)
    )


class _Samples(Sequence[Sample]):
    """The samples of one family, created when they are read. With thousands of namespaces that takes long, and the server reads some at a time."""

    def __init__(self, family: Family, series: Iterable[tuple[tuple[str, ...], float]]) -> None:
        self._name = family.name
        self._labels = family.label_names
        self._series = list(series)

    @override
    def __len__(self) -> int:
        return len(self._series)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    @override
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, int):
            return self._sample(*self._series[index])
        return [self._sample(labels, number) for labels, number in self._series[index]]

    def _sample(self, labels: tuple[str, ...], number: float) -> Sample:
        return Sample(self._name, dict(zip(self._labels, labels, strict=True)), number)


def _metric(family: Family, series: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    metric = family.snapshot()
    metric.samples = cast(list[Sample], _Samples(family, series))
    return metric
