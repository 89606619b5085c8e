"""Charts as self-contained SVG, without scripts, fonts or external styles."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from bench.figures import text

WIDTH, HEIGHT = 900, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
LEGEND_LINE = 20
COLORS = ("#1769aa", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#db2777", "#a16207", "#4b5563")
REFERENCE_COLORS = ("#64748b", "#94a3b8", "#78716c", "#a1a1aa")
MAX_LABELS = 12


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    low: float
    y: float
    high: float


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    dots: tuple[Dot, ...]
    is_reference: bool = False
    """Not measured by this run."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines with their spread."""

    title: str
    y: str
    lines: tuple[Line, ...]
    x: str = "size"
    """What the x axis shows."""
    x_name: Callable[[float], str] = text
    """Returns the label of an x value."""
    is_x_logarithmic: bool = True
    """Whether the x axis is logarithmic, for powers of two."""
    logarithmic: bool = False
    """Whether the y axis is logarithmic."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values to pixels, from ``begin`` to ``end``."""

    low: float
    high: float
    begin: float
    end: float
    logarithmic: bool

    def __call__(self, value: float) -> float:
        low, high, at = map(self._on, (self.low, self.high, max(value, self.low)))
        return round(
            self.begin + (self.end - self.begin) * ((at - low) / (high - low) if high > low else 0.5), 2
        )

    def _on(self, value: float) -> float:
        return math.log2(value) if self.logarithmic else value


def svg(chart: Chart) -> str:
    """Draw a chart. Raises ValueError for a chart without dots."""
    dots = [dot for line in chart.lines for dot in line.dots]
    columns = [dot.x for dot in dots]
    across = Axis(min(columns), max(columns), LEFT, WIDTH - RIGHT, logarithmic=chart.is_x_logarithmic)
    low, high = limits([dot.low for dot in dots], [dot.high for dot in dots], logarithmic=chart.logarithmic)
    up = Axis(low, high, HEIGHT - BOTTOM, TOP, chart.logarithmic)
    height = HEIGHT + LEGEND_LINE * len(chart.lines)
    parts = [
        *_frame(chart, across, up),
        *(part for line, color in with_colors(chart.lines) for part in _line(line, color, across, up, chart)),
        *_legend(chart.lines),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" class="chart">'
    return "\n".join([head, f"<title>{escape(chart.title)}</title>", *parts, "</svg>"])


def with_colors(lines: Sequence[Line]) -> Iterator[tuple[Line, str]]:
    mine = theirs = 0
    for line in lines:
        if line.is_reference:
            yield line, REFERENCE_COLORS[theirs % len(REFERENCE_COLORS)]
            theirs += 1
        else:
            yield line, COLORS[mine % len(COLORS)]
            mine += 1


def limits(lows: Sequence[float], highs: Sequence[float], *, logarithmic: bool) -> tuple[float, float]:
    """Return the limits of an axis: from 0, or powers of ten around all values."""
    if not logarithmic:
        return 0.0, ticks(max(highs) or 1.0)[-1]
    positive = [low for low in lows if low > 0] or [1.0]
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(*highs, *positive)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def ticks(highest: float) -> list[float]:
    """Return four to ten equal steps of 1, 2 or 5 times a power of ten, from 0 until ``highest`` is covered."""
    power = 10.0 ** math.floor(math.log10(highest))
    step = next(part * power for part in (0.1, 0.2, 0.5, 1.0, 2.0) if highest / (part * power) <= 10)
    return [round(step * number, 12) for number in range(math.ceil(highest / step - 1e-9) + 1)]


def _frame(chart: Chart, across: Axis, up: Axis) -> Iterator[str]:
    yield _text(WIDTH / 2, 22, chart.title, "middle", "title")
    for value in _marks(up):
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(value)}" y2="{up(value)}"/>'
        yield _text(LEFT - 8, up(value) + 4, text(value), "end")
    for value in _columns(chart):
        yield _text(across(value), HEIGHT - BOTTOM + 18, chart.x_name(value), "middle")
    yield _text(WIDTH / 2, HEIGHT - 10, chart.x, "middle")
    yield _text(LEFT - 8, TOP - 12, chart.y, "end")


def _marks(up: Axis) -> list[float]:
    if not up.logarithmic:
        return ticks(up.high)
    return [10.0**power for power in range(round(math.log10(up.low)), round(math.log10(up.high)) + 1)]


def _columns(chart: Chart) -> list[float]:
    """Return the x values with a label, few enough not to overlap."""
    found = sorted({dot.x for line in chart.lines for dot in line.dots})
    return found[:: math.ceil(len(found) / MAX_LABELS)]


def _line(line: Line, color: str, across: Axis, up: Axis, chart: Chart) -> Iterator[str]:
    dots = line.dots
    if any(dot.high > dot.low for dot in dots):
        around = [(dot.x, dot.high) for dot in dots] + [(dot.x, dot.low) for dot in reversed(dots)]
        corners = " ".join(f"{across(x)},{up(y)}" for x, y in around)
        yield f'<polygon class="spread" points="{corners}" fill="{color}"/>'
    points = " ".join(f"{across(dot.x)},{up(dot.y)}" for dot in dots)
    dashed = ' stroke-dasharray="6 4"' if line.is_reference else ""
    yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dashed}/>'
    for dot in dots:
        tooltip = escape(
            f"{line.label}, {chart.x_name(dot.x)}: {text(dot.y)} {chart.y} ({text(dot.low)} to {text(dot.high)})"
        )
        yield f'<circle cx="{across(dot.x)}" cy="{up(dot.y)}" r="3" fill="{color}"><title>{tooltip}</title></circle>'


def _legend(lines: Sequence[Line]) -> Iterator[str]:
    for number, (line, color) in enumerate(with_colors(lines)):
        y = HEIGHT + LEGEND_LINE * number + 6
        dashed = ' stroke-dasharray="6 4"' if line.is_reference else ""
        yield f'<line x1="{LEFT}" x2="{LEFT + 30}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="2"{dashed}/>'
        yield _text(LEFT + 40, y + 4, line.label, "start")


def _text(x: float, y: float, words: str, anchor: str, style: str = "") -> str:
    styled = f' class="{style}"' if style else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{styled}>{escape(words)}</text>'
