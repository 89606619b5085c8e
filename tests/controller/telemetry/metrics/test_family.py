"""A metric family: its unit and the metric that it builds."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from controller.telemetry.metrics.family import Family, Label

LABELS = (Label("color", ("red", "green")), Label("place"))


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("things_total", ""),
        ("things", ""),
        ("work_seconds", "seconds"),
        ("cpu_seconds_total", "seconds"),
        ("sent_bytes", "bytes"),
        ("seconds_left", ""),
    ],
)
def test_unit(name: str, unit: str) -> None:
    assert Family(name, "gauge", "").unit == unit


def test_a_family_builds_its_metric() -> None:
    registry = CollectorRegistry()
    Family("a_total", "counter", "About a", LABELS).counter(registry).labels("red", "here").inc(2)
    Family("b", "gauge", "About b").gauge(registry).set(3)
    Family("c_seconds", "histogram", "About c", (), (1, 2)).histogram(registry).observe(1.5)

    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if "_created" not in line] == [
        "# HELP a_total About a",
        "# TYPE a_total counter",
        'a_total{color="red",place="here"} 2.0',
        "# HELP b About b",
        "# TYPE b gauge",
        "b 3.0",
        "# HELP c_seconds About c",
        "# TYPE c_seconds histogram",
        'c_seconds_bucket{le="1.0"} 0.0',
        'c_seconds_bucket{le="2.0"} 1.0',
        'c_seconds_bucket{le="+Inf"} 1.0',
        "c_seconds_count 1.0",
        "c_seconds_sum 1.5",
    ]
