"""Spread of measured values, and their text form."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.table import Table
from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Spread:
    """The smallest, the median and the largest of some values, in their unit."""

    smallest: float
    median: float
    largest: float

    @override
    def __str__(self) -> str:
        if self.smallest == self.largest:
            return text(self.median)
        return f"{text(self.smallest)} / {text(self.median)} / {text(self.largest)}"


def spread(values: Sequence[float]) -> Spread:
    """Return the spread. Raises ValueError without values."""
    if not values:
        raise ValueError("nothing was measured")
    return Spread(min(values), median(values), max(values))


def table(
    title: str, labels: Mapping[str, str], results: Mapping[str, Sequence[Mapping[str, float]]]
) -> Table:
    """A row for each label and a column for each case, with the smallest, the median and the largest value."""
    shown = Table("", *results, title=title)
    for figure, label in labels.items():
        found = [[run[figure] for run in runs if figure in run] for runs in results.values()]
        shown.add_row(label, *(str(spread(values)) if values else "" for values in found))
    return shown


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that at least ``percent`` of the values do not exceed. Raises ValueError without values."""
    if not values:
        raise ValueError("nothing was measured")
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def text(value: float) -> str:
    """Format with three significant digits and all digits before the point: 0.0123, 12.3, 12,345."""
    if value == 0 or abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}"
