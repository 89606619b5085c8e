"""Records as tables, for a terminal and for the page."""

from collections.abc import Mapping, Sequence
from statistics import median

from rich.table import Table

from bench.figures import spread, text
from bench.nccl.report import charts
from bench.nccl.schema import AnyRecord, Overhead, Record, Scaling, Start
from bench.nccl.sizes import spelled

WIDTH = 130
PHASES = {
    "process": "asked for → process of the first rank",
    "torch": "→ torch imported",
    "group": "→ group joined",
    "first": "→ first collective done",
}


def of(made: AnyRecord) -> list[Table]:
    if isinstance(made, Record):
        return [points(made)] if made.points else []
    if isinstance(made, Scaling):
        return [scaling(made)] if made.runs else []
    return [starts(made), ratios(made)]


def points(made: Record) -> Table:
    """Slowest, median and fastest round of each point."""
    ranks = made.world.ranks if made.world else 1
    title = f"{ranks} ranks, {made.carried_by}" + ("" if made.state == "complete" else "; PARTIAL")
    shown = _table(
        title,
        ("collective", "type", "place"),
        ("size", "time of a call, µs", "algbw, GB/s", "busbw, GB/s", "wrong"),
    )
    for one in made.points:
        shown.add_row(
            one.collective,
            one.dtype,
            "in" if one.in_place else "out",
            spelled(one.size_bytes),
            str(one.time_us),
            text(one.algbw_gb_per_second),
            str(one.busbw(ranks)),
            "?" if one.wrong is None else str(one.wrong),
        )
    return shown


def not_measured(made: AnyRecord) -> list[str]:
    """What was asked for and is not among the points, each reason once with its sizes."""
    sizes: dict[str, list[str]] = {}
    for one in made.skipped if isinstance(made, Record) else ():
        words = f"{one.collective} of {one.dtype}, {'in' if one.in_place else 'out of'} place: {one.why}"
        sizes.setdefault(words, []).extend([spelled(one.size_bytes)] if one.size_bytes else [])
    return [words + (f" ({', '.join(found)})" if found else "") for words, found in sizes.items()]


def scaling(made: Scaling) -> Table:
    shown = _table(
        f"{made.model}, {made.batch} images a rank and step; {charts.scaling_note(made) or 'NCCL between GPUs'}",
        ("through",),
        ("nodes", "ranks", "images/s", "efficiency"),
    )
    least = {
        via: min((one for one in made.runs if one.via == via), key=lambda one: one.nodes)
        for via in _vias(made)
    }
    for one in made.runs:
        share = charts.share(one, least[one.via])
        shown.add_row(
            one.via, str(one.nodes), str(one.ranks), str(spread(one.images_per_second)), f"{share:.1%}"
        )
    return shown


def starts(made: Overhead) -> Table:
    """Of the start, what each step takes; the difference is that of the medians."""
    title = f"seconds of a start of {made.asked.nodes} × {made.asked.gpus} ranks; {made.asked.via} against its own starter by hand"
    shown = _table(title, ("step",), ("by hand", "through the operator", "difference"))
    ways = [[one for one in made.starts if one.by_hand == by_hand] for by_hand in (True, False)]
    before = ""
    for stamp, label in PHASES.items():
        _add(shown, label, [[_step(one.stamps, before, stamp) for one in way] for way in ways])
        before = stamp
    _add(shown, "asked for → first collective done", [[one.stamps["first"] for one in way] for way in ways])
    return shown


def ratios(made: Overhead) -> Table:
    """Bandwidth of each run through the operator by that of the run by hand before it."""
    shown = _table(
        "bandwidth through the operator / by hand",
        ("collective", "type"),
        ("size", "ratio of the medians", "spread of single runs"),
    )
    pairs = list(zip(made.starts[::2], made.starts[1::2], strict=False))
    for key in [one.key for one in made.starts[0].points] if made.starts else ():
        found = [_ratio(key, first, second) for first, second in pairs]
        known = [one for one in found if one is not None]
        if known:
            shown.add_row(
                key[0],
                key[1],
                spelled(key[3]),
                f"{median(known):.3f}",
                f"{min(known):.3f} to {max(known):.3f}",
            )
    return shown


def _ratio(key: tuple[str, str, bool, int], first: Start, second: Start) -> float | None:
    times = [{one.key: one.time_us.median for one in start.points}.get(key) for start in (first, second)]
    by_hand, through = times if first.by_hand else reversed(times)
    return by_hand / through if by_hand and through else None


def _step(stamps: Mapping[str, float], before: str, stamp: str) -> float:
    return stamps[stamp] - (stamps[before] if before else 0.0)


def _add(shown: Table, label: str, ways: Sequence[Sequence[float]]) -> None:
    known = [spread(way) if way else None for way in ways]
    by_hand, through = known
    difference = f"{through.median - by_hand.median:+.3g}" if by_hand and through else ""
    shown.add_row(label, *(str(one) if one else "" for one in known), difference)


def _vias(made: Scaling) -> list[str]:
    return list(dict.fromkeys(one.via for one in made.runs))


def _table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    shown = Table(*words, title=title)
    for name in numbers:
        shown.add_column(name, justify="right")
    return shown
