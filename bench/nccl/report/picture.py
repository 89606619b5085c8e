"""The plots as one PNG, drawn by matplotlib, which is not there unless it was asked for."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.nccl.report import charts
from bench.nccl.report.charts import Chart
from bench.nccl.report.svg import with_colors
from bench.nccl.schema import AnyRecord
from bench.nccl.sizes import spelled

INCHES = (10.0, 5.5)
DOTS_PER_INCH = 120


def write(record: AnyRecord, path: Path) -> Path:
    """Of a record that has something to draw."""
    found = charts.build(record)
    figure = Figure(figsize=(INCHES[0], INCHES[1] * len(found)), dpi=DOTS_PER_INCH, layout="constrained")
    for axes, chart in zip(figure.subplots(len(found), squeeze=False)[:, 0], found, strict=True):
        _draw(axes, chart)
    figure.savefig(path)
    return path


def _draw(axes: Axes, chart: Chart) -> None:
    for line, color in with_colors(chart.lines):
        across = [dot.x for dot in line.dots]
        axes.plot(
            across,
            [dot.y for dot in line.dots],
            color=color,
            label=line.label,
            ls="--" if line.is_reference else "-",
        )
        axes.fill_between(
            across, [dot.low for dot in line.dots], [dot.high for dot in line.dots], color=color, alpha=0.18
        )
    axes.set_title("\n".join(filter(None, [chart.title, chart.note])))
    axes.set_ylabel(chart.y)
    axes.set_xlabel(chart.x)
    axes.set_xscale("log", base=2)
    columns = sorted({dot.x for line in chart.lines for dot in line.dots})
    labels = [spelled(int(x)) if chart.x == "size" else f"{x:g}" for x in columns]
    axes.set_xticks(columns, labels, rotation=60, fontsize=8)
    if chart.logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3)  # Over no line.
