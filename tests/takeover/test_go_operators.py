"""Running jobs move from the real Go operators to this operator and back, and no pod changes.

The API server's watches report everything that is created or deleted meanwhile.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.mpijob import RESOURCE as MPIJOBS
from controller.crds import all_crds
from rallypoint.cli import main
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.manifests import build
from rallypoint.testing.service import ACCOUNT, WITH_MPI_V1, Service, in_cluster_service, install
from tests.support.gooperators import (
    LOCK_NAMESPACE,
    definitions,
    mpi_operator,
    training_operator,
)
from tests.support.running_jobs import MPI_V1, MPI_V2BETA1, OTHERS, PODS_OF_A_JOB, Jobs

VERSIONS = Path(__file__).parents[2] / "manifests" / "components" / "mpi-versions"
LEASES = "/apis/coordination.k8s.io/v1/namespaces"


NAMES = [kind.kind for kind in OTHERS]


@pytest.fixture
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=1) as plane:
        yield plane


@contextmanager
def rallypoint(plane: ControlPlane, *flags: str) -> Generator[Service]:
    """This operator with all of its rights, once it works."""
    role = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "training-operator-leases",
    }
    namespace, name = ACCOUNT.split(":")[2:]
    subjects = [{"kind": "ServiceAccount", "namespace": namespace, "name": name}]
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}]
    rbac = "rbac.authorization.k8s.io/v1"
    bindings = [binding for binding in build(VERSIONS) if binding["kind"] == "ClusterRoleBinding"]
    for binding in bindings:
        binding["subjects"] = subjects
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LOCK_NAMESPACE}},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": role["name"]}, "rules": rules},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role["name"]},
            "roleRef": role,
            "subjects": subjects,
        },
        *(manifest for manifest in build(VERSIONS) if manifest["kind"] == "ClusterRole"),
        *bindings,
    )
    with in_cluster_service(plane, [f"--lock-namespace={LOCK_NAMESPACE}", *flags]) as service:
        plane.wait("it to work", lambda: service.metric("leader_election_master_status") == 1)
        yield service


def is_safe(plane: ControlPlane, operator: str) -> bool:
    """Whether ``rallypoint preflight`` says that the Go operator can be started."""
    return main(["preflight", operator, f"--kubeconfig={plane.kubeconfig()}"]) == 0


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
