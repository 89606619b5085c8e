"""The control plane of a run: nothing acts on it but the operator, the cases and garbage collection."""

import uuid
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from api.meta import Resource
from controller.crds import all_crds
from controller.kinds import ALL
from controller.testing.controlplane import ControlPlane, User
from controller.testing.parity.audit import POLICY
from controller.testing.parity.resources import CONFIG_MAPS, NAMESPACE, NODE
from controller.testing.service import granted

OPERATOR = "operator"
CONTROLLERS = ("garbage-collector-controller", "job-controller", "ttl-after-finished-controller")


@contextmanager
def stage(more: Collection[Path] = ()) -> Generator[ControlPlane]:
    """A control plane with our definitions and roles, the cases' namespace and node, and what ``more`` files hold."""
    plane = ControlPlane(
        users=[User(OPERATOR)],
        controllers=CONTROLLERS,
        service_account_admission=False,
        audit_policy=POLICY.format(user=OPERATOR),
    )
    with plane:
        plane.apply(
            *all_crds(),
            *granted(OPERATOR),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
        )
        for path in more:
            plane.apply_files(path)
        _collect_garbage(plane)
        yield plane


def _collect_garbage(plane: ControlPlane) -> None:
    """Return when children of our kinds go with their owner.

    The garbage collector learns of new kinds when it starts, and then every 30 s.
    """
    collector = plane.processes["kube-controller-manager"]
    collector.stop()
    collector.start()
    orphans = [_orphan(variant.resource) for kind in ALL for variant in kind.variants]
    plane.apply(*orphans)
    paths = [f"{CONFIG_MAPS.path('default')}/{orphan['metadata']['name']}" for orphan in orphans]
    plane.wait("garbage collection of jobs", lambda: not any(map(plane.has, paths)))


def _orphan(owner: Resource) -> dict[str, Any]:
    """An object whose owner has never been there."""
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": "nobody",
        "uid": str(uuid.uuid4()),
    }
    metadata = {"name": f"orphan-of-{owner.singular}-{owner.version}", "ownerReferences": [reference]}
    return {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind, "metadata": metadata}
