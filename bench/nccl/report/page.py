"""A record as one self-contained HTML page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from rich.table import Table

from bench.nccl import slow_pairs
from bench.nccl.report import charts, tables
from bench.nccl.schema import GLOO, AnyRecord, Overhead, Pairs, Record, Scaling
from bench.svg import svg

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


def page(record: AnyRecord) -> str:
    title = _TITLES[type(record)]
    body = "\n".join(_body(title, record))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _body(title: str, record: AnyRecord) -> Iterator[str]:
    yield f"<h1>{title}</h1>"
    yield from (f'<p class="loud">{escape(warning)}</p>' for warning in warnings(record))
    yield _pairs_of_words(_facts(record))
    for chart in charts.build(record):
        yield f"<figure>{svg(chart)}</figure>"
    if isinstance(record, Record) and record.pairs is not None:
        yield from _matrix(record, record.pairs)
    for table in tables.build(record):
        yield f'<div class="scroll">{_table(table)}</div>'
    if isinstance(record, Record):
        yield from _around(record)


def warnings(record: AnyRecord) -> list[str]:
    """List what a reader must know before any figure."""
    words = [f"Partial: {record.why}"] if record.state == "partial" else []
    if isinstance(record, Scaling):
        return [*words, *filter(None, [charts.scaling_note(record)])]
    if isinstance(record, Overhead):
        return [*words, *([GLOO] if record.config.backend == "gloo" else [])]
    fault = record.config.fault
    return [
        *words,
        *([] if record.is_hardware else [f"Not hardware: {record.transport}."]),
        *([f"Injected fault: {fault.kind} on rank {fault.rank}."] if fault else []),
        *(
            slow_pairs.describe(slow_pairs.find(record.pairs, record.ranks), record.ranks)
            if record.pairs
            else []
        ),
    ]


def _facts(record: AnyRecord) -> dict[str, str]:
    """Return the facts in the order of the page, without empty ones."""
    commit, where = record.commit, record.environment
    facts: dict[str, Any] = {"started": record.started}
    if isinstance(record, Record):
        config, world = record.config, record.world
        facts |= {
            "through": config.via, "nodes × ranks": f"{config.nodes} × {config.gpus}", "image": config.image,
            "manifest": config.manifest, "calls": f"{config.warmup} to warm up, {config.rounds} rounds of {config.iterations}",
        }  # fmt: skip
        if world is not None:
            facts |= {
                label: world.values(fact)
                for label, fact in (
                    ("device", "device"), ("NCCL", "nccl"), ("torch", "torch"), ("CUDA", "cuda"), ("driver", "driver"),
                )
            }  # fmt: skip
    facts |= {
        "commit": f"{commit['id'][:12]}{', changed since' if commit['changed'] else ''}",
        "asked from": f"{where['cores']} cores ({where['cpu']}), {where['kernel']}, {where['python']}",
    }
    return {name: str(value) for name, value in facts.items() if value}


def _around(record: Record) -> Iterator[str]:
    if found := tables.not_measured(record):
        yield "<h2>Not measured</h2>"
        yield f"<ul>{''.join(f'<li>{escape(reason)}</li>' for reason in found)}</ul>"
    nodes = record.world.nodes if record.world else []
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


def _matrix(record: Record, pairs: Pairs) -> Iterator[str]:
    """GB/s by rank and other rank; slower cells are redder."""
    best = max(max(row) for row in pairs.gb_per_second) or 1.0
    yield "<h2>Pairs</h2>"
    head = "".join(f"<th>{rank}</th>" for rank in range(len(pairs.gb_per_second)))
    rows = "".join(
        f"<tr><th>{escape(slow_pairs.describe_rank(record.ranks, rank))}</th>"
        + "".join(_cell(value, best, is_self=rank == other) for other, value in enumerate(row))
        + "</tr>"
        for rank, row in enumerate(pairs.gb_per_second)
    )
    caption = "GB/s in one direction, while both directions are active"
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
