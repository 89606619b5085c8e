"""Goodput: the phases of a wall clock, and those of a timeline."""

from datetime import UTC, datetime, timedelta

from rallypoint.cli import describe
from rallypoint.diagnosis import Span, Timeline
from rallypoint.diagnosis.goodput import _OF_SPANS, PHASES, computed, measured
from rallypoint.diagnosis.timeline import SPANS

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
RUNNING = {
    "status": {
        "wallClock": {
            "phase": "Running",
            "since": "2026-01-01T11:59:00Z",
            "pullingSeconds": 20,
            "runningSeconds": 90,
            "lostSeconds": 30,
        }
    }
}


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def test_the_present_phase_counts_up_to_now() -> None:
    found = measured(RUNNING, NOW)

    assert found
    assert found.seconds == {"pulling": 20, "running": 150, "lost": 30}
    assert (found.total_seconds, found.share, found.phase) == (200, 0.75, "running")
    assert found.knows_lost_work


def test_a_finished_job_does_not_grow_older() -> None:
    clock = {"phase": "Finished", "since": "2026-01-01T11:00:00Z", "runningSeconds": 90}
    found = measured({"status": {"wallClock": clock}}, NOW)

    assert found
    assert found.seconds == {"running": 90}
    assert not found.knows_lost_work


def test_a_job_without_a_clock_is_not_measured() -> None:
    assert measured({"status": {}}, NOW) is None


def test_a_timeline_has_the_same_phases() -> None:
    spans = [
        Span("suspended", ago(100), ago(80)),
        Span("creating", ago(80), ago(75)),
        Span("scheduling", ago(75), ago(70)),
        Span("running", ago(70), ago(20)),
        Span("restarting", ago(20), None),
    ]
    found = computed(Timeline(spans, []), NOW)

    assert found.seconds == {"queued": 20, "placing": 10, "running": 50, "recovering": 20}
    assert (found.phase, found.share, found.is_measured) == ("recovering", 0.5, False)


def test_each_span_has_a_phase() -> None:
    assert set(_OF_SPANS) == set(SPANS)
    assert set(_OF_SPANS.values()) == set(PHASES) - {"lost"}


def test_describe_shows_each_phase_with_its_share() -> None:
    assert "".join(describe.wall_clock(RUNNING, NOW)).splitlines() == [
        "Wall clock:",
        "  Phase         Time    Share",
        "  -----         ----    -----",
        "  pulling       20s     10%",
        "  running now   2m30s   75%",
        "  lost          30s     15%",
    ]
