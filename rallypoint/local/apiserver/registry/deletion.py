"""Deletion: at once, after a grace period on a node, or when the last finalizer is removed.

Source: apiserver, pkg/registry/rest/delete.go and pkg/registry/generic/registry/store.go; kubernetes,
pkg/registry/core/pod/strategy.go (CheckGracefulDelete).
"""

from datetime import timedelta
from typing import Any

from api.times import format_time, parse_time
from rallypoint.local.apiserver.apimachinery import errors
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.registry.requests import DeleteOptions, Target, WriteResult
from rallypoint.local.apiserver.registry.writer import Writer, is_deletable
from rallypoint.local.apiserver.resources.resource import Resource
from rallypoint.local.apiserver.storage.store import Entry

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

DEFAULT_GRACE_SECONDS = 30


def delete(writer: Writer, target: Target, options: DeleteOptions) -> WriteResult:
    """Delete an object, or mark it as being deleted."""
    resource, entry = target.resource, writer.find(target)
    _check_preconditions(resource, entry, options)
    changed = _mark_deleted(writer, resource, entry.object, options)
    deletable = is_deletable(resource, changed)
    if changed == entry.object and not deletable:
        return WriteResult(entry)
    result: Entry | Json = changed
    if not options.dry_run:
        result = _store_deletion(writer, resource, entry, changed, deletable=deletable)
    if not deletable:
        return WriteResult(result)
    return WriteResult(
        result if resource.strategy.returns_deleted_object else _success_status(resource, entry)
    )


def _store_deletion(
    writer: Writer, resource: Resource, entry: Entry, changed: Json, *, deletable: bool
) -> Entry:
    """Store the marked object or remove it; watchers of graceful kinds see the mark before the removal."""
    if not deletable:
        return writer.put(resource, changed)
    last = entry.object
    if resource.strategy.graceful:
        last = writer.store.put(writer.collection(resource), changed).object
    return writer.remove(resource, last)


def _check_preconditions(resource: Resource, entry: Entry, options: DeleteOptions) -> None:
    meta = entry.metadata
    for name, expected, actual, cause in (
        ("UID", options.uid, meta["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.version, meta["resourceVersion"], "modified"),
    ):
        if expected and expected != actual:
            why = (
                f"the {name} in the precondition ({expected}) does not match the {name} in record ({actual}). "
                f"The object might have been {cause}"
            )
            raise errors.conflict(resource.group, resource.kind, meta["name"], why)


def _mark_deleted(writer: Writer, resource: Resource, obj: Json, options: DeleteOptions) -> Json:
    """Return the object marked as being deleted; unchanged if it is, and the grace period does not become shorter."""
    meta: Json = obj["metadata"]
    now = writer.clock()
    if resource.strategy.emptied_first:
        if meta.get("deletionTimestamp"):
            return obj
        stamped = {**meta, "deletionTimestamp": format_time(now)}
        return {**obj, "metadata": stamped, "status": {**obj.get("status", {}), "phase": "Terminating"}}
    start, grace = now, _grace(resource, obj, options)
    finalizers = _finalizers(resource, meta, options)
    if meta.get("deletionTimestamp"):
        if grace >= meta.get("deletionGracePeriodSeconds", 0) and finalizers == meta.get("finalizers", []):
            return obj
        old_grace_seconds = meta.get("deletionGracePeriodSeconds", 0)
        start = parse_time(meta["deletionTimestamp"]) - timedelta(seconds=old_grace_seconds)
        grace = min(grace, old_grace_seconds)
        generation = meta.get("generation")
    else:
        generation = meta["generation"] + 1 if "generation" in meta else None
    if finalizers and not _waits_for_node(resource, obj):
        grace = 0
    ended = {key: value for key, value in meta.items() if key not in ("finalizers", "generation")}
    ended["deletionTimestamp"] = format_time(start + timedelta(seconds=grace))
    ended["deletionGracePeriodSeconds"] = grace
    if generation is not None:
        ended["generation"] = generation
    if finalizers:
        ended["finalizers"] = finalizers
    return {**obj, "metadata": ended}


def _waits_for_node(resource: Resource, obj: Json) -> bool:
    """Return whether a node must terminate the object first."""
    if not resource.strategy.graceful or not obj["spec"].get("nodeName"):
        return False
    return obj.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def _grace(resource: Resource, obj: Json, options: DeleteOptions) -> int:
    if not _waits_for_node(resource, obj):
        return 0
    seconds = options.grace_seconds
    if seconds is None:
        seconds = int(obj["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS))
    return seconds if seconds >= 0 else 1


def _finalizers(resource: Resource, meta: Json, options: DeleteOptions) -> list[str]:
    """Return the finalizers, with those of the garbage collector set by the propagation policy."""
    finalizers: list[str] = list(meta.get("finalizers") or [])
    policy = options.propagation
    if not policy:
        if FOREGROUND in finalizers or ORPHAN in finalizers:
            return finalizers
        policy = resource.strategy.propagation
    others = [name for name in finalizers if name not in (FOREGROUND, ORPHAN)]
    match policy:
        case "Foreground":
            return [*others, FOREGROUND]
        case "Orphan":
            return [*others, ORPHAN]
        case _:
            return others


def _success_status(resource: Resource, entry: Entry) -> Json:
    details: dict[str, Any] = {"name": entry.metadata["name"]}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.plural, "uid": entry.metadata["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
