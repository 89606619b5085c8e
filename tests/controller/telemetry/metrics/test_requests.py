"""The metrics of the API client."""

import pytest
from prometheus_client import CollectorRegistry

from controller.telemetry.metrics import Metrics
from controller.telemetry.metrics.requests import Requests

HOST = "10.0.0.1:6443"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def requests(registry: CollectorRegistry) -> Requests:
    return Metrics(registry).requests(HOST)


def test_responses_and_their_sizes_are_counted(requests: Requests, registry: CollectorRegistry) -> None:
    requests.answered("POST", "pods", "201", 0.1, 2000, 3000)
    requests.answered("POST", "services", "<error>", 30.0, 500, 0)

    codes = {
        code: registry.get_sample_value(
            "rest_client_requests_total", {"code": code, "method": "POST", "host": HOST}
        )
        for code in ("201", "<error>", "429")
    }
    assert codes == {"201": 1, "<error>": 1, "429": 0}
    sums = {
        name: registry.get_sample_value(f"rest_client_{name}_sum", {"verb": "POST", "host": HOST})
        for name in ("request_duration_seconds", "request_size_bytes", "response_size_bytes")
    }
    assert sums == {
        "request_duration_seconds": 30.1,
        "request_size_bytes": 2500,
        "response_size_bytes": 3000,
    }


def test_retries_and_rate_limiter_waits_are_counted(requests: Requests, registry: CollectorRegistry) -> None:
    requests.retried("PUT", "429")
    requests.retried("PUT", "429")
    requests.limited("GET", 0.25)

    labels = {"code": "429", "verb": "PUT", "host": HOST}
    assert registry.get_sample_value("rest_client_request_retries_total", labels) == 2
    labels = {"verb": "GET", "host": HOST}
    assert registry.get_sample_value("rest_client_rate_limiter_duration_seconds_sum", labels) == 0.25


def test_an_unexpected_code_starts_a_series(requests: Requests, registry: CollectorRegistry) -> None:
    requests.answered("GET", "pods", "418", 0.1, 0, 0)
    requests.retried("GET", "418")

    labels = {"code": "418", "method": "GET", "host": HOST}
    assert registry.get_sample_value("rest_client_requests_total", labels) == 1
    labels = {"code": "418", "verb": "GET", "host": HOST}
    assert registry.get_sample_value("rest_client_request_retries_total", labels) == 1
