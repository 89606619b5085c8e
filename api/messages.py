"""Texts that components of Kubernetes write about pods, and which of them say the same."""

import re

_VARYING = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{12,}|\w*\d[\w.]*")
"""A UID, a hash, or any word with a digit in it: a count, an index, a duration, an address."""


def without_numbers(message: str) -> str:
    """Return the message with all that varies between repeats replaced by ``#``: counts, indices, durations, hashes, addresses.

    Two messages that are equal then say the same of two pods, or of one pod at two times.
    """
    return _VARYING.sub("#", message)
