"""The metrics of mpi-operator, for its dashboards. They cover jobs that behave like mpi-operator's.

Source: mpi-operator 0.8, pkg/controller/mpi_job_controller.go and cmd/mpi-operator/app/server.go.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from controller.telemetry.metrics.family import Family, Group, Label

OPERATOR = "mpi-operator"
"""The controller name of the kinds whose jobs count here."""

CREATED = Family("mpi_operator_jobs_created_total", "counter", "MPIJobs of v2beta1 created")
SUCCESSFUL = Family("mpi_operator_jobs_successful_total", "counter", "MPIJobs of v2beta1 that succeeded")
FAILED = Family("mpi_operator_jobs_failed_total", "counter", "MPIJobs of v2beta1 that failed")
JOB_INFO = Family(
    "mpi_operator_job_info",
    "gauge",
    "Always 1; one series for each existing launcher",
    (Label("launcher", meaning="the launcher's Job"), Label("namespace", meaning="its namespace")),
)
IS_LEADER = Family("mpi_operator_is_leader", "gauge", "Whether this process leads")

GROUP = Group(
    "MPI operator",
    "The names are mpi-operator's. MPIJobs of v2beta1 count here and above. Differs: the original never removes a series of "
    "`mpi_operator_job_info`, and counts again when a write is refused.",
    (CREATED, SUCCESSFUL, FAILED, JOB_INFO, IS_LEADER),
)

Launchers = Callable[[], Iterable[tuple[str, str]]]
"""Names and namespaces of the existing launchers."""


class MpiOperator:
    """The series of these families."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._jobs = {
            "created": CREATED.counter(registry),
            "successful": SUCCESSFUL.counter(registry),
            "failed": FAILED.counter(registry),
        }
        self._leads = IS_LEADER.gauge(registry)
        self._registry = registry

    def count(self, what: str) -> None:
        if what in self._jobs:
            self._jobs[what].inc()

    def leading(self, is_leading: bool) -> None:
        self._leads.set(is_leading)

    def launchers(self, read: Launchers) -> None:
        """Expose the launchers that ``read`` returns at each scrape."""
        self._registry.register(_Present(read))


class _Present(Collector):
    def __init__(self, read: Launchers) -> None:
        self._read = read

    @override
    def collect(self) -> Iterator[Metric]:
        metric = JOB_INFO.snapshot()
        for labels in self._read():
            metric.add_metric(labels, 1)
        yield metric
