"""Selects which failures of a key are logged, so that a refused call is one line for each step of its back-off."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from api.messages import without_numbers
from controller.kube.bounded_dict import BoundedDict

K = TypeVar("K", bound=Hashable)

SHORTEST_SECONDS = 1.0
"""Back-offs begin with milliseconds; all pauses below this count as one step."""
REMEMBERED = 4096
"""Keys whose failures are known. A failure of another key is logged once more than necessary."""
REMEMBERED_TEXTS = 16
"""The same for the failures of a key."""
TICK_SECONDS = 0.001
"""Timers may fire slightly early."""


@dataclass(slots=True)
class _Line:
    until: float
    """Loop time when the pause after it ends."""
    repeats: int = 0


class FailureLog(Generic[K]):
    """The last line about each failure: a key and a text, in which numbers do not count."""

    def __init__(self) -> None:
        self._lines: BoundedDict[K, BoundedDict[str, _Line]] = BoundedDict(REMEMBERED)

    def record(self, key: K, text: str, pause_seconds: float | None) -> int | None:
        """Record a failure that is retried after a pause; None if only a change of the object causes a retry.

        Returns:
            None if the failure is not to be logged, because the pause after its last line is not over. Otherwise how often it was not
            logged since that line.
        """
        now, failure = asyncio.get_running_loop().time(), without_numbers(text)
        lines = self._lines[key] = self._lines.get(key) or BoundedDict(REMEMBERED_TEXTS)
        last = lines.get(failure)
        if last is not None and now < last.until - TICK_SECONDS:
            last.repeats += 1
            return None
        lines[failure] = _Line(now + max(pause_seconds or 0.0, SHORTEST_SECONDS))
        return last.repeats if last is not None else 0

    def record_fields(self, key: K, text: str, pause_seconds: float | None) -> dict[str, int] | None:
        """Record a failure as ``record`` does, and return the fields of its line: ``repeats`` if it was not logged since the last one."""
        repeats = self.record(key, text, pause_seconds)
        return None if repeats is None else {"repeats": repeats} if repeats else {}

    def discard(self, key: K) -> None:
        """Drop the failures of a key that has succeeded, so that its next failure is logged at once."""
        self._lines.pop(key, None)
