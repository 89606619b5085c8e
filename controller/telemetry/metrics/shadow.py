"""The metrics of shadow mode. They are registered, and so exist, only with ``--shadow``."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from controller.telemetry.metrics.family import Family, Group, Label

RESULTS = ("equal", "declared", "different", "unread", "left")
_KIND = Label("kind", meaning="the kind of job")

JOBS = Family(
    "rallypoint_shadow_jobs",
    "gauge",
    "Jobs by the result of their comparison with the other operator",
    (_KIND, Label("result", RESULTS)),
)
DIFFERENCES = Family(
    "rallypoint_shadow_differences",
    "gauge",
    "Differences from the other operator by rule",
    (_KIND, Label("rule", meaning="one for each rule of the report")),
)

GROUP = Group(
    "Shadow mode",
    "They exist only with `--shadow`, see [shadow mode](../how-to/shadow.md). `equal` and `declared` are as expected; "
    "`unread` jobs have not been compared in their present state; `left` ones belong to another controller.",
    (JOBS, DIFFERENCES),
)

Results = Callable[[], Iterable[tuple[str, Mapping[str, int], Mapping[str, int]]]]
"""Returns, for each kind, the number of jobs by result and of differences by rule."""


class ShadowMetrics(Collector):
    """Reads the results at each scrape."""

    def __init__(self, registry: CollectorRegistry, results: Results) -> None:
        self._results = results
        registry.register(self)

    @override
    def collect(self) -> Iterator[Metric]:
        jobs, differences = JOBS.snapshot(), DIFFERENCES.snapshot()
        for kind, by_result, by_rule in self._results():
            for result, count in by_result.items():
                jobs.add_metric((kind, result), count)
            for rule, count in by_rule.items():
                differences.add_metric((kind, rule), count)
        yield jobs
        yield differences
