"""Compares and cleans the messages that Kubernetes components and programs write."""

import re
from collections.abc import Sequence

_VARYING = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<!\w)\w*\d[\w.]*|[0-9a-f]{12,}")
"""A UID, any word with a digit (a count, an index, a duration, an address), or a hash without one.

The pattern matches only at the start of a word: matching at each letter would take quadratic time.
"""
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]"
)
"""Escape sequences and control characters of terminals, and line separators; tab and newline are none."""
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters of terminals, line separators, and characters that change the direction of text; tab and newline are none."""
COMPARED_CHARACTERS = 1024
"""Messages with an equal prefix of this length count as equal, because programs write messages of any length."""


def without_numbers(message: str) -> str:
    """Return the message with all parts that vary between repeats replaced by ``#``: counts, indices, durations, hashes, addresses.

    Equal results mean the same problem of two pods, or of one pod at two times. Only the beginning of the message is used.
    """
    return _VARYING.sub("#", message[:COMPARED_CHARACTERS])


def without_control(text: str) -> str:
    """Return the text without escape sequences and control characters of terminals; tabs and newlines stay."""
    return _CONTROL.sub("", text)


def escape_control(text: str) -> str:
    """Return the text with control characters of terminals and of text direction as ``\\u001b``; tabs and newlines stay.

    The escapes are those of JSON, so an escaped document means the same.
    """
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def first_of(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first ``most`` texts, with the number of the others: ``a, b and 3 more``."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{separator.join(texts[:most])}{more}"
