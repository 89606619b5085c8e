"""The declaration of a metric family, for the code, the exposition and the documentation page."""

from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


@dataclass(frozen=True, slots=True)
class Label:
    """A label and all its values. Names of jobs and pods are never label values."""

    name: str
    values: tuple[str, ...] = ()
    """Empty if the values are known only at run time."""
    meaning: str = ""
    """A description of the values, if they are not self-explanatory."""


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one name."""

    name: str
    """The exposed name: counters end with ``_total``, with the unit before it or at the end."""
    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds, in the unit."""

    @property
    def unit(self) -> str:
        """``seconds``, ``bytes``, or empty for a number of things."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in {"seconds", "bytes"} else ""

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)

    def counter(self, registry: CollectorRegistry) -> Counter:
        return Counter(self.name, self.help, self.label_names, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        return Gauge(self.name, self.help, self.label_names, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        return Histogram(self.name, self.help, self.label_names, buckets=self.buckets, registry=registry)

    def snapshot(self) -> CounterMetricFamily | GaugeMetricFamily:
        """Empty for values that another object keeps and the collector reads at each scrape."""
        made = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        return made(self.name, self.help, labels=self.label_names)


@dataclass(frozen=True, slots=True)
class Group:
    """Families that belong together."""

    title: str
    about: str
    """The source of the names and general remarks, in Markdown."""
    families: tuple[Family, ...]
