"""Metrics of the workers' reconciles, and their log lines at debug."""

import structlog
from prometheus_client import CollectorRegistry

from controller.telemetry import logs
from controller.telemetry.metrics import families

log = structlog.get_logger()


class ReconcileFamilies:
    """The families, for all controllers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.results = families.RECONCILES.counter(registry)
        self.errors = families.RECONCILE_ERRORS.counter(registry)
        self.terminal = families.TERMINAL_ERRORS.counter(registry)
        self.panics = families.RECONCILE_PANICS.counter(registry)
        self.timeouts = families.RECONCILE_TIMEOUTS.counter(registry)
        self.took = families.RECONCILE_SECONDS.histogram(registry)
        self.most = families.MOST_WORKERS.gauge(registry)
        self.active = families.ACTIVE_WORKERS.gauge(registry)
        self.waited = families.QUEUE_SECONDS.histogram(registry)
        self.worked = families.WORK_SECONDS.histogram(registry)


class ReconcileSeries:
    """The series of one controller: an observer of its workers. Times are in seconds."""

    def __init__(self, all_: ReconcileFamilies, controller: str, workers: int) -> None:
        self._results = {result: all_.results.labels(controller, result) for result in families.RESULTS}
        self._errors = all_.errors.labels(controller)
        self._terminal = all_.terminal.labels(controller)
        self._panics = all_.panics.labels(controller)
        self._timeouts = all_.timeouts.labels(controller)
        self._took = all_.took.labels(controller)
        self._active = all_.active.labels(controller)
        self._waited = all_.waited.labels(controller, controller)
        self._worked = all_.worked.labels(controller, controller)
        all_.most.labels(controller).set(workers)

    def started(self, waited: float) -> None:
        self._waited.observe(waited)
        self._active.inc()

    def ended(self, result: str, took: float) -> None:
        self._active.dec()
        self._worked.observe(took)
        self._took.observe(took)
        self._results[result].inc()
        if result == "error":
            self._errors.inc()
        if logs.is_debug():
            log.debug("reconciled", result=str(result), seconds=took)

    def failed_for_good(self) -> None:
        self._terminal.inc()

    def panicked(self) -> None:
        self._panics.inc()

    def timed_out(self) -> None:
        self._timeouts.inc()
