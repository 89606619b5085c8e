"""The back-off between pods of one name."""

from datetime import UTC, datetime, timedelta

from rallypoint.local.node.node import StartBackoff

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_each_further_pod_waits_longer_than_the_last() -> None:
    backoff, now, pauses = StartBackoff(), NOW, []
    for _ in range(9):
        pauses.append(backoff.next_delay_seconds("default", "p", now))
        now += timedelta(seconds=pauses[-1])

    assert pauses == [0, 0, 1, 2, 4, 8, 16, 30, 30]


def test_other_names_do_not_wait() -> None:
    backoff = StartBackoff()
    for _ in range(5):
        backoff.next_delay_seconds("default", "p", NOW)

    assert backoff.next_delay_seconds("default", "q", NOW) == 0


def test_a_minute_without_starts_resets_the_back_off() -> None:
    backoff = StartBackoff()
    for _ in range(3):
        backoff.next_delay_seconds("default", "p", NOW)

    assert backoff.next_delay_seconds("default", "p", NOW + timedelta(seconds=62)) == 0
