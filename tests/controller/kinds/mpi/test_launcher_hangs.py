"""MPIJobs of v2beta1 and v1alpha2 that hang: launcher and workers go, and come back if a rule says so."""

from typing import Any

import pytest

from controller.domain import Hang
from controller.kinds.mpi.launcher_flavor import LauncherFlavor
from controller.kinds.mpi.v1alpha2 import V1ALPHA2
from controller.kinds.mpi.v2beta1 import V2BETA1
from controller.policy import hangs
from controller.reconcile.plan import problems
from tests.support.in_memory_cluster import InMemoryCluster
from tests.support.mpi import mpi_job

DEADLINE = {"progressDeadlineSeconds": 60}
HANG = Hang("worker", "pi-worker-1", "uid-1", "node-1", "no line in the logs from 3 pods for 61 s")
FLAVORS = pytest.mark.parametrize(
    "kind", [pytest.param(V2BETA1, id="v2beta1"), pytest.param(V1ALPHA2, id="v1alpha2")]
)


def new_cluster(kind: LauncherFlavor, **policy: Any) -> InMemoryCluster:
    version = "v2beta1" if kind is V2BETA1 else "v1alpha2"
    job = mpi_job(flavor=version, runPolicy={**DEADLINE, **policy})
    cluster = InMemoryCluster(job, kind=kind)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()
    return cluster


def cluster_with(kind: LauncherFlavor, **policy: Any) -> InMemoryCluster:
    """A job whose launcher and workers run."""
    cluster = new_cluster(kind, **policy)
    cluster.set_phase("Running", ready=True, running_since=cluster.now)
    cluster.settle()
    cluster.launch(running_since=cluster.now, attempt=cluster.status.restarts or 0)
    cluster.settle()
    return cluster


@FLAVORS
def test_a_reconcile_follows_the_status_in_which_the_job_begins_to_run(kind: LauncherFlavor) -> None:
    cluster = new_cluster(kind)
    cluster.set_phase("Running", ready=True, running_since=cluster.now)
    cluster.settle()
    cluster.launch(running_since=cluster.now)

    begun = cluster.step()

    assert begun.requeue_after_seconds == 0
    assert "Running T" in cluster.conditions


@FLAVORS
def test_a_hang_fails_the_job_and_ends_launcher_and_workers(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind)
    cluster.hang = HANG

    cluster.step()
    cluster.hang = None
    cluster.settle()

    last = (cluster.status.conditions or [])[-1]
    assert (last.type, last.reason) == ("Failed", "MPIJobNoProgress")
    assert (cluster.pods, cluster.batch_jobs) == ({}, {})


@FLAVORS
def test_a_rule_that_fails_the_job_ends_launcher_and_workers(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, failurePolicy={"rules": [{"action": "FailJob"}]})
    cluster.hang = HANG

    cluster.step()
    cluster.hang = None
    cluster.settle()

    last = (cluster.status.conditions or [])[-1]
    assert (last.type, last.reason) == ("Failed", "MPIJobFailurePolicy")
    assert (cluster.pods, cluster.batch_jobs) == ({}, {})


@FLAVORS
def test_a_rule_restarts_the_job(kind: LauncherFlavor) -> None:
    rules = [{"action": "RestartJob", "onReasons": ["NoProgress"], "roles": ["Worker"]}]
    cluster = cluster_with(kind, failurePolicy={"rules": rules})
    cluster.hang = HANG

    cluster.step()
    cluster.hang = None
    cluster.settle()

    assert [(found.pod, found.reason) for found in cluster.status.attempts or ()] == [
        ("pi-worker-1", "NoProgress")
    ]
    assert {pod.attempt for pod in cluster.pods.values()} == {1}


@FLAVORS
def test_launcher_and_workers_are_observed(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind)

    found = hangs.observed(cluster.job, kind.roles(cluster.job), cluster.observe())  # type: ignore[arg-type]

    assert found is not None
    assert {(pod.name, pod.role, pod.container) for pod in found.pods} == {
        ("pi-launcher-x", "launcher", "mpi"),
        ("pi-worker-0", "worker", "mpi"),
        ("pi-worker-1", "worker", "mpi"),
    }


@FLAVORS
def test_invalid_fields_are_named(kind: LauncherFlavor) -> None:
    cluster = new_cluster(kind, progress={"roles": ["Master"]})

    assert [problem.field for problem in problems(kind, cluster.job, cluster.options)] == [
        "spec.runPolicy.progress.roles[0]"
    ]
    assert "progress.roles[0]" in str(cluster.status.conditions)
