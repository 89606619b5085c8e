"""The charts of a record: lines with their spread."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median

from bench.figures import Spread, spread
from bench.nccl.references import REFERENCES
from bench.nccl.schema import AnyRecord, Overhead, Point, Record, Scaling, ScalingRun
from bench.nccl.sizes import spelled
from bench.svg import Chart, Dot, Line


def size_name(size_bytes: float) -> str:
    return spelled(int(size_bytes))


def build(record: AnyRecord) -> list[Chart]:
    """Return the charts that have data."""
    if isinstance(record, Record):
        # One rank has no bus bandwidth.
        charts = [*([bandwidth(record)] if record.world and record.world.ranks > 1 else []), latency(record)]
    elif isinstance(record, Scaling):
        charts = [throughput(record), efficiency(record)]
    else:
        charts = [manual_comparison(record)]
    return [chart for chart in charts if any(line.dots for line in chart.lines)]


def bandwidth(record: Record) -> Chart:
    """Add references only to hardware bandwidths of all_reduce."""
    ranks = record.world.ranks if record.world else 1
    lines = [
        Line(label, tuple(_dot(point.size_bytes, point.busbw(ranks)) for point in points))
        for label, points in _by_case(record.points)
    ]
    if record.is_hardware and any(point.collective == "all_reduce" for point in record.points):
        lines += references()
    title = "Bus bandwidth over size" if record.is_hardware else "Bandwidth over size, not of hardware"
    return Chart(
        title, "GB/s", tuple(lines), x_name=size_name, note="" if record.is_hardware else record.transport
    )


def latency(record: Record) -> Chart:
    lines = tuple(
        Line(label, tuple(_dot(point.size_bytes, point.time_us) for point in points))
        for label, points in _by_case(record.points)
    )
    return Chart(
        "Time of a call over size",
        "µs",
        lines,
        x_name=size_name,
        logarithmic=True,
        note="" if record.is_hardware else record.transport,
    )


def throughput(record: Scaling) -> Chart:
    """With the linear extrapolation of the smallest number of nodes."""
    lines: list[Line] = []
    for via, runs in _by_via(record.runs):
        fewest = runs[0]
        each = median(fewest.images_per_second) / fewest.nodes
        lines += [
            Line(via, tuple(_dot(run.nodes, spread(run.images_per_second)) for run in runs)),
            Line(
                f"{via}, nothing lost",
                tuple(_flat(run.nodes, each * run.nodes) for run in runs),
                is_reference=True,
            ),
        ]
    return Chart(
        "Images per second over nodes", "images/s", tuple(lines), x="nodes", note=scaling_note(record)
    )


def efficiency(record: Scaling) -> Chart:
    lines = tuple(
        Line(via, tuple(_flat(run.nodes, 100 * share(run, runs[0])) for run in runs))
        for via, runs in _by_via(record.runs)
    )
    return Chart("Scaling efficiency over nodes", "%", lines, x="nodes", note=scaling_note(record))


def manual_comparison(record: Overhead) -> Chart:
    """Each dot: the smallest, the median and the largest bandwidth of the runs."""
    lines: list[Line] = []
    for manual, way in ((True, "by hand"), (False, "through the operator")):
        found = [point for start in record.starts if start.manual == manual for point in start.points]
        for label, points in _by_case(found):
            sizes: dict[int, list[float]] = {}
            for point in points:
                sizes.setdefault(point.size_bytes, []).append(point.algbw_gb_per_second)
            dots = tuple(_dot(size, spread(reached)) for size, reached in sorted(sizes.items()))
            lines.append(Line(f"{label}, {way}", dots))
    return Chart(
        "Algorithm bandwidth over size, by starter of the ranks", "GB/s", tuple(lines), x_name=size_name
    )


def references() -> list[Line]:
    """Return the references; one with a single point is a horizontal line."""
    return [
        Line(
            reference.label,
            tuple(_flat(size, value) for size, value in _level(reference.points)),
            is_reference=True,
        )
        for reference in REFERENCES.values()
    ]


def share(run: ScalingRun, fewest: ScalingRun) -> float:
    """Return the rate relative to a linear extrapolation of the fewest nodes."""
    return (median(run.images_per_second) / run.nodes) / (median(fewest.images_per_second) / fewest.nodes)


def scaling_note(record: Scaling) -> str:
    if record.backend == "gloo":
        return "gloo between CPUs: these figures are not those of GPUs"
    return "several ranks share a GPU: these figures do not show scaling" if record.share_gpu else ""


def _level(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    return points if len(points) > 1 else ((points[0][0] // 16, points[0][1]), points[0])


def _by_case(points: Sequence[Point]) -> Iterator[tuple[str, list[Point]]]:
    """Group points by collective, data type and place, in the order of measurement."""
    types, cases = {point.dtype for point in points}, dict[tuple[str, str, bool], list[Point]]()
    for point in points:
        cases.setdefault((point.collective, point.dtype, point.in_place), []).append(point)
    for (collective, dtype, in_place), found in cases.items():
        both = (collective, dtype, not in_place) in cases
        words = [
            collective,
            dtype if len(types) > 1 else "",
            ("in place" if in_place else "out of place") if both else "",
        ]
        yield ", ".join(filter(None, words)), found


def _by_via(runs: Sequence[ScalingRun]) -> Iterator[tuple[str, list[ScalingRun]]]:
    for via, found in groupby(sorted(runs, key=lambda run: (run.via, run.nodes)), key=lambda run: run.via):
        yield via, list(found)


def _dot(x: float, found: Spread) -> Dot:
    return Dot(x, found.smallest, found.median, found.largest)


def _flat(x: float, y: float) -> Dot:
    """Return a dot without a spread."""
    return Dot(x, y, y, y)
