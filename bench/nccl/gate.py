"""Checks whether a run is good enough to start training."""

from collections.abc import Sequence

from bench.nccl import slow_pairs
from bench.nccl.references import Reference
from bench.nccl.schema import Point, Record
from bench.nccl.sizes import spelled

DEFAULT_SHARE = 0.9
"""Required share of a reference's bandwidth: it was measured with other versions."""


def find_problems(
    record: Record,
    *,
    min_busbw: float | None = None,
    reference: Reference | None = None,
    within: float = DEFAULT_SHARE,
) -> list[str]:
    """Describe what is wrong with a run; empty if nothing is. Wrong elements, a partial run and slow pairs always are."""
    problems = [] if record.state == "complete" else [f"the run is partial: {record.why}"]
    problems += [
        f"{point.collective} of {spelled(point.size_bytes)} {point.dtype}: {point.wrong} elements are wrong"
        for point in record.points
        if point.wrong
    ]
    if min_busbw is not None:
        problems += _too_slow(record, min_busbw)
    if reference is not None:
        problems += _below_reference(record, reference, within)
    if record.pairs is not None:
        problems += slow_pairs.describe(slow_pairs.find(record.pairs, record.ranks), record.ranks)
    return problems


def peak(points: Sequence[Point]) -> Point | None:
    """Return the best size of the collective that was measured first."""
    same = [point for point in points if point.collective == points[0].collective]
    return max(same, key=lambda point: point.busbw_gb_per_second, default=None)


def _too_slow(record: Record, minimum: float) -> list[str]:
    best = peak(record.points)
    if best is None:
        return ["no bandwidth was measured"]
    if best.busbw_gb_per_second >= minimum:
        return []
    words = (
        f"{best.collective} reaches {best.busbw_gb_per_second:.3g} GB/s of bus bandwidth (at {spelled(best.size_bytes)}), "
        f"required are {minimum:g}"
    )
    return [words]


def _below_reference(record: Record, reference: Reference, within: float) -> list[str]:
    """Compare size by size where both have it, otherwise best with best."""
    if not record.is_hardware:
        return [f"cannot be compared with {reference.name}: {record.transport}"]
    reduced = [point for point in record.points if point.collective == "all_reduce"]
    wanted = dict(reference.points)
    problems = _rank_count_problem(record, reference)
    shared = [point for point in reduced if point.size_bytes in wanted]
    best = peak(reduced)
    if not shared:
        minimum = within * max(wanted.values())
        return problems + (
            [] if best and best.busbw_gb_per_second >= minimum else _shortfall(best, reference, minimum)
        )
    for point in shared:
        minimum = within * wanted[point.size_bytes]
        problems += [] if point.busbw_gb_per_second >= minimum else _shortfall(point, reference, minimum)
    return problems


def _shortfall(point: Point | None, reference: Reference, minimum: float) -> list[str]:
    if point is None:
        return ["no all_reduce was measured"]
    words = (
        f"all_reduce of {spelled(point.size_bytes)} reaches {point.busbw_gb_per_second:.3g} GB/s of bus bandwidth, "
        f"{reference.name} requires {minimum:.3g}"
    )
    return [words]


def _rank_count_problem(record: Record, reference: Reference) -> list[str]:
    ranks = record.world.ranks if record.world else 0
    return (
        []
        if ranks == reference.gpus
        else [f"the run had {ranks} GPUs, {reference.name} has {reference.gpus}"]
    )
