"""Wall-clock time, in one place. Delays and back-off use the event loop's own monotonic time."""

from datetime import UTC, datetime


def now() -> datetime:
    """The time of day, aware, in UTC."""
    return datetime.now(UTC)
