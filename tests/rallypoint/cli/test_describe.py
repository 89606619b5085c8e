"""The timeline of ``rallypoint describe``."""

from datetime import UTC, datetime, timedelta

from rallypoint.cli import describe
from rallypoint.diagnosis import Restart, Span, Timeline

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def test_the_bar_has_a_row_for_each_span() -> None:
    spans = [
        Span("queued", ago(400), ago(200)),
        Span("starting", ago(200), ago(199)),
        Span("running", ago(199), None),
    ]
    restart = Restart(ago(150), "j-worker-0", "ended with\nexit code 1")

    text = "".join(describe.timeline_bar(Timeline(spans, [restart]), NOW))

    assert text.splitlines() == [
        "Timeline:",
        "  Phase      At       Duration   Bar",
        "  -----      --       --------   ---",
        "  queued     +0s      3m20s      |####################                    |",
        "  starting   +3m20s   1s         |                    #                   |",
        "  running    +3m21s   3m19s      |                    ####################|",
        "  Restarted once, last 2m ago: j-worker-0 ended with exit code 1",
    ]


def test_many_spans_share_rows() -> None:
    spans = [
        Span(name, ago(1000 - 10 * number), ago(990 - 10 * number))
        for number, name in enumerate(["running", "restarting"] * 50)
    ]

    rows = "".join(describe.timeline_bar(Timeline(spans, []), NOW)).splitlines()[3:]

    assert len(rows) == describe.BAR_ROWS
    assert "running, restarting" in rows[0]


def test_a_job_without_spans_has_no_bar() -> None:
    assert list(describe.timeline_bar(Timeline([], []), NOW)) == []
