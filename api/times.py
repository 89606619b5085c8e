"""Timestamps in every form that the API server accepts, which are more than Python and Go parse.

A field of the format ``date-time`` accepts a lower-case ``t`` and ``z``, offsets up to ``99:99``, the year 0, fractions of any length and after
any character (also a digit), and any text after a second ``t``. An operator that refuses one of these could never reconcile the object again.

Source: kube-openapi, pkg/validation/strfmt/time.go, IsDateTime; leap seconds come from RFC 3339.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

_DATE_TIME = re.compile(
    r"(-?\d{4,})-(\d\d)-(\d\d)[tT](\d\d):(\d\d):(\d\d)(?:.(\d+))?(?:[zZ]|([+-])(\d\d):(\d\d))(?:[tT].*)?",
    re.ASCII | re.DOTALL,
)
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


def parse_time(text: str) -> datetime:
    """Parse a time into an aware datetime in UTC; times beyond Python's range become its earliest or latest one.

    A leap second becomes the first second after it, a fraction is truncated to microseconds.

    Raises:
        ValueError: the text is not a time.
    """
    if len(text) == 20 and text[10] == "T" and text[19] == "Z" and text[11:13] < "24":
        try:  # the usual format of Kubernetes, ten times as fast
            return datetime.fromisoformat(text)
        except ValueError:
            pass
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time of the form 2006-01-02T15:04:05Z")
    year, month, day, hour, minute, second = (int(text) for text in found.groups()[:6])
    fraction, sign, ahead_hours, ahead_minutes = found.groups()[6:]
    if hour > 23 or minute > 59 or second > 60:
        raise ValueError(f"{text!r} has an hour, minute or second out of range")
    shift = timedelta(hours=int(ahead_hours or 0), minutes=int(ahead_minutes or 0))
    within = timedelta(
        hours=hour, minutes=minute, seconds=second, microseconds=int((fraction or "0")[:6].ljust(6, "0"))
    )
    if not 1 <= year <= 9999:
        datetime(2000, month, day, tzinfo=UTC)  # the date must exist nevertheless
        return _EARLIEST if year < 1 else _LATEST
    try:
        return datetime(year, month, day, tzinfo=UTC) + within - (-shift if sign == "-" else shift)
    except OverflowError:
        return _EARLIEST if year == 1 else _LATEST


def format_time(time: datetime) -> str:
    """Format a time as Kubernetes does: UTC, in whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(value: Any) -> Any:
    if isinstance(value, (int, float)):
        raise ValueError("a number is not a time")
    return parse_time(value) if isinstance(value, str) else value


Time = Annotated[datetime, BeforeValidator(_time)]
"""A time in a wire model."""
