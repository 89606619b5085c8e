"""The control plane of a run: only the operator, the cases and garbage collection act on it."""

import uuid
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from api.meta import CONFIG_MAPS, Resource
from controller.crds import all_crds
from controller.kinds import ALL
from rallypoint.testing.audit import policy
from rallypoint.testing.controlplane import ControlPlane, User
from rallypoint.testing.service import granted
from tests.support.parity.resources import NAMESPACE, NODE

OPERATOR = "operator"
CONTROLLERS = ("garbage-collector-controller", "job-controller", "ttl-after-finished-controller")


@contextmanager
def start_control_plane(
    more: Collection[Path] = (), definitions: Sequence[dict[str, Any]] | None = None
) -> Generator[ControlPlane]:
    """A control plane with our definitions and roles, the cases' namespace and node, and what ``more`` files hold.

    With ``definitions``, such as those of a Go operator, these are installed in place of ours, and the operator may do everything.
    """
    plane = ControlPlane(
        users=[User(OPERATOR)],
        controllers=CONTROLLERS,
        service_account_admission=False,
        audit_policy=policy([OPERATOR], bodies=True),
    )
    crds = all_crds() if definitions is None else definitions
    served = {
        (crd["spec"]["names"]["kind"], version["name"]) for crd in crds for version in crd["spec"]["versions"]
    }
    with plane:
        plane.apply(
            *crds,
            *(granted(OPERATOR) if definitions is None else [_ADMINISTRATOR]),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
        )
        for path in more:
            plane.apply_files(path)
        kinds = {variant.resource for kind in ALL for variant in kind.variants}
        _collect_garbage(plane, [kind for kind in kinds if (kind.kind, kind.version) in served])
        yield plane


_ADMINISTRATOR: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "operator-may-do-everything"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": OPERATOR}],
}


def _collect_garbage(plane: ControlPlane, kinds: Collection[Resource]) -> None:
    """Return when children of these kinds go with their owner.

    The garbage collector learns of new kinds when it starts, and then every 30 s.
    """
    collector = plane.processes["kube-controller-manager"]
    collector.stop()
    collector.start()
    orphans = [_orphan(kind) for kind in kinds]
    plane.apply(*orphans)
    paths = [f"{CONFIG_MAPS.path('default')}/{orphan['metadata']['name']}" for orphan in orphans]
    plane.wait("garbage collection of jobs", lambda: not any(map(plane.has, paths)))


def _orphan(owner: Resource) -> dict[str, Any]:
    """Return an object whose owner has never existed."""
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": "nobody",
        "uid": str(uuid.uuid4()),
    }
    metadata = {"name": f"orphan-of-{owner.singular}-{owner.version}", "ownerReferences": [reference]}
    return {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind, "metadata": metadata}
