"""What is put into buffers, and what must come out: small whole numbers, exact in every data type.

``i`` is the index of an element in its segment: a number, or a tensor of them.
"""

from typing import Any

PERIOD = 808
"""After so many elements every pattern repeats."""


def addend(i: Any, rank: int, segment: int) -> Any:
    """What a rank gives to a sum: one or nothing, so that the sum of a thousand ranks fits into a byte."""
    return (i + rank + segment) % 8 == 0


def total(i: Any, ranks: int, segment: int) -> Any:
    """The sum of all ranks' addends."""
    return (ranks - 1 - (-(i + segment)) % 8) // 8 + 1


def moved(i: Any, rank: int, segment: int) -> Any:
    """What a rank sends to be found as it is."""
    return (i * 7 + rank * 31 + segment * 13) % 101
