"""The metrics of the service, under the names that dashboards of training-operator and of controller-runtime query.

Every label's values are listed where the metric is declared; series start at zero. Names of jobs are never labels.

Source: training-operator 1.9, pkg/common/metrics.go; controller-runtime, pkg/internal/controller/metrics and pkg/metrics.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

RESULTS = ("error", "requeue", "requeue_after", "success")
"""Values of the label ``result``."""
RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)
"""Seconds; those of controller-runtime."""
QUEUE_BUCKETS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10)
"""Seconds; those of controller-runtime's work queue."""

_without_created_series: Callable[[], None] = disable_created_metrics
"""A second series for each, with its time of creation, is nothing that the originals' dashboards know."""


class ControllerMetrics:
    """The series of one controller (one kind): an observer of its workers."""

    def __init__(self, metrics: "Metrics", controller: str, workers: int) -> None:
        self._waited = metrics.queue_seconds.labels(controller)
        self._worked = metrics.work_seconds.labels(controller)
        self._took = metrics.reconcile_seconds.labels(controller)
        self._results = {result: metrics.reconciles.labels(controller, result) for result in RESULTS}
        self._errors = metrics.reconcile_errors.labels(controller)
        self._panics = metrics.reconcile_panics.labels(controller)
        self._active = metrics.active_workers.labels(controller)
        metrics.most_workers.labels(controller).set(workers)

    def started(self, waited: float) -> None:
        self._waited.observe(waited)
        self._active.inc()

    def ended(self, result: str, took: float) -> None:
        self._active.dec()
        self._worked.observe(took)
        self._took.observe(took)
        self._results[str(result)].inc()
        if result == "error":
            self._errors.inc()

    def panicked(self) -> None:
        self._panics.inc()


class Metrics:
    """All metrics of one service, in one registry."""

    def __init__(self, registry: CollectorRegistry, frameworks: Iterable[str]) -> None:
        _without_created_series()
        self.registry = registry
        jobs = ("job_namespace", "framework")
        """Namespaces with jobs; the frameworks of the kinds that are served."""
        self._frameworks = tuple(frameworks)
        self._jobs = {
            count: Counter(f"training_operator_jobs_{count}", help_, jobs, registry=registry)
            for count, help_ in (
                ("created", "Counts number of jobs created"),
                ("deleted", "Counts number of jobs deleted"),
                ("successful", "Counts number of jobs successful"),
                ("failed", "Counts number of jobs failed"),
                ("restarted", "Counts number of jobs restarted"),
            )
        }
        controller = ("controller",)
        """``pytorchjob-controller`` and its siblings."""
        self.reconciles = Counter(
            "controller_runtime_reconcile",
            "Passes by controller and result",
            ("controller", "result"),
            registry=registry,
        )
        self.reconcile_errors = Counter(
            "controller_runtime_reconcile_errors", "Passes that failed", controller, registry=registry
        )
        self.reconcile_panics = Counter(
            "controller_runtime_reconcile_panics", "Passes that met a defect", controller, registry=registry
        )
        self.reconcile_seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Length of a pass",
            controller,
            buckets=RECONCILE_BUCKETS,
            registry=registry,
        )
        self.active_workers = Gauge(
            "controller_runtime_active_workers", "Passes under way", controller, registry=registry
        )
        self.most_workers = Gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Passes that may be under way at once",
            controller,
            registry=registry,
        )
        name = ("name",)
        """The controller's name, as controller-runtime has it."""
        self.queue_seconds = Histogram(
            "workqueue_queue_duration_seconds",
            "How long a key waits",
            name,
            buckets=QUEUE_BUCKETS,
            registry=registry,
        )
        self.work_seconds = Histogram(
            "workqueue_work_duration_seconds",
            "How long a key is worked on",
            name,
            buckets=QUEUE_BUCKETS,
            registry=registry,
        )
        self._queues = _Queues()
        registry.register(self._queues)
        self._news = _News()
        registry.register(self._news)
        self._requests = Counter(
            "rest_client_requests",
            "Requests to the API server by code and method",
            ("code", "method", "host"),
            registry=registry,
        )
        self._request_seconds = Histogram(
            "rest_client_request_duration_seconds", "Length of a request", ("verb", "host"), registry=registry
        )

    def job(self, framework: str) -> Callable[[str, str], None]:
        """A function (namespace, count) that counts for one framework."""

        def count(namespace: str, what: str) -> None:
            for series in self._jobs.values():  # so that a namespace's series all start together, at zero
                series.labels(namespace, framework)
            self._jobs[what].labels(namespace, framework).inc()

        return count

    def controller(self, name: str, workers: int) -> ControllerMetrics:
        return ControllerMetrics(self, name, workers)

    def queue(self, name: str, queue: "Measured") -> None:
        """Read a queue's figures whenever somebody scrapes."""
        self._queues.by_name[name] = queue

    def watch(self, resource: str, silent_seconds: Callable[[], float]) -> None:
        """Read a watch's silence whenever somebody scrapes."""
        self._news.silent_seconds[resource] = silent_seconds

    def events(self, dropped: Callable[[], int]) -> None:
        """Read the count of lost events whenever somebody scrapes."""
        self._news.dropped = dropped

    def request(self, host: str) -> Callable[[str, str, str, float], None]:
        """A function (method, resource, code, seconds) that counts requests to one host."""

        def observe(method: str, resource: str, code: str, seconds: float) -> None:
            self._requests.labels(code, method, host).inc()
            self._request_seconds.labels(method, host).observe(seconds)

        return observe


class Measured(Protocol):
    """What a work queue tells of itself."""

    @property
    def adds(self) -> int: ...
    @property
    def retries(self) -> int: ...
    def __len__(self) -> int: ...
    def working_seconds(self) -> list[float]: ...


class _Queues(Collector):
    """The figures of all work queues, read when they are asked for."""

    def __init__(self) -> None:
        self.by_name: dict[str, Measured] = {}

    @override
    def collect(self) -> Iterator[Metric]:
        name = ("name",)
        depth = GaugeMetricFamily("workqueue_depth", "Keys that wait", labels=name)
        adds = CounterMetricFamily("workqueue_adds", "Keys added", labels=name)
        retries = CounterMetricFamily("workqueue_retries", "Keys added after a failure", labels=name)
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds", "Time spent so far on all keys under way", labels=name
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds",
            "Time spent so far on the key longest under way",
            labels=name,
        )
        for controller, queue in self.by_name.items():
            working = queue.working_seconds()
            depth.add_metric([controller], len(queue))
            adds.add_metric([controller], queue.adds)
            retries.add_metric([controller], queue.retries)
            unfinished.add_metric([controller], sum(working))
            longest.add_metric([controller], max(working, default=0.0))
        yield from (depth, adds, retries, unfinished, longest)


class _News(Collector):
    """How fresh the caches are, and which events got lost: read when they are asked for."""

    def __init__(self) -> None:
        self.silent_seconds: dict[str, Callable[[], float]] = {}
        """By plural: ``pods``, ``services``, and that of each kind that is served."""
        self.dropped: Callable[[], int] = int

    @override
    def collect(self) -> Iterator[Metric]:
        silence = GaugeMetricFamily(
            "rallypoint_watch_silence_seconds",
            "Time since the API server was last heard of by the watch of a resource",
            labels=("resource",),
        )
        for resource, silent_seconds in self.silent_seconds.items():
            silence.add_metric([resource], silent_seconds())
        yield silence
        yield CounterMetricFamily(
            "rallypoint_events_dropped", "Events that could not be sent", value=self.dropped()
        )
