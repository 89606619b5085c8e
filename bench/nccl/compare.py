"""``bench compare A B``: compare two records of ``bench nccl``."""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import text
from bench.nccl.comparison import PointComparison, compare, differences, ratio
from bench.nccl.schema import InvalidRecord, Point, Record, load
from bench.nccl.sizes import spelled
from bench.subparsers import Subparsers

WIDTH = 140


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "compare",
        help="compare two records of `nccl`",
        epilog="Exit status: 0; 1 a file cannot be read, no point is in both, or B is slower than allowed.",
    )
    parser.add_argument("first", type=Path, metavar="A")
    parser.add_argument("second", type=Path, metavar="B")
    parser.add_argument(
        "--allow",
        type=float,
        metavar="SHARE",
        help="exit 1 if B is slower by more than this share and by more than the spread, such as 0.05",
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    try:
        first, second = _load(args.first), _load(args.second)
    except InvalidRecord as error:
        sys.stderr.write(f"not compared: {error}\n")
        return 1
    comparisons = compare(first, second)
    if not comparisons:
        sys.stderr.write("not compared: no collective of the same type and size is in both\n")
        return 1
    console = Console(file=sys.stdout, width=WIDTH, highlight=False)
    console.print(table(comparisons, first, second))
    console.print(summary(comparisons), markup=False)
    for difference in differences(first, second):
        console.print(f"differs: {difference}", markup=False)
    return int(args.allow is not None and any(is_worse(comparison, args.allow) for comparison in comparisons))


def is_worse(comparison: PointComparison, allowed: float) -> bool:
    return comparison.verdict == "slower" and comparison.ratio < 1 - allowed


def summary(comparisons: list[PointComparison]) -> str:
    counts = [
        f"{sum(comparison.verdict == verdict for comparison in comparisons)} {verdict}"
        for verdict in ("same", "faster", "slower")
    ]
    return f"B has {ratio(comparisons):.3f} times the bandwidth of A on average; of {len(comparisons)} points {', '.join(counts)}"


def table(comparisons: list[PointComparison], first: Record, second: Record) -> Table:
    """Bus bandwidth of the slowest, the median and the fastest round."""
    shown = Table("collective", "type", "place", title="bus bandwidth, GB/s")
    for name in ("size", "A", "B", "B / A"):
        shown.add_column(name, justify="right")
    shown.add_column("B is")
    for comparison in comparisons:
        point = comparison.first
        shown.add_row(
            point.collective,
            point.dtype,
            "in" if point.in_place else "out",
            spelled(point.size_bytes),
            *(
                _bandwidth(record, side)
                for record, side in ((first, comparison.first), (second, comparison.second))
            ),
            f"{comparison.ratio:.3f}",
            comparison.verdict,
        )
    return shown


def _bandwidth(record: Record, point: Point) -> str:
    ranks = record.world.ranks if record.world else 1
    # One rank has no bus bandwidth; its algorithm bandwidth shows a difference as well.
    return str(point.busbw(ranks)) if ranks > 1 else text(point.algbw_gb_per_second)


def _load(path: Path) -> Record:
    found = load(path)
    if not isinstance(found, Record):
        raise InvalidRecord(f"{path}: not a record of `bench nccl`")
    return found
