"""The variables of a container, by the kubelet's rules. Pure.

What ConfigMaps and Secrets hold is an argument (``Sources``); ``references`` says which ones are needed. What the
person's own environment adds underneath belongs to ``launch``.

Source: Kubernetes, pkg/kubelet/kubelet_pods.go, makeEnvironmentVariables.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from api import quantity
from controller.local.node.expansion import expand

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]\Z")
_KINDS = {"configMap": "configmap", "secret": "secret"}


class Unresolved(Exception):
    """A variable cannot be given a value (yet). The text is what a kubelet says in the container's waiting message."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A ConfigMap or a Secret that a container takes values from."""

    kind: str
    """``configmap`` or ``secret``."""
    name: str


Sources: TypeAlias = Mapping[Reference, Mapping[str, str] | None]
"""The data of each reference; None where the object does not exist."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod runs: what only the node can tell."""

    node: str
    host_ip: str
    pod_ip: str
    allocatable: Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    value: str
    written: bool = True
    """Whether the manifest (or an object it names) spells the value. The pod's own name, address and amounts do not:
    they are facts, and stay what they are where isolation rewrites names."""


def references(container: Mapping[str, Any]) -> Iterator[Reference]:
    for source in container.get("envFrom") or ():
        for kind, short in _KINDS.items():
            if chosen := source.get(f"{kind}Ref"):
                yield Reference(short, chosen.get("name", ""))
    for entry in container.get("env") or ():
        for kind, short in _KINDS.items():
            if chosen := (entry.get("valueFrom") or {}).get(f"{kind}KeyRef"):
                yield Reference(short, chosen.get("name", ""))


def variables(
    pod: Mapping[str, Any], container: Mapping[str, Any], place: Place, sources: Sources
) -> dict[str, Variable]:
    """The container's variables; a later entry of the same name wins, and each sees those before it.

    Raises:
        Unresolved: an object, a key or a field that is needed does not exist.
    """
    found: dict[str, Variable] = {}
    for entry in container.get("envFrom") or ():
        for name, value in _all_of(entry, pod, sources).items():
            found[name] = Variable(name, value)
    for entry in container.get("env") or ():
        variable = _variable(entry, pod, container, place, sources, found)
        if variable is not None:
            found[variable.name] = variable
    return found


def _variable(
    entry: Mapping[str, Any],
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    place: Place,
    sources: Sources,
    found: Mapping[str, Variable],
) -> Variable | None:
    """None when the entry is optional and its source has nothing."""
    name, source = entry["name"], entry.get("valueFrom")
    if entry.get("value") or not source:
        return Variable(name, expand(entry.get("value") or "", {n: v.value for n, v in found.items()}))
    if chosen := source.get("fieldRef"):
        return Variable(name, field(pod, place, chosen["fieldPath"]), written=False)
    if chosen := source.get("resourceFieldRef"):
        return Variable(name, resource(pod, container, place, chosen), written=False)
    for kind, short in _KINDS.items():
        if chosen := source.get(f"{kind}KeyRef"):
            value = _key(short, chosen, pod, sources)
            return None if value is None else Variable(name, value)
    raise Unresolved(f"variable {name}: its valueFrom is of no known kind")


def _all_of(entry: Mapping[str, Any], pod: Mapping[str, Any], sources: Sources) -> dict[str, str]:
    prefix = entry.get("prefix") or ""
    for kind, short in _KINDS.items():
        if chosen := entry.get(f"{kind}Ref"):
            data = _data(short, chosen, pod, sources) or {}
            return {prefix + key: value for key, value in data.items()}
    return {}


def _key(short: str, chosen: Mapping[str, Any], pod: Mapping[str, Any], sources: Sources) -> str | None:
    data = _data(short, chosen, pod, sources)
    if data is None or chosen["key"] in data:
        return None if data is None else data[chosen["key"]]
    if chosen.get("optional"):
        return None
    kind = {"configmap": "ConfigMap", "secret": "Secret"}[short]
    raise Unresolved(
        f"couldn't find key {chosen['key']} in {kind} {pod['metadata']['namespace']}/{chosen['name']}"
    )


def _data(
    short: str, chosen: Mapping[str, Any], pod: Mapping[str, Any], sources: Sources
) -> Mapping[str, str] | None:
    data = sources.get(Reference(short, chosen.get("name", "")))
    if data is None and not chosen.get("optional"):
        raise Unresolved(f'{short} "{chosen.get("name", "")}" not found')
    return data


def field(pod: Mapping[str, Any], place: Place, path: str) -> str:
    """The value of a ``fieldRef``.

    Raises:
        Unresolved: pods have no such field to give.
    """
    meta, spec = pod["metadata"], pod["spec"]
    if match := _SUBSCRIPT.match(path):
        return str((meta.get(match.group(1)) or {}).get(match.group(2), ""))
    fields = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": place.node,
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.hostIP": place.host_ip,
        "status.hostIPs": place.host_ip,
        "status.podIP": place.pod_ip,
        "status.podIPs": place.pod_ip,
    }
    if path not in fields:
        raise Unresolved(f"unsupported fieldPath: {path}")
    return str(fields[path])


def resource(
    pod: Mapping[str, Any], container: Mapping[str, Any], place: Place, chosen: Mapping[str, Any]
) -> str:
    """The value of a ``resourceFieldRef``; a limit that is not set is what the node has.

    Raises:
        Unresolved: another container is named that does not exist, or the resource is of no known form.
    """
    if other := chosen.get("containerName"):
        everyone = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]
        named = next((c for c in everyone if c["name"] == other), None)
        if named is None:
            raise Unresolved(f"container {other} not found")
        container = named
    side, _, name = str(chosen["resource"]).partition(".")
    resources = container.get("resources") or {}
    amount = (resources.get(side) or {}).get(name)
    if side not in ("limits", "requests") or not name:
        raise Unresolved(f"unsupported container resource: {chosen['resource']}")
    if amount is None and side == "requests":
        amount = (resources.get("limits") or {}).get(name)
    nothing = place.allocatable.get(name, Fraction(0)) if side == "limits" else Fraction(0)
    given = nothing if amount is None else quantity.parse(amount)
    divisor = quantity.parse(chosen.get("divisor") or "1")
    return str(quantity.times(given, divisor or Fraction(1)))
