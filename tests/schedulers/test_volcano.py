"""Gangs under the real Volcano: those whose launcher waits for its workers run to completion, and those that cannot start say why."""

from collections.abc import Generator

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import WITH_MPI_V1, install
from tests.support.schedulers.gangs import GangJobs, open_nodes
from tests.support.schedulers.operator import Operator
from tests.support.schedulers.volcano import SCHEDULER, create_queue, operate_queue, volcano

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
    plane: ControlPlane, jobs: GangJobs, operator: Operator
) -> None:
    """By the policy, and by the annotation in each version."""
    with operator.running(plane, FLAGS):
        jobs.submit("v2beta1", "policy", {}, launcherCreationPolicy="WaitForWorkersReady")
        for version in ("v1", "v2beta1", "v1alpha2"):
            jobs.submit(version, f"annotated-{version}", WAITS)
        for name in ("policy", "annotated-v1", "annotated-v2beta1", "annotated-v1alpha2"):
            jobs.run_to_the_end(name)


def test_a_gang_whose_launcher_does_not_wait_starts(
    plane: ControlPlane, jobs: GangJobs, operator: Operator
) -> None:
    with operator.running(plane, FLAGS):
        for version in ("v1", "v2beta1"):
            jobs.submit(version, f"plain-{version}", {})
        for version in ("v1", "v2beta1"):
            jobs.run_to_the_end(f"plain-{version}")


def test_a_gang_that_waits_says_why_its_queue_does_not_take_it(
    plane: ControlPlane, jobs: GangJobs, operator: Operator
) -> None:
    create_queue(plane, "closed")
    operate_queue(plane, "closed", "CloseQueue", "Closed")
    create_queue(plane, "small", capability={"nvidia.com/gpu": "2"})
    create_queue(plane, "open")
    needs = {"nvidia.com/gpu": "8"}
    with operator.running(plane, FLAGS):
        for queue in ("nowhere", "closed", "small", "open"):
            policy = {"queue": queue, "minResources": {"nvidia.com/gpu": "900"} if queue == "open" else needs}
            jobs.submit("v1", queue, {}, runPolicy={"schedulingPolicy": policy})

        assert jobs.wait_for_report("nowhere").endswith("queue nowhere does not exist")
        assert jobs.wait_for_report("closed").endswith("queue closed is Closed")
        assert jobs.wait_for_report("small").endswith(
            "queue small can never take it: it needs 8 nvidia.com/gpu, and the queue has 2"
        )
        assert jobs.wait_for_report("open").endswith("does not say why; see the events of the PodGroup")
