"""Comparison of two runs with their spread."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Literal

from bench.figures import Spread
from bench.nccl.schema import Point, Record

Verdict = Literal["same", "faster", "slower"]
UNSET = "unset"


@dataclass(frozen=True, slots=True)
class PointComparison:
    """A point of both runs; times are microseconds per call."""

    first: Point
    second: Point
    verdict: Verdict
    """Of the second run; ``same`` if the spreads overlap."""

    @property
    def ratio(self) -> float:
        """Bandwidth of the second run divided by that of the first, from the median times."""
        return self.first.time_us.median / self.second.time_us.median


def compare(first: Record, second: Record) -> list[PointComparison]:
    """Compare all points that both runs have."""
    known = {point.key: point for point in second.points}
    return [
        PointComparison(point, known[point.key], verdict(point.time_us, known[point.key].time_us))
        for point in first.points
        if point.key in known
    ]


def verdict(first: Spread, second: Spread) -> Verdict:
    """Compare two spreads of times; less is faster."""
    if second.smallest > first.largest:
        return "slower"
    return "faster" if second.largest < first.smallest else "same"


def ratio(comparisons: Sequence[PointComparison]) -> float:
    """Return the geometric mean of the ratios. Raises StatisticsError without comparisons."""
    return geometric_mean([comparison.ratio for comparison in comparisons])


def differences(first: Record, second: Record) -> list[str]:
    """List the conditions that differ between the runs, because they may explain a difference in speed."""
    mine, theirs = _run_conditions(first), _run_conditions(second)
    return [
        f"{name}: {mine.get(name, UNSET)} / {theirs.get(name, UNSET)}"
        for name in dict.fromkeys([*mine, *theirs])
        if mine.get(name, UNSET) != theirs.get(name, UNSET)
    ]


def _run_conditions(record: Record) -> dict[str, object]:
    config, world = record.config, record.world
    found: dict[str, object] = {
        name: getattr(config, name)
        for name in (
            "via",
            "backend",
            "nodes",
            "gpus",
            "image",
            "warmup",
            "iterations",
            "rounds",
            "nccl_tests",
            "fault",
        )
    }
    for name in ("ranks", "shared_gpu"):
        found[name] = getattr(world, name) if world else "unknown"
    for fact in ("torch", "cuda", "nccl", "driver", "device"):
        found[fact] = world.values(fact) if world else "unknown"
    nodes = world.nodes if world else []
    for name in sorted({name for node in nodes for name in node.settings}):
        found[name] = ", ".join(dict.fromkeys(node.settings.get(name, UNSET) for node in nodes))
    return found
