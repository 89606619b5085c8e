"""Running jobs move from the real Go operators to this operator and back, and no pod changes.

The API server's watches report everything that is created or deleted meanwhile.
"""

import json
from collections.abc import Callable, Generator
from typing import Any

import pytest
import yaml

from api.mpijob import RESOURCE as MPIJOBS
from controller.crds import all_crds
from rallypoint.cli import main
from rallypoint.cli.check.go_operators import GO_OPERATORS, go_fields
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.go_operators import (
    LOCK_NAMESPACE,
    NAMESPACE,
    definitions,
    manifests,
    mpi_operator,
    training_operator,
)
from rallypoint.testing.manifests import build
from rallypoint.testing.service import WITH_MPI_V1, install
from tests.support.running_jobs import MPI_V1, MPI_V2BETA1, OTHERS, PODS_OF_A_JOB, Jobs
from tests.support.takeover import rallypoint
from tools.go_fields import fields_of

LEASES = "/apis/coordination.k8s.io/v1/namespaces"


NAMES = [kind.kind for kind in OTHERS]


@pytest.fixture
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=1) as plane:
        yield plane


def deployed(plane: ControlPlane, manifest: Any, *arguments: str) -> str:
    """Create the Deployment of an operator that runs as a process here, with a status that says that it is ready; return its path."""
    namespace = manifest["metadata"].setdefault("namespace", NAMESPACE)
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["args"] = [*container.get("args", ()), *arguments]
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, manifest)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{manifest['metadata']['name']}"
    status = {"replicas": manifest["spec"]["replicas"], "readyReplicas": manifest["spec"]["replicas"]}
    plane.request("PATCH", f"{path}/status", {"status": status})
    return path


def shipped(program: str) -> Any:
    """The Deployment in the manifests of a Go operator."""
    return yaml.safe_load((manifests(program) / "base" / "deployment.yaml").read_text())


@pytest.fixture
def check(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[tuple[str, str, str]]]:
    """Level, subject and text of all findings of ``rallypoint check`` that are not ok."""

    def check(*arguments: str) -> list[tuple[str, str, str]]:
        capsys.readouterr()
        main(["check", f"--kubeconfig={plane.kubeconfig()}", "-o", "json", *arguments])
        findings = json.loads(capsys.readouterr().out)["findings"]
        return [
            (finding["level"], finding["check"], finding["text"])
            for finding in findings
            if finding["level"] != "ok"
        ]

    return check


def test_check_before_the_switch_after_it_and_before_the_way_back(
    plane: ControlPlane, check: Callable[..., list[tuple[str, str, str]]]
) -> None:
    jobs = Jobs(plane)
    plane.apply(
        *(crd for crd in definitions("training-operator") if crd["spec"]["names"]["kind"] != "MPIJob")
    )
    plane.apply(*definitions("mpi-operator"))
    with training_operator(plane, NAMES), mpi_operator(plane):
        flags = [f"--enable-scheme={name}" for name in NAMES]
        mpi = shipped("mpi-operator")
        mpi["metadata"]["namespace"] = LOCK_NAMESPACE
        paths = [deployed(plane, shipped("training-operator"), *flags), deployed(plane, mpi)]
        jobs.start([*OTHERS, MPI_V2BETA1], "old")
        before = check("--before", "switch")
    assert [(level, subject) for level, subject, _ in before] == [
        ("warning", "operators"),
        ("warning", "operators"),
        ("warning", "webhooks"),
    ]
    assert sorted(text.partition(" (")[0] for _, subject, text in before if subject == "operators") == [
        "mpi-operator",
        "training-operator",
    ]

    for path in paths:
        plane.request("DELETE", path)
    install(plane, WITH_MPI_V1)
    (ours,) = (document for document in build(WITH_MPI_V1) if document["kind"] == "Deployment")
    with rallypoint(plane):
        deployed(plane, ours, f"--lock-namespace={LOCK_NAMESPACE}")
        jobs.start([*OTHERS, MPI_V1, MPI_V2BETA1], "new")
        assert check() == []
        deployed(plane, shipped("training-operator"))
        twice = check()
        plane.request("DELETE", paths[0])
        back = check("--before", "back")
    assert [(level, subject) for level, subject, _ in twice] == [("blocker", "operators")]
    assert [(level, subject) for level, subject, _ in back if level == "blocker"] == []


def test_the_known_fields_are_those_of_the_go_definitions() -> None:
    """If this fails, run ``python -m tools.go_fields``."""
    assert go_fields() == fields_of({name: definitions(name) for name in GO_OPERATORS})


def is_safe(plane: ControlPlane, operator: str) -> bool:
    """Whether ``rallypoint check`` has no blocker for the start of the Go operator."""
    return main(["check", "--before=back", f"--to={operator}", f"--kubeconfig={plane.kubeconfig()}"]) == 0


def test_jobs_of_training_operator_are_taken_over_and_handed_back(plane: ControlPlane) -> None:
    """With its own definitions before and after, so that MPIJob has v1 alone there."""
    jobs, kinds = Jobs(plane), [*OTHERS, MPI_V1]
    plane.apply(*definitions("training-operator"))
    with training_operator(plane):
        jobs.start(kinds, "old")
    before = jobs.pods()
    jobs.remember_now()

    install(plane, WITH_MPI_V1)
    with rallypoint(plane):
        jobs.start([*kinds, MPI_V2BETA1], "new")
    assert is_safe(plane, "training-operator")
    assert jobs.changes(but="-new") == []
    before |= {name: pod for name, pod in jobs.pods().items() if "-new" in name}
    jobs.remember_now()

    plane.apply(*definitions("training-operator"))
    with training_operator(plane):
        jobs.start(kinds, "later")
        assert jobs.changes(but="-later") == []
        assert {name: pod for name, pod in jobs.pods().items() if "-later" not in name} == before
        for kind in kinds:
            jobs.finish(kind, "old")


def test_jobs_of_both_operators_are_taken_over_and_handed_back(plane: ControlPlane) -> None:
    """Back to both at once, over our definition of MPIJob, which alone serves both of their versions."""
    jobs = Jobs(plane)
    plane.apply(
        *(crd for crd in definitions("training-operator") if crd["spec"]["names"]["kind"] != "MPIJob")
    )
    plane.apply(*definitions("mpi-operator"))
    with training_operator(plane, NAMES), mpi_operator(plane):
        jobs.start([*OTHERS, MPI_V2BETA1], "old")
    before = jobs.pods()
    jobs.remember_now()

    install(plane, WITH_MPI_V1)
    with rallypoint(plane):
        jobs.start([*OTHERS, MPI_V1, MPI_V2BETA1], "new")
        jobs.start([MPI_V1], "ssh-new", flavor="v2beta1")
        jobs.start([MPI_V2BETA1], "exec-new", flavor="v1")
    assert is_safe(plane, "training-operator")
    assert is_safe(plane, "mpi-operator")
    assert jobs.changes(but="-new") == []
    before |= {name: pod for name, pod in jobs.pods().items() if "-new" in name}
    jobs.remember_now()

    with training_operator(plane), mpi_operator(plane):
        jobs.start([*OTHERS, MPI_V1, MPI_V2BETA1], "later")
        assert jobs.changes(but="-later") == []
        assert {name: pod for name, pod in jobs.pods().items() if "-later" not in name} == before
        for kind in (*OTHERS, MPI_V2BETA1):
            jobs.finish(kind, "old")
        jobs.finish(MPI_V1, "new")


def test_a_training_operator_that_keeps_mpijobs_leaves_those_of_v2beta1(plane: ControlPlane) -> None:
    """Kind by kind: it has restarted with ``--enable-scheme=MPIJob``, over our definitions."""
    jobs = Jobs(plane)
    plane.apply(*all_crds())
    with mpi_operator(plane):
        jobs.start([MPI_V2BETA1], "old")
        jobs.remember_now()
        with training_operator(plane, [MPIJOBS.kind, "TFJob"]):
            jobs.start([MPI_V1, MPI_V2BETA1], "new")
            assert jobs.changes(but="-new") == []
            assert len(jobs.changes(but="")) == 2 * PODS_OF_A_JOB + 1
