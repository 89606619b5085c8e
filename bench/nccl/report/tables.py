"""Records as tables, for a terminal and the page."""

from collections.abc import Mapping, Sequence
from statistics import median

from rich.table import Table

from bench.figures import spread, text
from bench.nccl.report import charts
from bench.nccl.schema import AnyRecord, Overhead, Record, Scaling, Start
from bench.nccl.sizes import spelled

WIDTH = 130
PHASES = {
    "process": "start → process of the first rank",
    "torch": "→ torch imported",
    "group": "→ group joined",
    "first": "→ first collective done",
}


def build(record: AnyRecord) -> list[Table]:
    if isinstance(record, Record):
        return [points(record)] if record.points else []
    if isinstance(record, Scaling):
        return [scaling(record)] if record.runs else []
    return [starts(record), ratios(record)]


def points(record: Record) -> Table:
    """The slowest, the median and the fastest round of each point."""
    ranks = record.world.ranks if record.world else 1
    title = f"{ranks} ranks, {record.transport}" + ("" if record.state == "complete" else "; PARTIAL")
    shown = _table(
        title,
        ("collective", "type", "place"),
        ("size", "time of a call, µs", "algbw, GB/s", "busbw, GB/s", "wrong"),
    )
    for point in record.points:
        shown.add_row(
            point.collective,
            point.dtype,
            "in" if point.in_place else "out",
            spelled(point.size_bytes),
            str(point.time_us),
            text(point.algbw_gb_per_second),
            str(point.busbw(ranks)),
            "?" if point.wrong is None else str(point.wrong),
        )
    return shown


def not_measured(record: AnyRecord) -> list[str]:
    """List the requested points that are missing, each reason once with its sizes."""
    sizes: dict[str, list[str]] = {}
    for skipped in record.skipped if isinstance(record, Record) else ():
        words = f"{skipped.collective} of {skipped.dtype}, {'in' if skipped.in_place else 'out of'} place: {skipped.why}"
        sizes.setdefault(words, []).extend([spelled(skipped.size_bytes)] if skipped.size_bytes else [])
    return [words + (f" ({', '.join(found)})" if found else "") for words, found in sizes.items()]


def scaling(record: Scaling) -> Table:
    shown = _table(
        f"{record.model}, {record.batch} images per rank and step; {charts.scaling_note(record) or 'NCCL between GPUs'}",
        ("through",),
        ("nodes", "ranks", "images/s", "efficiency"),
    )
    fewest = {
        via: min((run for run in record.runs if run.via == via), key=lambda run: run.nodes)
        for via in _vias(record)
    }
    for run in record.runs:
        share = charts.share(run, fewest[run.via])
        shown.add_row(
            run.via, str(run.nodes), str(run.ranks), str(spread(run.images_per_second)), f"{share:.1%}"
        )
    return shown


def starts(record: Overhead) -> Table:
    """Duration of each step of a start; the difference is that of the medians."""
    title = f"start of {record.config.nodes} × {record.config.gpus} ranks in seconds; {record.config.via} and its starter by hand"
    shown = _table(title, ("step",), ("by hand", "through the operator", "difference"))
    ways = [[start for start in record.starts if start.manual == manual] for manual in (True, False)]
    before = ""
    for stamp, label in PHASES.items():
        _add(shown, label, [[_step(start.timestamps, before, stamp) for start in way] for way in ways])
        before = stamp
    _add(
        shown,
        "start → first collective done",
        [[start.timestamps["first"] for start in way] for way in ways],
    )
    return shown


def ratios(record: Overhead) -> Table:
    """Ratio of each run through the operator to its run by hand."""
    shown = _table(
        "bandwidth through the operator / by hand",
        ("collective", "type"),
        ("size", "ratio of the medians", "spread of single runs"),
    )
    pairs = list(zip(record.starts[::2], record.starts[1::2], strict=False))
    for key in [point.key for point in record.starts[0].points] if record.starts else ():
        found = [_ratio(key, first, second) for first, second in pairs]
        known = [value for value in found if value is not None]
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
    times = [
        {point.key: point.time_us.median for point in start.points}.get(key) for start in (first, second)
    ]
    manual, through = times if first.manual else reversed(times)
    return manual / through if manual and through else None


def _step(timestamps: Mapping[str, float], before: str, stamp: str) -> float:
    return timestamps[stamp] - (timestamps[before] if before else 0.0)


def _add(shown: Table, label: str, ways: Sequence[Sequence[float]]) -> None:
    known = [spread(way) if way else None for way in ways]
    manual, through = known
    difference = f"{through.median - manual.median:+.3g}" if manual and through else ""
    shown.add_row(label, *(str(value) if value else "" for value in known), difference)


def _vias(record: Scaling) -> list[str]:
    return list(dict.fromkeys(run.via for run in record.runs))


def _table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    shown = Table(*words, title=title)
    for name in numbers:
        shown.add_column(name, justify="right")
    return shown
