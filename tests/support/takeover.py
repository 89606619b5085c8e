"""This operator in the place of the Go operators, with the rights that it needs for that."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.go_operators import LOCK_NAMESPACE
from rallypoint.testing.manifests import build
from rallypoint.testing.service import ACCOUNT, Service, in_cluster_service

VERSIONS = Path(__file__).parents[2] / "manifests" / "components" / "mpi-versions"


@contextmanager
def rallypoint(plane: ControlPlane, *flags: str) -> Generator[Service]:
    """This operator with all of its rights, once it works."""
    with standby(plane, *flags) as service:
        plane.wait("it to work", lambda: service.metric("leader_election_master_status") == 1)
        yield service


@contextmanager
def standby(plane: ControlPlane, *flags: str) -> Generator[Service]:
    """This operator with all of its rights, once it is ready: it may wait for the Lease of mpi-operator."""
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
        yield service
