"""The table that the programs of nccl-tests print.

    #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)

Out of place is on the left, in place on the right; N/A stands for what a program does not support.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bench.nccl.schema import Point, Rank, point

TYPES = {
    "float": "float32", "half": "float16", "bfloat16": "bfloat16", "double": "float64",
    "int8": "int8", "uint8": "uint8", "int32": "int32", "int64": "int64",
}  # fmt: skip
"""Data types of nccl-tests → of torch."""
FIGURES = 4
"""Cells of a half: time, algorithm and bus bandwidth, wrong elements."""
_RANK = re.compile(r"#\s+Rank\s+(\d+).*? on\s+(\S+)\s+device\s+(\d+)\s+\[[^\]]*\]\s+(.*)")
_LIBRARY = re.compile(r"nccl-library=(\d+)")


@dataclass(slots=True)
class Table:
    collective: str
    points: list[Point] = field(default_factory=list[Point])
    ranks: list[Rank] = field(default_factory=list[Rank])
    device: str = ""
    nccl: str = ""


def parse(collective: str, lines: Iterable[str], *, ranks: int = 0) -> Table:
    """Parse the lines of a table and ignore all others; ``ranks`` is the number of ranks if the lines list none."""
    table = Table(collective)
    for line in lines:
        if match := _RANK.match(line):
            table.ranks.append(Rank(int(match[1]), int(match[3]), match[2]))
            table.device = match[4].strip()
        elif match := _LIBRARY.search(line):
            table.nccl = version(int(match[1]))
        else:
            table.points += _points(collective, line.split(), len(table.ranks) or ranks)
    return table


def version(code: int) -> str:
    """Return 2.28.3 for 22803; before 2.9 the code had four digits, 2804 for 2.8.4."""
    wide = 10_000 if code >= 10_000 else 1000
    return f"{code // wide}.{code % wide // 100}.{code % 100}"


def _points(collective: str, cells: list[str], ranks: int) -> Iterator[Point]:
    """Return the points of both halves of a row; none for other lines, and for size 0."""
    if (
        len(cells) < 3 + 2 * FIGURES
        or not (cells[0].isdigit() and cells[1].isdigit())
        or cells[2] not in TYPES
    ):
        return
    for in_place, half in ((False, cells[-2 * FIGURES : -FIGURES]), (True, cells[-FIGURES:])):
        time_us, wrong = half[0], half[3]
        if _is_number(time_us) and float(time_us) > 0 and int(cells[0]) > 0:
            yield point(
                collective,
                ranks,
                int(cells[0]),
                [float(time_us)],
                dtype=TYPES[cells[2]],
                in_place=in_place,
                elements=int(cells[1]),
                wrong=int(float(wrong)) if _is_number(wrong) else None,
            )


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False
