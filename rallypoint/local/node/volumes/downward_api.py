"""The downward API, for variables and for files. Pure.

Source: Kubernetes, pkg/fieldpath/fieldpath.go, pkg/api/v1/resource/helpers.go, pkg/kubelet/kubelet_pods.go.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from api import quantity
from rallypoint.local.manifest import containers
from rallypoint.local.node.volumes.references import Unresolved

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]\Z")
_ESCAPES = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"} | {
    '"': r"\"",
    "\\": r"\\",
}


@dataclass(frozen=True, slots=True)
class Placement:
    """The fields of a pod that come from its node."""

    node: str
    host_ip: str
    pod_ip: str
    allocatable: Mapping[str, Fraction]


def field(pod: Mapping[str, Any], placement: Placement, path: str) -> str:
    """Return the value of a ``fieldRef``.

    Raises:
        Unresolved: the downward API has no such field.
    """
    meta, spec = pod["metadata"], pod["spec"]
    if match := _SUBSCRIPT.match(path):
        return str((meta.get(match.group(1)) or {}).get(match.group(2), ""))
    fields = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "metadata.labels": _lines(meta.get("labels")),
        "metadata.annotations": _lines(meta.get("annotations")),
        "spec.nodeName": placement.node,
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.hostIP": placement.host_ip,
        "status.hostIPs": placement.host_ip,
        "status.podIP": placement.pod_ip,
        "status.podIPs": placement.pod_ip,
    }
    if path not in fields:
        raise Unresolved(f"unsupported fieldPath: {path}")
    return str(fields[path])


def resource(
    pod: Mapping[str, Any], container: Mapping[str, Any], placement: Placement, selector: Mapping[str, Any]
) -> str:
    """Return the value of a ``resourceFieldRef``; an unset limit is the node's allocatable amount.

    Raises:
        Unresolved: the container does not exist, or the resource is unsupported.
    """
    if other := selector.get("containerName"):
        named = next((c for c in containers(pod) if c["name"] == other), None)
        if named is None:
            raise Unresolved(f"container {other} not found")
        container = named
    side, _, name = str(selector["resource"]).partition(".")
    resources = container.get("resources") or {}
    amount = (resources.get(side) or {}).get(name)
    if side not in ("limits", "requests") or not name:
        raise Unresolved(f"unsupported container resource: {selector['resource']}")
    if amount is None and side == "requests":
        amount = (resources.get("limits") or {}).get(name)
    default = placement.allocatable.get(name, Fraction(0)) if side == "limits" else Fraction(0)
    given = default if amount is None else quantity.parse(amount)
    divisor = quantity.parse(selector.get("divisor") or "1")
    return str(quantity.times(given, divisor or Fraction(1)))


def _lines(pairs: Mapping[str, str] | None) -> str:
    """Format labels or annotations as sorted lines ``key="value"``, quoted as by Go's ``%q``."""
    return "\n".join(f'{key}="{_escaped(value)}"' for key, value in sorted((pairs or {}).items()))


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(letter) or _visible(letter) for letter in text)


def _visible(letter: str) -> str:
    code = ord(letter)
    if letter.isprintable():
        return letter
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
