"""Texts that components of Kubernetes write about pods, and which of them say the same."""

import re

_VARYING = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<!\w)\w*\d[\w.]*|[0-9a-f]{12,}")
"""A UID, any word with a digit in it (a count, an index, a duration, an address), or a hash without one.

A word is looked at from its beginning only: from each of its letters, the time would grow with the square of its length.
"""
COMPARED_CHARACTERS = 1024
"""Messages whose first so many characters are equal say the same. Programs write them, at any length."""


def without_numbers(message: str) -> str:
    """Return the message with all that varies between repeats replaced by ``#``: counts, indices, durations, hashes, addresses.

    Two messages that are equal then say the same of two pods, or of one pod at two times. Only their beginnings are compared.
    """
    return _VARYING.sub("#", message[:COMPARED_CHARACTERS])
