"""What the controller may do, what it has asked an API server for, and what was refused, by the server's audit log.

The log tells of the ServiceAccount alone: ``audit.policy([ACCOUNT], watches=True)``.
"""

import json
from pathlib import Path
from typing import Any

from controller.kinds import ALL
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.manifests import build
from rallypoint.testing.service import RBAC

Right = tuple[str, str, str]
"""API group, resource with its subresource, verb. What is done with jobs of one kind stands for all kinds."""

OF_MPI_JOBS: frozenset[Right] = frozenset(
    {
        *(("", "configmaps", verb) for verb in ("get", "list", "watch", "create", "patch")),
        *(("", "secrets", verb) for verb in ("get", "create")),
        ("", "services", "patch"),
        *(("batch", "jobs", verb) for verb in ("get", "list", "watch", "create", "patch")),
        ("batch", "jobs/status", "patch"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "get"),
    }
)
"""Rights that no other kind needs."""


def granted_rights(kind: str, folder: Path = RBAC) -> set[Right]:
    """By the role of that kind in ``folder``."""
    (document,) = [document for document in build(folder) if document["kind"] == kind]
    return {
        _of_any_kind((group, resource, verb))
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def requested_rights(plane: ControlPlane) -> set[Right]:
    return {_of_any_kind(right(call)) for call in calls(plane)}


def denied_rights(plane: ControlPlane) -> list[Right]:
    return [right(call) for call in calls(plane) if call["responseStatus"]["code"] in {401, 403}]


def calls(plane: ControlPlane) -> list[dict[str, Any]]:
    """The log's entries about resources."""
    assert plane.audit_log is not None
    lines = plane.audit_log.read_text().splitlines(keepends=True)
    return [one for line in lines if line.endswith("\n") and "objectRef" in (one := json.loads(line))]


def right(call: dict[str, Any]) -> Right:
    target = call["objectRef"]
    resource = "/".join(part for part in (target["resource"], target.get("subresource", "")) if part)
    return target.get("apiGroup", ""), resource, call["verb"]


def _of_any_kind(one: Right) -> Right:
    group, resource, verb = one
    plural, *rest = resource.split("/")
    if (group, plural) in {(kind.resource.group, kind.resource.plural) for kind in ALL}:
        plural = "jobs of any kind"
    return group, "/".join([plural, *rest]), verb
