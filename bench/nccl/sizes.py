"""Sizes of buffers as people write them: 8, 64K, 512M, 8G; a K is 1024."""

import re

UNITS = {"": 0, "K": 10, "M": 20, "G": 30}
_SIZE = re.compile(r"(\d+)([KMG]?)(?:i?B)?", re.IGNORECASE)


def parse(text: str) -> int:
    """Raises ValueError for what is no size, 0 among it."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{text!r} is not a size such as 8, 64K, 512M or 8G")
    return int(match[1]) << UNITS[match[2].upper()]


def spelled(size_bytes: int) -> str:
    """The shortest exact form."""
    for unit, shift in reversed(UNITS.items()):
        if size_bytes >= 1 << shift and size_bytes % (1 << shift) == 0:
            return f"{size_bytes >> shift}{unit}"
    return str(size_bytes)


def sweep(smallest: int, largest: int, factor: int) -> list[int]:
    """From the one to the other, each ``factor`` times the one before. Raises ValueError when there is none, or no end."""
    if factor < 2:
        raise ValueError("the factor must be at least 2")
    if smallest > largest:
        raise ValueError(f"the smallest size, {spelled(smallest)}, is above the largest, {spelled(largest)}")
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return sizes
