"""Checks by dry-run whether the objects of this version can be applied: who else owns fields that they set."""

import asyncio
import copy
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

from api.meta import Resource
from controller.crds import all_crds
from controller.kinds import ALL
from controller.kube.errors import Conflict, NotFound
from rallypoint.cli.check.facts import ERRORS, Facts, unreadable
from rallypoint.cli.check.findings import Finding, names, ok, warning
from rallypoint.cli.check.installation import objects

CHECK = "conflicts"
_MANAGER = re.compile(r'conflict with "([^"]*)"')
_MANAGED_BY = "app.kubernetes.io/managed-by"
_TOOLS = {"argocd.argoproj.io/tracking-id": "Argo CD", "kustomize.toolkit.fluxcd.io/name": "Flux"}
"""Annotations and labels of objects that a tool manages → the tool."""


async def conflict_findings(facts: Facts) -> AsyncIterator[Finding]:
    """Yield the fields that an apply of this version would take from other managers."""
    kinds = {kind.resource.kind for kind in ALL if kind.resource.kind in facts.kinds}
    definitions = [crd for crd in all_crds() if crd["spec"]["names"]["kind"] in kinds]
    documents = [
        *definitions,
        *(located(document, facts.namespace) for document in objects() if document["kind"] != "Namespace"),
    ]
    tried = [(document, resource) for document in documents if (resource := _resource(facts, document))]
    results = await asyncio.gather(*(_conflict(facts, *pair) for pair in tried))
    found = [finding for findings in results for finding in findings]
    for finding in dict.fromkeys(found):
        yield finding
    if not found:
        yield ok(
            CHECK, f"the {len(tried)} objects of this version can be applied as {facts.options.field_manager}"
        )


def located(document: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return an object of the installation in another namespace."""
    moved = copy.deepcopy(document)
    if "namespace" in moved["metadata"]:
        moved["metadata"]["namespace"] = namespace
    for subject in moved.get("subjects") or ():
        subject["namespace"] = namespace
    return moved


def _resource(facts: Facts, document: dict[str, Any]) -> Resource | None:
    """Return the resource of an object; None if the cluster does not serve it."""
    return next(
        (
            served.resource
            for served in facts.reader.cluster.resources
            if (served.resource.api_version, served.resource.kind)
            == (document["apiVersion"], document["kind"])
        ),
        None,
    )


async def _conflict(facts: Facts, document: dict[str, Any], resource: Resource) -> Sequence[Finding]:
    metadata = document["metadata"]
    name = f"{resource.singular} {metadata['name']}"
    try:
        await facts.reader.dry_apply(
            resource, document, metadata.get("namespace", ""), facts.options.field_manager
        )
    except NotFound:  # its namespace, which the installation creates
        return []
    except Conflict as error:
        return [conflict(name, error, facts.options.field_manager)]
    except ERRORS as error:
        return [unreadable(CHECK, error, f"{resource.plural}")]
    return []


def conflict(name: str, error: Conflict, field_manager: str) -> Finding:
    """Return the finding of an object with fields of other managers."""
    managers = dict.fromkeys(found[1] for _, text in error.causes if (found := _MANAGER.search(text)))
    fields = [field for field, _ in error.causes]
    return warning(
        CHECK,
        f"{name}: {', '.join(managers) or 'another manager'} owns {names(fields)}, so that an apply as {field_manager} is refused",
        "upgrade with the tool that owns the fields; or put your values into an overlay, and apply once with --force-conflicts",
    )


async def tool_findings(facts: Facts) -> AsyncIterator[Finding]:
    """Yield the tool that manages the installation: it would undo what others apply."""
    ours = facts.installed
    bodies = facts.workloads.get() if ours else ()
    for body in bodies:
        metadata = body["metadata"]
        if ours is None or (metadata["namespace"], metadata["name"]) != (ours.namespace, ours.name):
            continue
        marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
        tools = [tool for key, tool in _TOOLS.items() if key in marks]
        if str(marks.get(_MANAGED_BY, "")).lower() == "helm":
            tools.append("Helm")
        for tool in tools:
            yield warning(
                "installation",
                f"{tool} manages deployment {ours.namespace}/{ours.name}",
                f"make the change with {tool}, which would undo what kubectl applies",
            )
