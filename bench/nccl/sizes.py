"""Sizes of buffers as text: 8, 64K, 512M, 8G; K is 1024."""

import re

UNITS = {"": 0, "K": 10, "M": 20, "G": 30}
_SIZE = re.compile(r"(\d+)([KMG]?)(?:i?B)?", re.IGNORECASE)


def parse(text: str) -> int:
    """Return the size in bytes. Raises ValueError for other texts, and for 0."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{text!r} is not a size such as 8, 64K, 512M or 8G")
    return int(match[1]) << UNITS[match[2].upper()]


def spelled(size_bytes: int) -> str:
    """Return the shortest exact text."""
    for unit, shift in reversed(UNITS.items()):
        if size_bytes >= 1 << shift and size_bytes % (1 << shift) == 0:
            return f"{size_bytes >> shift}{unit}"
    return str(size_bytes)


def sweep(smallest: int, largest: int, factor: int) -> list[int]:
    """Return sizes from ``smallest`` to at most ``largest``, each ``factor`` times the previous one. Raises ValueError if there is none."""
    if factor < 2:
        raise ValueError("the factor must be at least 2")
    if smallest > largest:
        raise ValueError(f"the smallest size, {spelled(smallest)}, is above the largest, {spelled(largest)}")
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return sizes
