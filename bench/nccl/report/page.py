"""A record as one HTML page that needs nothing but itself."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from rich.table import Table

from bench.nccl import slow_pairs
from bench.nccl.report import charts, tables
from bench.nccl.report.svg import svg
from bench.nccl.schema import GLOO, AnyRecord, Overhead, Pairs, Record, Scaling

STYLE = """
:root { color-scheme: light dark; --line: #8884; --quiet: #777; --loud: #b91c1c; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem } h3 { font-size: 1rem }
table { border-collapse: collapse; margin: .5rem 0 } td, th { border: 1px solid var(--line); padding: .15rem .5rem; text-align: right }
td:first-child, th:first-child { text-align: left } caption { text-align: left; color: var(--quiet) }
.scroll { overflow-x: auto } .loud { color: var(--loud); font-weight: 600 } .quiet { color: var(--quiet) }
.chart { width: 100%; height: auto } .chart text { font: 12px system-ui, sans-serif; fill: currentColor }
.chart .title { font-size: 14px; font-weight: 600 } .chart .grid { stroke: var(--line) } .chart .spread { opacity: .18 }
pre { overflow-x: auto; border: 1px solid var(--line); padding: .5rem; font-size: 12px }
"""
_TITLES: dict[type[AnyRecord], str] = {
    Record: "Collectives",
    Scaling: "Scaling over nodes",
    Overhead: "What the operator costs",
}


def page(made: AnyRecord) -> str:
    title = _TITLES[type(made)]
    body = "\n".join(_body(title, made))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _body(title: str, made: AnyRecord) -> Iterator[str]:
    yield f"<h1>{title}</h1>"
    yield from (f'<p class="loud">{escape(one)}</p>' for one in warnings(made))
    yield _pairs_of_words(_facts(made))
    for chart in charts.of(made):
        yield f"<figure>{svg(chart)}</figure>"
    if isinstance(made, Record) and made.pairs is not None:
        yield from _matrix(made, made.pairs)
    for table in tables.of(made):
        yield f'<div class="scroll">{_table(table)}</div>'
    if isinstance(made, Record):
        yield from _around(made)


def warnings(made: AnyRecord) -> list[str]:
    """What a reader must know before any figure."""
    words = [f"Partial: {made.why}"] if made.state == "partial" else []
    if isinstance(made, Scaling):
        return [*words, *filter(None, [charts.scaling_note(made)])]
    if isinstance(made, Overhead):
        return [*words, *([GLOO] if made.asked.backend == "gloo" else [])]
    drill = made.asked.drill
    return [
        *words,
        *([] if made.is_hardware else [f"Not hardware: {made.carried_by}."]),
        *([f"A drill: {drill.kind} on rank {drill.rank}, on purpose."] if drill else []),
        *(slow_pairs.told(slow_pairs.find(made.pairs, made.ranks), made.ranks) if made.pairs else []),
    ]


def _facts(made: AnyRecord) -> dict[str, str]:
    """In the order of the page; empty ones are left out."""
    commit, where = made.commit, made.environment
    facts: dict[str, Any] = {"started": made.started}
    if isinstance(made, Record):
        asked, world = made.asked, made.world
        facts |= {
            "through": asked.via, "nodes × ranks": f"{asked.nodes} × {asked.gpus}", "image": asked.image,
            "manifest": asked.manifest, "calls": f"{asked.warmup} to warm up, {asked.rounds} rounds of {asked.iterations}",
        }  # fmt: skip
        if world is not None:
            facts |= {
                label: world.said(fact)
                for label, fact in (
                    ("device", "device"), ("NCCL", "nccl"), ("torch", "torch"), ("CUDA", "cuda"), ("driver", "driver"),
                )
            }  # fmt: skip
    facts |= {
        "commit": f"{commit['id'][:12]}{', changed since' if commit['changed'] else ''}",
        "asked from": f"{where['cores']} cores ({where['cpu']}), {where['kernel']}, {where['python']}",
    }
    return {name: str(value) for name, value in facts.items() if value}


def _around(made: Record) -> Iterator[str]:
    if found := tables.not_measured(made):
        yield "<h2>Not measured</h2>"
        yield f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in found)}</ul>"
    nodes = made.world.nodes if made.world else []
    for node in nodes:
        if len(nodes) > 1:
            yield f"<h2>{escape(', '.join(node.hosts))}</h2>"
        for title, words in (
            ("Settings", node.settings),
            ("NVLink", node.nvlink),
            ("InfiniBand", node.infiniband),
        ):
            if words:
                yield f"<h3>{title}</h3>{_pairs_of_words(words)}"
        if node.topology:
            yield f"<h3>Topology</h3><pre>{escape(node.topology)}</pre>"


def _matrix(made: Record, pairs: Pairs) -> Iterator[str]:
    """GB/s by rank and by the other rank; the slower, the redder."""
    best = max(max(row) for row in pairs.gb_per_second) or 1.0
    yield "<h2>Pairs</h2>"
    head = "".join(f"<th>{rank}</th>" for rank in range(len(pairs.gb_per_second)))
    rows = "".join(
        f"<tr><th>{escape(slow_pairs.who(made.ranks, rank))}</th>"
        + "".join(_cell(value, best, is_self=rank == other) for other, value in enumerate(row))
        + "</tr>"
        for rank, row in enumerate(pairs.gb_per_second)
    )
    caption = "GB/s in one direction, both being under way"
    yield f'<div class="scroll"><table><caption>{caption}</caption><tr><th></th>{head}</tr>{rows}</table></div>'


def _cell(value: float, best: float, *, is_self: bool) -> str:
    if is_self:
        return "<td></td>"
    return f'<td style="background: hsl({120 * value / best:.0f} 60% 50% / .35)">{value:.3g}</td>'


def _pairs_of_words(words: Mapping[str, str]) -> str:
    rows = "".join(
        f'<tr><th>{escape(name)}</th><td style="text-align: left">{escape(value)}</td></tr>'
        for name, value in words.items()
    )
    return f"<table>{rows}</table>"


def _table(table: Table) -> str:
    head = _row("th", [str(column.header) for column in table.columns])
    cells: Iterable[Sequence[Any]] = zip(*(column.cells for column in table.columns), strict=True)
    rows = "".join(_row("td", [str(cell) for cell in row]) for row in cells)
    caption = f"<caption>{escape(str(table.title))}</caption>" if table.title else ""
    return f"<table>{caption}{head}{rows}</table>"


def _row(cell: str, words: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{cell}>{escape(word)}</{cell}>' for word in words)}</tr>"
