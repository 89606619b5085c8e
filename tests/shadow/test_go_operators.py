"""A shadow beside the real Go operators: what it reports about their jobs, the switch to this operator, and the way back.

``SHADOW_JOBS`` is the number of jobs of the large test, by default 500.
"""

import json
import os
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from controller.crds import all_crds
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.go_operators import definitions, mpi_operator, training_operator
from rallypoint.testing.service import SHADOW, WITH_MPI_V1, install
from tests.support.many_jobs import ManyJobs
from tests.support.running_jobs import MPI_V1, MPI_V2BETA1, OTHERS, Jobs
from tests.support.shadow_beside import shadow, undeclared
from tests.support.takeover import standby

JOBS = int(os.environ.get("SHADOW_JOBS", "500"))
NAMES = [kind.kind for kind in OTHERS]
FAST = ["--kube-api-qps=500", "--kube-api-burst=1000"]


@pytest.fixture
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=1) as plane:
        yield plane


@contextmanager
def go_operators(plane: ControlPlane) -> Generator[ExitStack]:
    with ExitStack() as running:
        running.enter_context(training_operator(plane, NAMES, flags=FAST))
        running.enter_context(mpi_operator(plane, flags=FAST))
        yield running


def test_five_hundred_jobs_are_compared_and_move_over_and_back(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    """No pod, launcher, Service, ConfigMap or Secret is replaced, and no pod or launcher is written at all."""
    figures: dict[str, Any] = {"jobs": JOBS}
    plane.apply(
        *(crd for crd in definitions("training-operator") if crd["spec"]["names"]["kind"] != "MPIJob")
    )
    plane.apply(*definitions("mpi-operator"))
    jobs = ManyJobs(plane, [*OTHERS, MPI_V2BETA1])
    with go_operators(plane) as running:
        jobs.start(JOBS, "old")
        plane.apply(*all_crds())
        install(plane, SHADOW)
        before = jobs.children()
        figures["children"] = len(before)
        with shadow(plane) as beside:
            started = time.monotonic()
            report = beside.report()
            figures["seconds until all are compared"] = round(time.monotonic() - started, 1)
            figures["beside the Go operators"] = report["kinds"]
            figures["declared differences"] = {rule["rule"]: rule["differences"] for rule in report["rules"]}
            assert undeclared(report) == []
            assert sum(sum(results.values()) for results in report["kinds"].values()) == JOBS
            assert beside.exit_status() == 0
            assert jobs.children() == before

            install(plane, WITH_MPI_V1)
            with standby(plane) as service:
                assert service.metric("leader_election_master_status") == 0
                running.close()
                stopped = time.monotonic()
                plane.wait(
                    "it to work", lambda: service.metric("leader_election_master_status") == 1, seconds=120
                )
                figures["seconds without an operator"] = round(time.monotonic() - stopped, 1)
                jobs.start(6, "new")
                report = beside.report()
                figures["beside this operator"] = report["kinds"]
                assert undeclared(report) == []
            after = jobs.children()
    assert jobs.changes(before, after, "-old-") == []

    with go_operators(plane), shadow(plane) as beside:
        jobs.start(6, "later")
        report = beside.report()
        figures["back beside the Go operators"] = report["kinds"]
        assert undeclared(report) == []
        assert jobs.changes(after, jobs.children(), "-old-") == []
    with capsys.disabled():
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")


def test_mpijobs_of_v1_are_compared_over_the_definitions_of_training_operator(plane: ControlPlane) -> None:
    plane.apply(*definitions("training-operator"))
    install(plane, SHADOW)
    jobs = Jobs(plane)
    with training_operator(plane, flags=FAST):
        jobs.start([*OTHERS, MPI_V1], "old")
        with shadow(plane) as beside:
            report = beside.report()
    assert undeclared(report) == []
    assert report["kinds"]["MPIJob"]["declared"] == 1
    assert "launcher-rights" in {rule["rule"] for rule in report["rules"]}


@pytest.mark.parametrize("policy", [{}, {"cleanPodPolicy": "All"}, {"cleanPodPolicy": "Running"}])
def test_jobs_that_finish_are_compared(plane: ControlPlane, policy: dict[str, Any]) -> None:
    plane.apply(*all_crds())
    install(plane, SHADOW)
    jobs, kinds = Jobs(plane), [*OTHERS, MPI_V2BETA1]
    with go_operators(plane), shadow(plane) as beside:
        jobs.start(kinds, "old", runPolicy=policy)
        for kind in kinds:
            jobs.finish(kind, "old")
        assert undeclared(beside.report()) == []


@pytest.mark.parametrize("policy", ["OnFailure", "ExitCode", "Never"])
def test_what_becomes_of_failed_pods_is_compared(plane: ControlPlane, policy: str) -> None:
    """A worker of each job ends with 137, which ExitCode retries. Of these kinds, only TFJob has ``/scale`` here and not in training-operator."""
    plane.apply(*all_crds())
    install(plane, SHADOW)
    jobs = Jobs(plane)
    with go_operators(plane), shadow(plane) as beside:
        for kind in OTHERS:
            body = kind.job("template")
            roles = body["spec"][kind.replicas]
            for role in roles.values():
                role["restartPolicy"] = policy
            jobs.start([kind], "old", **{kind.replicas: roles})
        beside.report()
        for kind in OTHERS:
            jobs.end(kind, "old", "worker-1", code=137)
        report = beside.report()
        assert undeclared(report) == []
        assert {rule["rule"] for rule in report["rules"]} <= {
            "init-container",
            "lost-pod",
            "running",
            "selector",
        }
        without_selector = {entry["kind"] for entry in report["differences"] if entry["rule"] == "selector"}
        assert without_selector <= {"TFJob"}
