"""The back-off between pods of one name."""

from datetime import UTC, datetime, timedelta

from rallypoint.local.node.node import StartBackoff

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_each_further_pod_waits_longer() -> None:
    pace, now, pauses = StartBackoff(), NOW, []
    for _ in range(9):
        pauses.append(pace.next_delay_seconds("default", "p", now))
        now += timedelta(seconds=pauses[-1])

    assert pauses == [0, 0, 1, 2, 4, 8, 16, 30, 30]


def test_other_names_do_not_wait() -> None:
    pace = StartBackoff()
    for _ in range(5):
        pace.next_delay_seconds("default", "p", NOW)

    assert pace.next_delay_seconds("default", "q", NOW) == 0


def test_a_calm_minute_begins_anew() -> None:
    pace = StartBackoff()
    for _ in range(3):
        pace.next_delay_seconds("default", "p", NOW)

    assert pace.next_delay_seconds("default", "p", NOW + timedelta(seconds=62)) == 0
