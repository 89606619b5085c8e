"""Input and expected output of buffers: small whole numbers, exact in every data type.

``i`` is the index of an element in its segment: a number or a tensor.
"""

from typing import Any

PERIOD = 808
"""All patterns repeat after this number of elements."""


def addend(i: Any, rank: int, segment: int) -> Any:
    """Return a rank's input for a sum: one or zero, so that the sum over a thousand ranks fits into a byte."""
    return (i + rank + segment) % 8 == 0


def total(i: Any, ranks: int, segment: int) -> Any:
    """Return the sum over all ranks."""
    return (ranks - 1 - (-(i + segment)) % 8) // 8 + 1


def moved(i: Any, rank: int, segment: int) -> Any:
    """Return a rank's input for a collective that moves data."""
    return (i * 7 + rank * 31 + segment * 13) % 101
