"""The rights that the controller has, requests and is denied, by the manifests and by the API server's audit log.

The log holds the calls of the ServiceAccount alone: ``audit.policy([ACCOUNT], watches=True)``.
"""

from pathlib import Path

from controller.kinds import ALL
from rallypoint.testing.audit import Call, calls
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.manifests import build
from rallypoint.testing.service import MPI_RIGHTS, RBAC

Right = tuple[str, str, str]
"""API group, resource with its subresource, verb. One entry stands for the jobs of all kinds."""


def granted_rights(kind: str, folder: Path = RBAC, not_ours: str = "") -> set[Right]:
    """Return what the role of that kind in ``folder`` grants to the controller; ``not_ours`` is that of others."""
    (document,) = [
        document
        for document in build(folder)
        if document["kind"] == kind and document["metadata"]["name"] != not_ours
    ]
    return {
        _of_any_kind((group, resource, verb))
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def rights_for_mpijobs() -> set[Right]:
    """Return the rights that no other kind needs."""
    return granted_rights("ClusterRole", MPI_RIGHTS)


def requested_rights(plane: ControlPlane) -> set[Right]:
    """Return what the controller has requested so far."""
    return {_of_any_kind(_right(call)) for call in _calls(plane)}


def denied_rights(plane: ControlPlane) -> list[Right]:
    """Return what the API server has denied so far, in its order."""
    return [_right(call) for call in _calls(plane) if call.code in {401, 403}]


def _calls(plane: ControlPlane) -> list[Call]:
    assert plane.audit_log is not None
    return [call for call in calls(plane.audit_log) if call.resource]


def _right(call: Call) -> Right:
    return call.group, "/".join(filter(None, (call.resource, call.subresource))), call.verb


def _of_any_kind(right: Right) -> Right:
    group, resource, verb = right
    plural, *rest = resource.split("/")
    if (group, plural) in {(kind.resource.group, kind.resource.plural) for kind in ALL}:
        plural = "jobs of any kind"
    return group, "/".join([plural, *rest]), verb
