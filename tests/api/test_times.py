"""Times as API servers accept them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.job import JobStatus
from api.times import parse_time

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2026-01-01T12:00:00Z", NOON, id="as Kubernetes writes it"),
        pytest.param("2026-01-01t12:00:00z", NOON, id="in lower case"),
        pytest.param("2026-01-02T02:00:00+14:00", NOON, id="far in the east"),
        pytest.param("2026-01-01T00:00:00-12:00", NOON, id="far in the west"),
        pytest.param("2026-01-05T16:39:00+99:99", NOON, id="an offset that no place has"),
        pytest.param("2026-01-01T11:59:60Z", NOON, id="a leap second"),
        pytest.param(
            "2026-01-01T12:00:00.123456789Z", NOON + timedelta(microseconds=123456), id="nanoseconds"
        ),
        pytest.param("2026-01-01T12:00:00,5Z", NOON + timedelta(microseconds=500_000), id="a comma"),
        pytest.param("2026-01-01T12:00:0075Z", NOON + timedelta(microseconds=500_000), id="a digit"),
        pytest.param("2026-01-01T12:00:00ztail", NOON, id="with a tail after a second t"),
        pytest.param("0000-01-01T00:00:00Z", EARLIEST, id="the year 0"),
        pytest.param("0001-01-01T00:00:00+14:00", EARLIEST, id="before the year 1 in UTC"),
        pytest.param("-0001-12-31T10:00:00Z", EARLIEST, id="before the year 0, as Go writes it"),
        pytest.param("9999-12-31T23:59:59-14:00", LATEST, id="after the year 9999 in UTC"),
        pytest.param("10000-01-01T13:59:59Z", LATEST, id="the year 10000, as Go writes it"),
    ],
)
def test_a_time_is_read(text: str, expected: datetime) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-01",
        "2026-01-01T12:00:00",
        "2026-02-30T12:00:00Z",
        "0000-02-30T12:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T12:60:00Z",
        "2026-01-01T12:00:61Z",
        "٢٠٢٦-01-01T12:00:00Z",
    ],
)
def test_an_invalid_time_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time|out of range|day is"):
        parse_time(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_formatted_time_parses_to_itself(moment: datetime) -> None:
    assert parse_time(moment.isoformat()) == moment


def test_a_status_accepts_every_time_that_a_server_accepts() -> None:
    status = JobStatus.model_validate({"startTime": "0000-01-01t00:00:00z"})

    assert status.start_time == EARLIEST
