"""Metrics of the client's requests, and their log lines at debug. Each request pays for them, so one key finds all its series."""

from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from controller.telemetry import logs
from controller.telemetry.metrics import families

log = structlog.get_logger()


class RequestFamilies:
    """The families, for all API servers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.results = families.REQUESTS.counter(registry)
        self.retries = families.REQUEST_RETRIES.counter(registry)
        self.took = families.REQUEST_SECONDS.histogram(registry)
        self.sent = families.REQUEST_SIZE.histogram(registry)
        self.received = families.RESPONSE_SIZE.histogram(registry)
        self.limited = families.LIMITER_SECONDS.histogram(registry)


@dataclass(frozen=True, slots=True)
class _Method:
    took: Histogram
    sent: Histogram
    received: Histogram
    limited: Histogram


class Requests:
    """The series of one API server: an observer of clients."""

    def __init__(self, all_: RequestFamilies, host: str) -> None:
        self._all = all_
        self._host = host
        self._methods = {method: self._method(method) for method in families.METHODS}
        self._results: dict[tuple[str, str], Counter] = {}
        self._retries: dict[tuple[str, str], Counter] = {}
        for method in families.METHODS:
            for code in families.CODES:
                self._result(method, code)
                self._retry(method, code)

    def answered(
        self, method: str, resource: str, code: str, seconds: float, sent_bytes: int, received_bytes: int
    ) -> None:
        """Record one attempt; ``code`` is ``<error>`` without an answer. The resource is not a label."""
        (self._results.get((method, code)) or self._result(method, code)).inc()
        series = self._methods[method]
        series.took.observe(seconds)
        series.sent.observe(sent_bytes)
        series.received.observe(received_bytes)
        if logs.is_debug():
            log.debug("request", method=method, resource=resource, code=code, seconds=seconds)

    def retried(self, method: str, code: str) -> None:
        (self._retries.get((method, code)) or self._retry(method, code)).inc()

    def limited(self, method: str, seconds: float) -> None:
        self._methods[method].limited.observe(seconds)

    def _method(self, method: str) -> _Method:
        all_, labels = self._all, (method, self._host)
        return _Method(
            *(family.labels(*labels) for family in (all_.took, all_.sent, all_.received, all_.limited))
        )

    def _result(self, method: str, code: str) -> Counter:
        self._results[method, code] = series = self._all.results.labels(code, method, self._host)
        return series

    def _retry(self, method: str, code: str) -> Counter:
        self._retries[method, code] = series = self._all.retries.labels(code, method, self._host)
        return series
