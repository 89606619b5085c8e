"""The subresources scale, binding and eviction."""

from typing import Any

from api.times import format_time
from rallypoint.local.apiserver.apimachinery import errors, field_errors
from rallypoint.local.apiserver.apimachinery.unstructured import Json, read_path
from rallypoint.local.apiserver.registry.deletion import delete
from rallypoint.local.apiserver.registry.requests import DeleteOptions, Target, WriteOptions, WriteResult
from rallypoint.local.apiserver.registry.writer import Edit, Writer
from rallypoint.local.apiserver.resources.resource import Scale
from rallypoint.local.apiserver.storage.store import Entry

CREATED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
SCALE_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def _set(obj: Json, path: tuple[str, ...], value: Any) -> Json:
    if len(path) == 1:
        return {**obj, path[0]: value}
    inner = obj.get(path[0])
    return {**obj, path[0]: _set(inner if isinstance(inner, dict) else {}, path[1:], value)}


def get_scale(obj: Json, paths: Scale) -> Json:
    """Return the Scale object of a custom resource."""
    shown = {key: obj["metadata"][key] for key in SCALE_METADATA if key in obj["metadata"]}
    status: Json = {"replicas": read_path(obj, paths.status) or 0}
    selector = read_path(obj, paths.selector) if paths.selector else None
    if selector:
        status["selector"] = selector
    desired = read_path(obj, paths.spec)
    if desired is None:
        message = f'the spec replicas field ".{".".join(paths.spec)}" does not exist'
        details = {"causes": [{"message": message}]}
        raise errors.internal(message, details)
    spec = {"replicas": desired} if desired else {}
    scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": shown}
    return {**scale, "spec": spec, "status": status}


def write_scale(
    writer: Writer, target: Target, paths: Scale, edit: Edit, options: WriteOptions
) -> WriteResult:
    """Change the replicas of a custom resource; ``edit`` returns the new Scale."""

    def edit_scale(old: Json) -> Json:
        desired: Any = edit(get_scale(old, paths))
        if not isinstance(desired, dict) or desired.get("kind", "Scale") != "Scale":
            raise errors.bad_request("expected input object type to be Scale")
        replicas = (desired.get("spec") or {}).get("replicas", 0)
        meta = desired.get("metadata") or {}
        changed = _set(old, paths.spec, replicas)
        identity = {
            key: meta[key] for key in ("name", "namespace", "resourceVersion", "uid") if meta.get(key)
        }
        return {**changed, "metadata": {**old["metadata"], **identity}}

    main = Target(target.resource, target.namespace, target.name)
    result = writer.patch(main, edit_scale, options)
    return WriteResult(get_scale(result.object, paths), result.code, result.warnings)


def bind(writer: Writer, target: Target, body: Any, options: WriteOptions) -> WriteResult:
    """Bind an unscheduled pod to a node."""
    node = read_path(body, ("target", "name"))
    kind = read_path(body, ("target", "kind"))
    if not node or (kind and kind != "Node"):
        raise errors.StatusError(500, "", field_errors.required("target.name").text)
    entry = writer.find(target)
    pod, subject = entry.object, f"{target.resource.plural}/binding"
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {target.name} is being deleted, cannot be assigned to a host"
        raise errors.conflict("", subject, target.name, why)
    if pod["spec"].get("nodeName"):
        why = f'pod {target.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        raise errors.conflict("", subject, target.name, why)
    if not options.dry_run:
        writer.put(target.resource, _with_node(writer, entry, node))
    return WriteResult(CREATED, 201)


def _with_node(writer: Writer, entry: Entry, node: str) -> Json:
    pod = entry.object
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": format_time(writer.clock()),
    }
    status = pod.get("status") or {}
    others = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    return {
        **pod,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*others, scheduled]},
    }


def evict(writer: Writer, target: Target, body: Any) -> WriteResult:
    """Evict a pod. The server has no disruption budgets."""
    options = DeleteOptions.read({}, read_path(body, ("deleteOptions",)))
    delete(writer, target, options)
    return WriteResult(CREATED, 201)
