"""The metrics of mpi-operator: counters of jobs and series of launchers."""

import pytest
from prometheus_client import CollectorRegistry

from controller.telemetry.metrics import Metrics

INFO = {"launcher": "pi-launcher", "namespace": "hpc"}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.mark.parametrize(
    ("controller", "value"),
    [
        pytest.param("mpi-operator", 1.0, id="a job as mpi-operator runs it"),
        pytest.param("mpijob-controller", 0.0, id="a job of another flavor"),
    ],
)
def test_only_mpi_jobs_are_counted(registry: CollectorRegistry, controller: str, value: float) -> None:
    count = Metrics(registry).job("mpi", controller)
    for what in ("created", "successful", "failed", "restarted", "deleted"):
        count("hpc", what)

    for what in ("created", "successful", "failed"):
        assert registry.get_sample_value(f"mpi_operator_jobs_{what}_total") == value
        labels = {"job_namespace": "hpc", "framework": "mpi"}
        assert registry.get_sample_value(f"training_operator_jobs_{what}_total", labels) == 1


def test_existing_launchers_have_a_series(registry: CollectorRegistry) -> None:
    there = [("pi-launcher", "hpc")]
    Metrics(registry).launchers(lambda: there)
    assert registry.get_sample_value("mpi_operator_job_info", INFO) == 1
    there.clear()

    assert registry.get_sample_value("mpi_operator_job_info", INFO) is None


def test_the_leader_has_a_series(registry: CollectorRegistry) -> None:
    election = Metrics(registry).election()
    assert registry.get_sample_value("mpi_operator_is_leader") == 0
    election.leading("lease", True)

    assert registry.get_sample_value("mpi_operator_is_leader") == 1
