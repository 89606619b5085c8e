"""Whole objects as an informer's rows: local mode looks at too much of a pod to list it field by field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    namespace: str
    name: str
    uid: str
    resource_version: int
    manifest: Manifest = field(repr=False, compare=False)


def containers(pod: Manifest) -> list[Manifest]:
    """The init containers of a pod, then the others."""
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def decode(raw: msgspec.Raw) -> Row:
    """A row of an object's JSON."""
    manifest: dict[str, Any] = msgspec.json.decode(raw)
    meta = manifest["metadata"]
    return Row(meta.get("namespace", ""), meta["name"], meta["uid"], int(meta["resourceVersion"]), manifest)
