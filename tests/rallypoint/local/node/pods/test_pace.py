"""How fast pods of one name may follow each other."""

from datetime import UTC, datetime, timedelta

from rallypoint.local.node.pods.pace import Pace

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_each_further_pod_waits_longer() -> None:
    pace, now, pauses = Pace(), NOW, []
    for _ in range(9):
        pauses.append(pace.pause_seconds("default", "p", now))
        now += timedelta(seconds=pauses[-1])

    assert pauses == [0, 0, 1, 2, 4, 8, 16, 30, 30]


def test_other_names_do_not_wait() -> None:
    pace = Pace()
    for _ in range(5):
        pace.pause_seconds("default", "p", NOW)

    assert pace.pause_seconds("default", "q", NOW) == 0


def test_a_calm_minute_begins_anew() -> None:
    pace = Pace()
    for _ in range(3):
        pace.pause_seconds("default", "p", NOW)

    assert pace.pause_seconds("default", "p", NOW + timedelta(seconds=62)) == 0
