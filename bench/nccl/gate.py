"""Whether a run is good enough for what is to follow it."""

from collections.abc import Sequence

from bench.nccl import slow_pairs
from bench.nccl.references import Reference
from bench.nccl.schema import Point, Record
from bench.nccl.sizes import spelled

WITHIN = 0.9
"""Of a reference's bandwidth; others have reached it on other days with other versions."""


def judge(
    record: Record,
    *,
    min_busbw: float | None = None,
    reference: Reference | None = None,
    within: float = WITHIN,
) -> list[str]:
    """What is wrong with it, in words; nothing when all is well. Wrong elements, a partial run and slow pairs always are."""
    problems = [] if record.state == "complete" else [f"the run is partial: {record.why}"]
    problems += [
        f"{one.collective} of {spelled(one.size_bytes)} {one.dtype}: {one.wrong} elements are wrong"
        for one in record.points
        if one.wrong
    ]
    if min_busbw is not None:
        problems += _too_slow(record, min_busbw)
    if reference is not None:
        problems += _below(record, reference, within)
    if record.pairs is not None:
        problems += slow_pairs.told(slow_pairs.find(record.pairs, record.ranks), record.ranks)
    return problems


def peak(points: Sequence[Point]) -> Point | None:
    """The best size of the collective that was measured first."""
    ours = [one for one in points if one.collective == points[0].collective]
    return max(ours, key=lambda one: one.busbw_gb_per_second, default=None)


def _too_slow(record: Record, least: float) -> list[str]:
    best = peak(record.points)
    if best is None:
        return ["no bandwidth was measured"]
    if best.busbw_gb_per_second >= least:
        return []
    words = (
        f"{best.collective} reaches {best.busbw_gb_per_second:.3g} GB/s of bus bandwidth (at {spelled(best.size_bytes)}), "
        f"{least:g} is asked for"
    )
    return [words]


def _below(record: Record, reference: Reference, within: float) -> list[str]:
    """Size by size where both have it, otherwise the best of the one against the best of the other."""
    if not record.is_hardware:
        return [f"it cannot be held against {reference.name}: {record.carried_by}"]
    reduced = [one for one in record.points if one.collective == "all_reduce"]
    wanted = dict(reference.points)
    problems = _fewer(record, reference)
    shared = [one for one in reduced if one.size_bytes in wanted]
    best = peak(reduced)
    if not shared:
        least = within * max(wanted.values())
        return problems + (
            [] if best and best.busbw_gb_per_second >= least else _missed(best, reference, least)
        )
    for one in shared:
        least = within * wanted[one.size_bytes]
        problems += [] if one.busbw_gb_per_second >= least else _missed(one, reference, least)
    return problems


def _missed(one: Point | None, reference: Reference, least: float) -> list[str]:
    if one is None:
        return ["no all_reduce was measured"]
    words = (
        f"all_reduce of {spelled(one.size_bytes)} reaches {one.busbw_gb_per_second:.3g} GB/s of bus bandwidth, "
        f"{least:.3g} is what {reference.name} asks for"
    )
    return [words]


def _fewer(record: Record, reference: Reference) -> list[str]:
    ranks = record.world.ranks if record.world else 0
    return (
        []
        if ranks == reference.gpus
        else [f"it ran on {ranks} GPUs, {reference.name} is of {reference.gpus}"]
    )
