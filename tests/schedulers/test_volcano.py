"""Gangs whose launcher waits for its workers run to completion under the real Volcano."""

from collections.abc import Generator

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import WITH_MPI_V1, in_cluster_service, install
from tests.support.schedulers.gangs import GangJobs, open_nodes
from tests.support.schedulers.volcano import SCHEDULER, volcano

WAITS = {"kubeflow.org/mpi-wait-for-workers": "true"}
FLAGS = (f"--gang-scheduler-name={SCHEDULER}", "--mpi-ssh-check=false")
"""No process answers in simulated pods."""


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=2) as plane, volcano(plane):
        open_nodes(plane)
        install(plane, WITH_MPI_V1)
        yield plane


@pytest.fixture
def jobs(plane: ControlPlane) -> GangJobs:
    return GangJobs(plane, SCHEDULER, "scheduling.volcano.sh/v1beta1")


def test_a_launcher_that_waits_for_the_workers_of_its_gang_starts(
    plane: ControlPlane, jobs: GangJobs
) -> None:
    """By the policy, and by the annotation in each version."""
    with in_cluster_service(plane, FLAGS):
        jobs.submit("v2beta1", "policy", {}, launcherCreationPolicy="WaitForWorkersReady")
        for version in ("v1", "v2beta1", "v1alpha2"):
            jobs.submit(version, f"annotated-{version}", WAITS)
        for name in ("policy", "annotated-v1", "annotated-v2beta1", "annotated-v1alpha2"):
            jobs.run_to_the_end(name)


def test_a_gang_whose_launcher_does_not_wait_starts(plane: ControlPlane, jobs: GangJobs) -> None:
    with in_cluster_service(plane, FLAGS):
        for version in ("v1", "v2beta1"):
            jobs.submit(version, f"plain-{version}", {})
        for version in ("v1", "v2beta1"):
            jobs.run_to_the_end(f"plain-{version}")
