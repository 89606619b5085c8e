"""Objects as plain mappings, and informer rows with whole objects: local mode needs most fields of a pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from api.meta import Resource

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    namespace: str
    name: str
    uid: str
    resource_version: int
    manifest: Manifest = field(repr=False, compare=False)


def containers(pod: Manifest) -> list[Manifest]:
    """Return the containers of a pod, init containers first."""
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def decode(raw: msgspec.Raw) -> Row:
    """Return the row of an object's JSON."""
    manifest: dict[str, Any] = msgspec.json.decode(raw)
    meta = manifest["metadata"]
    return Row(meta.get("namespace", ""), meta["name"], meta["uid"], int(meta["resourceVersion"]), manifest)


def controller_uid(obj: Manifest) -> str:
    """Return the UID of the object's controller; empty without one."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return str(next((owner["uid"] for owner in owners if owner.get("controller")), ""))


def controller_reference(resource: Resource, metadata: Manifest) -> dict[str, Any]:
    """Return the owner reference to a controller with that metadata."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def from_template(
    resource: Resource, template: Manifest, owner: dict[str, Any], **metadata: Any
) -> dict[str, Any]:
    """Return an object from a template with its labels and annotations, owned by ``owner``."""
    given = template.get("metadata") or {}
    template_metadata = {part: given[part] for part in ("labels", "annotations") if given.get(part)}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {**template_metadata, **metadata, "ownerReferences": [owner]},
        "spec": template["spec"],
    }
