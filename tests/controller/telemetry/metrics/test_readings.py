"""Values from elsewhere are read at each scrape and have the type of the table."""

from prometheus_client import CollectorRegistry, generate_latest

from controller.telemetry.metrics.family import Family, Label
from controller.telemetry.metrics.readings import Readings

COUNTER = Family("things_total", "counter", "Things", (Label("color"),))
GAUGE = Family("waiting", "gauge", "Waiting")


def test_values_are_those_of_now_and_counters_stay_counters() -> None:
    """Prometheus detects no resets of a counter that is exposed as a gauge."""
    registry = CollectorRegistry()
    readings = Readings([COUNTER, GAUGE])
    registry.register(readings)
    things: list[str] = []
    readings.add(COUNTER, ("red",), lambda: len(things))
    things.append("one")

    assert generate_latest(registry).decode().splitlines() == [
        "# HELP things_total Things",
        "# TYPE things_total counter",
        'things_total{color="red"} 1.0',
        "# HELP waiting Waiting",
        "# TYPE waiting gauge",
    ]
