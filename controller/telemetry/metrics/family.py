"""What a family of metrics is called, and how the library makes it: one declaration for code, exposition and page."""

from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


@dataclass(frozen=True, slots=True)
class Label:
    """A label and all its values. Names of jobs and pods are never among them."""

    name: str
    values: tuple[str, ...] = ()
    """Empty when only the running service knows them."""
    meaning: str = ""
    """What the values are, where they do not say it themselves."""


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one name."""

    name: str
    """As it is exposed: counters with ``_total``, the unit before it or at the end."""
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
        """Empty; for figures that are kept elsewhere and read when somebody scrapes."""
        made = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        return made(self.name, self.help, labels=self.label_names)


@dataclass(frozen=True, slots=True)
class Group:
    """Families that belong together."""

    title: str
    about: str
    """Where their names come from, and what one should know of all of them. Markdown."""
    families: tuple[Family, ...]
