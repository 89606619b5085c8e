"""Draws a dashboard with the data of its queries as SVG, about as Grafana shows it, for the documentation."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

from tests.support.monitoring.prometheus import Series

Object = dict[str, Any]
Data = Sequence[tuple[str, list[Series]]]
"""Of a panel: the name of the series of each query, and the series."""

_COLUMN, _LINE, _GAP = 50, 22, 4
"""Pixels of a column and of a unit of height, and between panels."""
_COLORS = ("#56a64b", "#3274d9", "#e0b400", "#e02f44", "#8f3bb8", "#ff780a", "#37872d", "#1f60c4")
_NAMED = dict(zip(("green", "blue", "yellow", "red", "purple", "orange"), _COLORS, strict=False)) | {
    "light-blue": "#8ab8ff"
}
"""Grafana's names of colors."""
_MOST_NAMES = 4
_MOST_ROWS = 6
_SCALES = {
    "bytes": ((2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (1, " B")),
    "Bps": ((1e9, " GB/s"), (1e6, " MB/s"), (1e3, " kB/s"), (1, " B/s")),
    "mbytes": ((1024, " GiB"), (1, " MiB")),
    "s": ((3600, " h"), (60, " min"), (1, " s"), (1e-3, " ms"), (1e-6, " µs")),
    "percentunit": ((0.01, "%"),),
    "percent": ((1, "%"),),
    "watt": ((1, " W"),),
    "celsius": ((1, " °C"),),
    "ops": ((1, "/s"),),
    "reqps": ((1, "/s"),),
}
_STYLE = (
    "text{font:11px sans-serif;fill:#444}.t{font-weight:600;fill:#222}.r{font-weight:600;font-size:13px}"
    ".v{font-size:26px;font-weight:600}.p{fill:#fff;stroke:#ddd}.g{stroke:#eee}path{fill:none;stroke-width:1.3}"
)


class _Box(NamedTuple):
    x: int
    y: int
    width: int
    height: int


def picture(dashboard: Object, data: Sequence[Data]) -> str:
    """Return the SVG of a dashboard; ``data`` is in the order of its panels."""
    panels = dashboard["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * _LINE
    width = 24 * _COLUMN
    body = "".join(part for panel, found in zip(panels, data, strict=True) for part in _panel(panel, found))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        f"<title>{escape(dashboard['title'])}</title><style>{_STYLE}</style>"
        f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>{body}</svg>\n'
    )


def _panel(panel: Object, data: Data) -> Iterator[str]:
    place = panel["gridPos"]
    x, y = place["x"] * _COLUMN, place["y"] * _LINE
    if panel["type"] == "row":
        yield f'<text class="r" x="{x + 8}" y="{y + 16}">▾ {escape(panel["title"])}</text>'
        return
    box = _Box(x + _GAP // 2, y + _GAP // 2, place["w"] * _COLUMN - _GAP, place["h"] * _LINE - _GAP)
    yield f'<rect class="p" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"/>'
    yield _text(box.x + 8, box.y + 16, panel["title"], "t")
    inner = _Box(box.x + 8, box.y + 26, box.width - 16, box.height - 34)
    unit = panel["fieldConfig"]["defaults"]["unit"]
    named = [(_name(legend, series), series) for legend, found in data for series in found if series.points]
    match panel["type"]:
        case "stat":
            for at, (_, series) in enumerate(named[:2]):
                value = _formatted(series.points[-1][1], unit)
                yield _text(inner.x + inner.width * at // 2, inner.y + 32, value, "v")
        case "table":
            yield from _table(panel, inner, [series for _, series in named])
        case _:
            yield from _graph(panel, inner, named, unit)


def _graph(panel: Object, box: _Box, named: list[tuple[str, Series]], unit: str) -> Iterator[str]:
    is_stacked = panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    names_height = 15 * -(-min(len(named), _MOST_NAMES) // 2)
    plot = _Box(box.x + 46, box.y, box.width - 46, box.height - names_height - 6)
    times = sorted({at for _, series in named for at, _ in series.points})
    if not times:
        return
    base = dict.fromkeys(times, 0.0)
    lines: list[list[tuple[float, float]]] = []
    for _, series in named:
        if is_stacked:
            for at, value in series.points:
                base[at] += value
            lines.append([(at, base[at]) for at, _ in series.points])
        else:
            lines.append(series.points)
    top = _rounded_up(max([value for line in lines for _, value in line]))
    span = max(times[-1] - times[0], 1.0)
    for part in range(4):
        y = plot.y + plot.height * part // 3
        yield f'<path class="g" d="M{plot.x} {y}h{plot.width}"/>'
        yield _text(box.x, y + 4, _formatted(top * (3 - part) / 3, unit))
    fixed = {
        override["matcher"]["options"]: override["properties"][0]["value"]["fixedColor"]
        for override in panel["fieldConfig"]["overrides"]
    }
    colors = [
        _NAMED.get(fixed[name], fixed[name]) if name in fixed else _COLORS[at % len(_COLORS)]
        for at, (name, _) in enumerate(named)
    ]
    for at, line in enumerate(lines):
        places = [
            (
                round(plot.x + (when - times[0]) / span * plot.width),
                round(plot.y + (1 - min(max(value / top, 0), 1)) * plot.height),
            )
            for when, value in line
        ]
        yield f'<path stroke="{colors[at]}" d="{_path(places)}"/>'
    for at, (name, _) in enumerate(named[:_MOST_NAMES]):
        x, y = box.x + box.width // 2 * (at % 2), box.y + box.height - names_height + 12 + 15 * (at // 2)
        yield f'<path stroke="{colors[at]}" stroke-width="3" d="M{x} {y - 4}h10"/>'
        more = f" (and {len(named) - at - 1} more)" if at + 1 == _MOST_NAMES < len(named) else ""
        yield _text(x + 14, y, _cut(name + more, box.width // 2 - 14))


def _path(places: list[tuple[int, int]]) -> str:
    """Return a line in relative steps; a step back would be a gap, and there is none."""
    steps = [
        f"{x - before_x} {y - before_y}"
        for (before_x, before_y), (x, y) in pairwise(places)
        if (x, y) != (before_x, before_y)
    ]
    return f"M{places[0][0]} {places[0][1]}l{' '.join(steps) or '1 0'}"


def _table(panel: Object, box: _Box, series: list[Series]) -> Iterator[str]:
    """Draw the last values; one label may become columns."""
    last = max((item.points[-1][0] for item in series), default=0.0)
    series = [item for item in series if item.points[-1][0] == last]
    (change,) = panel["transformations"]
    options = change["options"]
    if change["id"] == "groupingToMatrix":
        column, row = options["columnField"], options["rowField"]
        heads = sorted({item.labels[column] for item in series})
        cells = {(item.labels[row], item.labels[column]): item.points[-1][1] for item in series}
        rows = [
            [name, *(f"{cells[name, head]:g}" if (name, head) in cells else "" for head in heads)]
            for name in sorted({name for name, _ in cells})
        ]
        table = [[row, *heads], *rows]
    else:
        order, amount = options["indexByName"], options["renameByName"].get("Value")
        heads = sorted({label for item in series for label in item.labels}, key=order.__getitem__)
        table = [
            [*heads, *([amount] if amount else [])],
            *(
                [
                    *(item.labels.get(head, "") for head in heads),
                    *([f"{item.points[-1][1]:g}"] if amount else []),
                ]
                for item in series
            ),
        ]
    first = 1.8 if change["id"] == "groupingToMatrix" else 1
    width = int(box.width / (len(table[0]) - 1 + first))
    for at, line in enumerate(table[: _MOST_ROWS + 1]):
        for column_at, cell in enumerate(line):
            style = "" if at else "t"
            left = round(width * (column_at - 1 + first)) if column_at else 0
            room = width if column_at else round(width * first)
            yield _text(box.x + left, box.y + 14 + 19 * at, _cut(cell, room - 6), style)


def _name(legend: str, series: Series) -> str:
    if not legend or legend == "__auto":
        return ", ".join(series.labels.values())
    return re.sub(r"\{\{(\w+)\}\}", lambda found: series.labels.get(found[1], ""), legend)


def _text(x: int, y: int, text: str, style: str = "") -> str:
    return (
        f'<text{f" class={chr(34)}{style}{chr(34)}" if style else ""} x="{x}" y="{y}">{escape(text)}</text>'
    )


def _cut(text: str, width: int) -> str:
    longest = max(width // 6, 3)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _rounded_up(value: float) -> float:
    """Return the next 1.2, 1.5, 2, 3, 5 or 10 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** len(f"{int(value)}") / 10 if value >= 1 else 10.0 ** -(len(f"{1 / value:.0f}"))
    return next(power * step for step in (1, 1.2, 1.5, 2, 3, 5, 10, 100) if power * step >= value)


def _formatted(value: float, unit: str) -> str:
    scales = _SCALES.get(unit, ((1, ""),))
    size, name = next((scale for scale in scales if abs(value) >= scale[0]), scales[-1])
    scaled = value / size
    return f"{scaled:,.0f}{name}" if abs(scaled) >= 1000 else f"{scaled:.3g}{name}"
