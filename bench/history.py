"""``bench history``: the recorded runs by commit, as a page with charts."""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench import record
from bench.controlplane import comparison_report, targets
from bench.controlplane.audit import status_writes
from bench.controlplane.comparison import LOADER
from bench.controlplane.operators import GO
from bench.figures import spread, text
from bench.subparsers import Subparsers
from bench.svg import Chart, Dot, Line, svg

PAGE = record.ROOT / "docs" / "explanation" / "performance-history.md"
IMAGES = record.ROOT / "docs" / "images"
CASES = ("1x1", "1x8", "1x64", "1x256", "100x8", "500x2", "200x2-quick", "1x64-mpi", "50x8-mpi")
"""The scenarios of the page, with default flags."""
DRAWN = ("1x64", "1x256", "100x8", "500x2", "50x8-mpi")
"""Those of the charts."""
SHORT = 7
"""Length of a commit's ID."""
_RECORD = re.compile(r"(\d{4}-\d\d-\d\d)-(?:controlplane|comparison)(?:-(\d+))?\.json")
STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1d2233}"
    ".title{font-size:15px;font-weight:600}.grid{stroke:#d5d8e5}.spread{opacity:.18}"
)


@dataclass(slots=True)
class Point:
    """What was measured of a case at a commit, in all records of that commit."""

    over_loader: list[float] = field(default_factory=list[float])
    over_go: list[float] = field(default_factory=list[float])
    cpu_per_pod_ms: list[float] = field(default_factory=list[float])
    status_writes_per_job: list[float] = field(default_factory=list[float])


@dataclass(slots=True)
class Commit:
    """A measured commit, with the day of its first record."""

    id: str
    day: str
    cases: dict[str, Point] = field(default_factory=dict[str, Point])

    @property
    def name(self) -> str:
        return self.id[:SHORT]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "history", help="write the page of the recorded runs of controlplane by commit, with its charts"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail unless the page and the charts are up to date",
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 with ``--check`` if a file is not up to date."""
    written = files(commits(records()))
    stale = [path for path, content in written.items() if not path.is_file() or path.read_text() != content]
    left_over = [path for path in IMAGES.glob("history-*.svg") if path not in written]
    for path in left_over:
        if not args.check:
            path.unlink()
    for path in [*stale, *left_over] if args.check else stale:
        name = path.relative_to(record.ROOT)
        if args.check:
            sys.stderr.write(f"{name} is not up to date: run python -m bench history\n")
        else:
            path.write_text(written[path])
            print(name)
    return 1 if args.check and (stale or left_over) else 0


def records(folder: Path = record.RESULTS) -> list[tuple[str, Any]]:
    """Return the day and the content of the records that have cases of jobs, oldest first."""
    found = [(match, path) for path in folder.iterdir() if (match := _RECORD.fullmatch(path.name))]
    found.sort(key=lambda entry: (entry[0][1], "comparison" in entry[1].name, int(entry[0][2] or 1)))
    read = [(match[1], record.read(path)) for match, path in found]
    return [(day, content) for day, content in read if "cases" in content]


def commits(found: Sequence[tuple[str, Any]]) -> list[Commit]:
    """Return the commits in the order of their first record; changed working trees and other flags are left out."""
    by_id: dict[str, Commit] = {}

    def point(day: str, commit: str, case: str) -> Point:
        measured = by_id.setdefault(commit, Commit(commit, day))
        return measured.cases.setdefault(case, Point())

    for day, content in found:
        for result in content["cases"]:
            case = result["case"].removesuffix(" full")
            if case not in CASES:
                continue
            for commit, name in measured_commits(content):
                _add(point(day, commit, case), result, name)
    return list(by_id.values())


def measured_commits(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each commit of a record with the name of its operator, which is empty unless several were compared."""
    if "operators" in content:
        for name, facts in content["operators"].items():
            if "commit" in facts and not facts["commit"]["changed"] and not facts["flags"]:
                yield facts["commit"]["id"], name
    elif not content["commit"]["changed"] and not content.get("controller_flags"):
        yield content["commit"]["id"], ""


def _add(point: Point, result: Mapping[str, Any], name: str) -> None:
    if not name:
        runs = result["runs"]
        point.over_loader += targets.ratios(result, "create_to_running_ms", "create_to_pods_running_ms")
    else:
        runs = result["operators"].get(name, ())
        figure = "create_to_succeeded_ms" if result["case"].endswith("-quick") else "create_to_running_ms"
        point.over_loader += comparison_report.ratios(result, name, LOADER, figure)
        point.over_go += comparison_report.ratios(result, name, GO, figure)
    point.cpu_per_pod_ms += [run["controller_cpu_per_pod_ms"] for run in runs]
    jobs = int(result["case"].partition("x")[0])
    point.status_writes_per_job += [status_writes(run["calls_by_kind"]) / jobs for run in runs]


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure of the page and of a chart."""

    key: str
    heading: str
    title: str
    unit: str
    read: Callable[[Point], list[float]]


_FIGURES = (
    _Figure(
        "loader",
        "÷ loader",
        "Time until all jobs are Running, relative to the bare loader",
        "× loader",
        lambda point: point.over_loader,
    ),
    _Figure(
        "go",
        "÷ Go operators",
        "Time until all jobs are Running, relative to the tuned Go operators",
        "× Go",
        lambda point: point.over_go,
    ),
    _Figure(
        "cpu", "CPU per pod, ms", "CPU of the operator per pod", "ms", lambda point: point.cpu_per_pod_ms
    ),
    _Figure(
        "writes",
        "status writes per job",
        "Writes of a job's status",
        "writes",
        lambda point: point.status_writes_per_job,
    ),
)


def files(measured: Sequence[Commit]) -> dict[Path, str]:
    """Return the page and its charts. Raises ValueError without records."""
    if not measured:
        raise ValueError("there are no records of controlplane")
    drawn = {figure: chart(figure, measured) for figure in _FIGURES}
    images = {
        figure: (IMAGES / f"history-{figure.key}.svg", picture(found))
        for figure, found in drawn.items()
        if found is not None
    }
    return {
        PAGE: page(measured, {figure: path for figure, (path, _) in images.items()}),
        **dict(images.values()),
    }


def chart(figure: _Figure, measured: Sequence[Commit]) -> Chart | None:
    """Return a line for each drawn case through the commits where it was measured; None if there are none."""
    lines = [
        Line(
            case,
            tuple(
                _dot(index, values)
                for index, commit in enumerate(measured)
                if case in commit.cases and (values := figure.read(commit.cases[case]))
            ),
        )
        for case in DRAWN
    ]
    lines = [line for line in lines if line.dots]
    if not lines:
        return None
    return Chart(
        figure.title,
        figure.unit,
        tuple(lines),
        x="commit, in the order of measurement",
        x_name=lambda x: measured[int(x)].name,
        is_x_logarithmic=False,
    )


def _dot(x: int, values: Sequence[float]) -> Dot:
    found = spread(values)
    return Dot(float(x), found.smallest, found.median, found.largest)


def picture(chart: Chart) -> str:
    """Return the chart as a file of its own: with its style and a background, which a page would give."""
    title, end, rest = svg(chart).partition("</title>\n")
    background = '<rect width="100%" height="100%" rx="12" fill="#ffffff"/>'
    return f"{title}{end}<style>{STYLE}</style>\n{background}\n{rest}\n"


def page(measured: Sequence[Commit], images: Mapping[_Figure, Path]) -> str:
    """Return the page as Markdown."""
    pictures = "\n\n".join(
        f"![{figure.title}, by commit]({Path('..', 'images', path.name).as_posix()})"
        for figure, path in images.items()
    )
    rows = [
        f"| `{commit.name}` | {commit.day} | {case} | {_rounds(commit.cases[case])} | "
        + " | ".join(_cell(figure.read(commit.cases[case])) for figure in _FIGURES)
        + " |"
        for commit in reversed(measured)
        for case in CASES
        if case in commit.cases
    ]
    return f"""# Performance by commit

<!-- Generated by `python -m bench history` from bench/results; do not edit. -->

Medians of the recorded runs of [`bench controlplane`](../../bench/README.md#controlplane) with default flags, by commit; the bands of the charts and the values in parentheses are the smallest and the largest run. [Performance](performance.md) has the newest figures and what limits them.

Absolute times depend on the machine and its load, so that the page has ratios of runs of the same round: to a bare loader that creates the same objects, and to the [tuned Go operators](performance.md#compare-with-the-go-operators). A record of one run has no spread.

{pictures}

| commit | recorded | case | runs | {" | ".join(figure.heading for figure in _FIGURES)} |
|---|---|---|---|{"---|" * len(_FIGURES)}
{chr(10).join(rows)}
"""


def _rounds(point: Point) -> int:
    return len(point.cpu_per_pod_ms)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    found = spread(values)
    if found.smallest == found.largest:
        return text(median(values))
    return f"{text(found.median)} ({text(found.smallest)} to {text(found.largest)})"
