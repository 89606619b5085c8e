"""The time of the API server, estimated from the Date headers of its responses."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from controller.runtime import clock
from controller.runtime.serverclock import ANSWERS, ServerClock
from tests.support.builders import NOON


@dataclass
class Times:
    """The clocks of both sides, in seconds after noon, and the uptime of this one."""

    local: float = 0.0
    server: float = 0.0
    uptime: float = 1000.0

    def advance(self, seconds: float) -> None:
        self.local += seconds
        self.server += seconds
        self.uptime += seconds

    def answer(self, to: ServerClock, *, took_seconds: float = 0.0, ahead_seconds: float = 0.0) -> None:
        """Have an answer of the server come."""
        at = NOON + timedelta(seconds=self.server + ahead_seconds - took_seconds / 2)
        to.observe(format_datetime(at, usegmt=True), took_seconds)


@pytest.fixture
def times() -> Iterator[Times]:
    times = Times()
    with (
        patch.object(clock, "now", lambda: NOON + timedelta(seconds=times.local)),
        patch.object(clock, "uptime", lambda: times.uptime),
    ):
        yield times


def seconds(now: datetime) -> float:
    """After noon."""
    return (now - NOON).total_seconds()


def test_the_local_clock_counts_until_the_server_answers(times: Times) -> None:
    times.local = 3600

    assert seconds(ServerClock().now()) == 3600


@pytest.mark.parametrize("ahead", [3600.0, -3600.0, 30.0])
def test_a_wrong_local_clock_is_corrected(times: Times, ahead: float) -> None:
    times.local, server = ahead, ServerClock()
    for _ in range(5):
        times.advance(0.7)
        times.answer(server)

    assert seconds(server.now()) == pytest.approx(times.server, abs=1)
    assert server.offset_seconds() == pytest.approx(-ahead, abs=1)


@pytest.mark.parametrize("ahead", [0.0, 1.2, -1.2])
def test_a_correct_local_clock_is_used_unchanged(times: Times, ahead: float) -> None:
    """It is finer than the header."""
    times.local, server = 0.123456 + ahead, ServerClock()
    times.answer(server)

    assert seconds(server.now()) == pytest.approx(0.123456 + ahead, abs=1e-6)


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_of_the_local_clock_changes_nothing(times: Times, step: float) -> None:
    server = ServerClock()
    times.answer(server)
    times.advance(10)
    times.local += step

    assert seconds(server.now()) == pytest.approx(10, abs=1)


def test_a_step_of_the_server_clock_is_followed(times: Times) -> None:
    server = ServerClock()
    for _ in range(ANSWERS):
        times.answer(server)
    times.server += 600
    for _ in range(ANSWERS // 2 + 1):
        times.answer(server)

    assert seconds(server.now()) == pytest.approx(600, abs=1)


def test_a_single_wrong_clock_among_three_servers_is_outvoted(times: Times) -> None:
    server = ServerClock()
    for number in range(30):
        times.advance(0.3)
        times.answer(server, ahead_seconds=3600 if number % 3 == 0 else 0)

    assert seconds(server.now()) == pytest.approx(times.server, abs=1)


def test_a_slow_response_does_not_count(times: Times) -> None:
    times.local, server = 100, ServerClock()
    times.answer(server, took_seconds=20)

    assert server.offset_seconds() == 0


@pytest.mark.parametrize("date", ["", "soon", "Sun, 99 Nov 2026 12:00:00 GMT", "\n"])
def test_an_invalid_date_header_does_not_count(times: Times, date: str) -> None:
    server = ServerClock()
    server.observe(date, 0.0)

    assert server.offset_seconds() == 0


def test_time_does_not_go_back_for_a_better_estimate(times: Times) -> None:
    times.local, server, last = 3600, ServerClock(), 0.0
    for number in range(100):
        times.advance(0.01)
        times.answer(server, ahead_seconds=0.9 if number % 2 else 0)
        now = seconds(server.now())
        assert now >= last
        last = now


def test_a_wrong_clock_is_logged_once_until_it_is_correct_again(times: Times) -> None:
    server = ServerClock()
    with capture_logs() as logs:
        for offset in (0, 4, 6, 4, 7, 3, 0, 0, 6):
            times.local = times.server + offset
            times.answer(server)

    assert [line["log_level"] for line in logs] == ["warning", "info", "warning"]
