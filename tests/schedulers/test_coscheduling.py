"""Gangs under the real coscheduling scheduler: those whose launcher waits for its workers run to completion, and one that cannot start
says why.
"""

from collections.abc import Generator

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import WITH_MPI_V1, install
from tests.support.schedulers.coscheduling import SCHEDULER, coscheduling
from tests.support.schedulers.gangs import GangJobs, open_nodes
from tests.support.schedulers.operator import Operator

WAITS = {"kubeflow.org/mpi-wait-for-workers": "true"}
FLAGS = (f"--gang-scheduler-name={SCHEDULER}", "--mpi-ssh-check=false")
"""No process answers in simulated pods."""


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=2) as plane, coscheduling(plane):
        open_nodes(plane)
        install(plane, WITH_MPI_V1)
        yield plane


@pytest.fixture
def jobs(plane: ControlPlane) -> GangJobs:
    return GangJobs(plane, SCHEDULER, "scheduling.x-k8s.io/v1alpha1")


def test_a_launcher_that_waits_for_the_workers_of_its_gang_starts(
    plane: ControlPlane, jobs: GangJobs, operator: Operator
) -> None:
    """By the policy, and by the annotation in each version."""
    with operator.running(plane, FLAGS):
        jobs.submit("v2beta1", "policy", {}, launcherCreationPolicy="WaitForWorkersReady")
        for version in ("v1", "v2beta1", "v1alpha2"):
            jobs.submit(version, f"annotated-{version}", WAITS)
        for name in ("policy", "annotated-v1", "annotated-v2beta1", "annotated-v1alpha2"):
            jobs.run_to_the_end(name)


def test_with_the_flag_the_launchers_of_all_gangs_wait_and_start(
    plane: ControlPlane, jobs: GangJobs, operator: Operator
) -> None:
    with operator.running(plane, (*FLAGS, "--mpi-wait-for-workers")):
        for version in ("v1", "v2beta1"):
            jobs.submit(version, f"flag-{version}", {})
        for version in ("v1", "v2beta1"):
            jobs.run_to_the_end(f"flag-{version}")


def test_a_gang_that_waits_says_why_its_pods_have_no_node(
    plane: ControlPlane, jobs: GangJobs, operator: Operator
) -> None:
    with operator.running(plane, FLAGS):
        # With less in minResources than its pods need: the scheduler admits the group, and finds out at a worker.
        policy = {"minResources": {"cpu": "1"}}
        jobs.submit("v1", "large", {}, worker_cpus="100000", runPolicy={"schedulingPolicy": policy})

        message = jobs.wait_for_report("large")

    assert "waits for its PodGroup large" in message
    assert "needs 3 pods at once: Error pod large-worker-" in message
    assert "Insufficient cpu" in message
