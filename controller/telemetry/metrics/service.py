"""All metrics of one service in one registry; ``app`` gives them to the parts that report values."""

import asyncio
import platform
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from controller.telemetry.lag import Lag
from controller.telemetry.metrics import families
from controller.telemetry.metrics.jobs import JobTotals
from controller.telemetry.metrics.mpi import OPERATOR, Launchers, MpiOperator
from controller.telemetry.metrics.readings import Readings
from controller.telemetry.metrics.reconciles import ReconcileFamilies, ReconcileSeries
from controller.telemetry.metrics.requests import RequestFamilies, Requests

_without_created_series: Callable[[], None] = disable_created_metrics
"""No ``_created`` series: the dashboards of the originals do not use them."""

_READ = (
    *(families.DEPTH, families.ADDS, families.RETRIES, families.UNFINISHED_SECONDS, families.LONGEST_SECONDS),
    *(families.LOOP_LAG_LONGEST, families.EVENTS_DROPPED, families.EVENTS_LIMITED),
    *(families.WATCH_SILENCE, families.WATCH_FILLS, families.WATCH_ENDINGS),
    *(families.WATCH_REPAIRS, families.SERVED),
    families.CLOCK_OFFSET,
    *(families.LIMITER_WIDTH, families.LIMITER_IN_FLIGHT, families.LIMITER_WAITING),
)


class Watch(Protocol):
    """Values of a resource's watch."""

    @property
    def fills(self) -> Counter[str]: ...
    @property
    def endings(self) -> Counter[str]: ...
    @property
    def repaired(self) -> int: ...
    @property
    def unserved(self) -> asyncio.Event: ...
    def silent_seconds(self) -> float: ...


class Queue(Protocol):
    """Values of a work queue."""

    @property
    def adds(self) -> int: ...
    @property
    def retries(self) -> int: ...
    def __len__(self) -> int: ...
    def working_seconds(self) -> list[float]: ...


class ConcurrencyLimiter(Protocol):
    """Values of the concurrency limiter."""

    @property
    def width(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    def waiting(self) -> Mapping[str, int]:
        """Waiting calls by priority level."""
        ...


class Election:
    """The series of the leader election: its observer."""

    def __init__(self, registry: CollectorRegistry, mpi_operator: MpiOperator) -> None:
        self._master = families.MASTER.gauge(registry)
        self._slow = families.SLOW_PATH.counter(registry)
        self._mpi_operator = mpi_operator

    def leading(self, name: str, is_leading: bool) -> None:
        self._master.labels(name).set(is_leading)
        self._mpi_operator.leading(is_leading)
        self._slow.labels(name)  # so that all series of a Lease start together

    def slow_path(self, name: str) -> None:
        self._slow.labels(name).inc()


class MetricsEndpoint:
    """The series of the protected metrics endpoint: its observer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reviews = families.METRICS_REVIEWS.counter(registry)
        self._reads = families.CERTIFICATE_READS.counter(registry)
        self._errors = families.CERTIFICATE_ERRORS.counter(registry)
        self._expiry = families.CERTIFICATE_EXPIRY.gauge(registry)
        for review in families.REVIEWS_OF:
            for result in families.REVIEW_RESULTS:
                self._reviews.labels(review, result)

    def reviewed(self, review: str, result: str) -> None:
        self._reviews.labels(review, result).inc()

    def certificate_read(self, expires_at: datetime) -> None:
        self._reads.inc()
        self._expiry.set(expires_at.timestamp())

    def certificate_failed(self) -> None:
        self._reads.inc()
        self._errors.inc()


class Metrics:
    """Each method creates or connects the series of one part."""

    def __init__(
        self,
        registry: CollectorRegistry,
        version: str = "",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``now`` is the API server's clock."""
        _without_created_series()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        self.registry = registry
        self.jobs = JobTotals(registry, now)
        self._reconciles = ReconcileFamilies(registry)
        self._requests = RequestFamilies(registry)
        self._mpi_operator = MpiOperator(registry)
        self._election = Election(registry, self._mpi_operator)
        self._lag = families.LOOP_LAG.histogram(registry)
        self._build = families.BUILD.gauge(registry)
        self._version = version
        self._readings = Readings(_READ)
        registry.register(self._readings)

    def job(self, framework: str, controller: str = "") -> Callable[[str, str], None]:
        """Return a function (namespace, count) that counts for one framework, and for the original's own counters if there are any."""

        def count(namespace: str, event: str) -> None:
            self.jobs.count(namespace, framework, event)
            if controller == OPERATOR:
                self._mpi_operator.count(event)

        return count

    def launchers(self, read: Launchers) -> None:
        self._mpi_operator.launchers(read)

    def controller(self, name: str, workers: int) -> ReconcileSeries:
        return ReconcileSeries(self._reconciles, name, workers)

    def queue(self, name: str, queue: Queue) -> None:
        read, labels = self._readings.add, (name, name)
        read(families.DEPTH, labels, lambda: len(queue))
        read(families.ADDS, labels, lambda: queue.adds)
        read(families.RETRIES, labels, lambda: queue.retries)
        read(families.UNFINISHED_SECONDS, labels, lambda: sum(queue.working_seconds()))
        read(families.LONGEST_SECONDS, labels, lambda: max(queue.working_seconds(), default=0.0))

    def watch(self, resource: str, watch: Watch) -> None:
        read = self._readings.add
        read(families.WATCH_SILENCE, (resource,), watch.silent_seconds)
        read(families.WATCH_REPAIRS, (resource,), lambda: watch.repaired)
        read(families.SERVED, (resource,), lambda: not watch.unserved.is_set())
        for by in families.FILLS:
            read(families.WATCH_FILLS, (resource, by), partial(watch.fills.__getitem__, by))
        for ending in families.ENDINGS:
            read(families.WATCH_ENDINGS, (resource, ending), partial(watch.endings.__getitem__, ending))

    def clock(self, offset_seconds: Callable[[], float]) -> None:
        self._readings.add(families.CLOCK_OFFSET, (), offset_seconds)

    def events(self, dropped: Callable[[], int], limited: Callable[[], int]) -> None:
        self._readings.add(families.EVENTS_DROPPED, (), dropped)
        self._readings.add(families.EVENTS_LIMITED, (), limited)

    def limiter(self, limiter: ConcurrencyLimiter) -> None:
        read = self._readings.add
        read(families.LIMITER_WIDTH, (), lambda: limiter.width)
        read(families.LIMITER_IN_FLIGHT, (), lambda: limiter.in_flight)
        for level in families.PRIORITY_LEVELS:
            read(families.LIMITER_WAITING, (level,), partial(_waiting, limiter, level))

    def requests(self, host: str) -> Requests:
        """Return an observer of the clients of one API server."""
        return Requests(self._requests, host)

    def election(self) -> Election:
        return self._election

    def endpoint(self) -> MetricsEndpoint:
        return MetricsEndpoint(self.registry)

    def loop(self) -> Lag:
        """Return the lag measurement, to be run on the loop that it measures; its value is exposed, too."""
        loop = "uvloop" if type(asyncio.get_running_loop()).__module__.startswith("uvloop") else "asyncio"
        self._build.labels(self._version, platform.python_version(), loop).set(1)
        lag = Lag(self._lag.observe)
        self._readings.add(families.LOOP_LAG_LONGEST, (), lag.longest_seconds)
        return lag


def _waiting(limiter: ConcurrencyLimiter, level: str) -> int:
    return limiter.waiting()[level]
