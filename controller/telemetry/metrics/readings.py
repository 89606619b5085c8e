"""Values that other objects keep, read at each scrape: they cost nothing in between."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from controller.telemetry.metrics.family import Family

Read = Callable[[], float]


class Readings(Collector):
    """The series of these families, each a function that returns the current value."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._reads: dict[Family, dict[tuple[str, ...], Read]] = {family: {} for family in families}

    def add(self, family: Family, labels: tuple[str, ...], read: Read) -> None:
        self._reads[family][labels] = read

    @override
    def collect(self) -> Iterator[Metric]:
        for family, reads in self._reads.items():
            metric = family.snapshot()
            for labels, read in reads.items():
                metric.add_metric(labels, read())
            yield metric
