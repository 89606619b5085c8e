"""The variables of a container by the kubelet's rules, ``$(NAME)`` references, and the variables of Services. Pure.

``Sources`` has the data of ConfigMaps and Secrets; ``references`` lists the needed ones. ``launch`` adds the user's own
environment.

Source: Kubernetes, pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables, getServiceEnvVarMap),
pkg/kubelet/envvars/envvars.go, third_party/forked/golang/expansion/expand.go.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rallypoint.local.node.volumes.downward_api import Placement, field, resource
from rallypoint.local.node.volumes.references import KINDS, Reference, Unresolved

_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_NO_LINKS: Mapping[str, str] = {}
HEADLESS = "None"

Sources: TypeAlias = Mapping[Reference, Mapping[str, str] | None]
"""The data of each reference; None if the object does not exist."""


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    value: str
    written: bool = True
    """Whether the value is text from the manifest or from an object that it names. The isolation rewrites names only
    in such text, not in fields of the pod such as its name, address and resources."""


def references(container: Mapping[str, Any]) -> Iterator[Reference]:
    sources = [(source, "Ref") for source in container.get("envFrom") or ()]
    sources += [(entry.get("valueFrom") or {}, "KeyRef") for entry in container.get("env") or ()]
    for source, suffix in sources:
        for kind in KINDS:
            if chosen := source.get(kind + suffix):
                yield Reference(kind, chosen.get("name", ""))


def variables(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    placement: Placement,
    sources: Sources,
    links: Mapping[str, str] = _NO_LINKS,
) -> dict[str, Variable]:
    """Return the container's variables. A later entry of the same name wins; each entry can refer to earlier ones.

    ``links`` are the variables of Services. Entries can refer to them and override them.

    Raises:
        Unresolved: a required object, key or field does not exist.
    """
    found = {name: Variable(name, value, written=False) for name, value in links.items()}
    values = dict(links)
    for entry in container.get("envFrom") or ():
        for name, value in _env_from(entry, sources).items():
            if _is_name(name):
                found[name], values[name] = Variable(name, value), value
    for entry in container.get("env") or ():
        variable = _variable(entry, pod, container, placement, sources, values)
        if variable is not None:
            found[variable.name], values[variable.name] = variable, variable.value
    return found


def skipped(pod: Mapping[str, Any], container: Mapping[str, Any], sources: Sources) -> Iterator[str]:
    """Yield a message for each ``envFrom`` with keys that are not valid names of variables.

    Raises:
        Unresolved: a required object does not exist.
    """
    for entry in container.get("envFrom") or ():
        invalid = sorted(name for name in _env_from(entry, sources) if not _is_name(name))
        kind = next((kind for kind in KINDS if entry.get(f"{kind}Ref")), "")
        if invalid:
            yield (
                f"Keys [{', '.join(invalid)}] from the EnvFrom {kind} {pod['metadata']['namespace']}/"
                f"{entry[f'{kind}Ref']['name']} were skipped since they are considered invalid environment variable names."
            )


def _is_name(word: str) -> bool:
    """Source: apimachinery, pkg/util/validation/validation.go, IsEnvVarName."""
    return _NAME.fullmatch(word) is not None and word != "." and not word.startswith("..")


def _variable(
    entry: Mapping[str, Any],
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    placement: Placement,
    sources: Sources,
    known: Mapping[str, str],
) -> Variable | None:
    """Return the variable; None if the entry is optional and its source is missing."""
    name, source = entry["name"], entry.get("valueFrom")
    if entry.get("value") or not source:
        return Variable(name, expand(entry.get("value") or "", known))
    if chosen := source.get("fieldRef"):
        return Variable(name, field(pod, placement, chosen["fieldPath"]), written=False)
    if chosen := source.get("resourceFieldRef"):
        return Variable(name, resource(pod, container, placement, chosen), written=False)
    for kind in KINDS:
        if chosen := source.get(f"{kind}KeyRef"):
            value = _key(kind, chosen, pod, sources)
            return None if value is None else Variable(name, value)
    raise Unresolved(f"variable {name}: its valueFrom has no supported source")


def _env_from(entry: Mapping[str, Any], sources: Sources) -> dict[str, str]:
    prefix = entry.get("prefix") or ""
    for kind in KINDS:
        if chosen := entry.get(f"{kind}Ref"):
            data = _data(kind, chosen, sources) or {}
            return {prefix + key: value for key, value in data.items()}
    return {}


def _key(kind: str, chosen: Mapping[str, Any], pod: Mapping[str, Any], sources: Sources) -> str | None:
    data = _data(kind, chosen, sources)
    if data is None or chosen["key"] in data:
        return None if data is None else data[chosen["key"]]
    if chosen.get("optional"):
        return None
    object_kind = {"configMap": "ConfigMap", "secret": "Secret"}[kind]
    raise Unresolved(
        f"couldn't find key {chosen['key']} in {object_kind} {pod['metadata']['namespace']}/{chosen['name']}"
    )


def _data(kind: str, chosen: Mapping[str, Any], sources: Sources) -> Mapping[str, str] | None:
    data = sources.get(Reference(kind, chosen.get("name", "")))
    if data is None and not chosen.get("optional"):
        raise Unresolved(f'{kind.lower()} "{chosen.get("name", "")}" not found')
    return data


def expand(text: str, variables: Mapping[str, str], *, strict: bool = False) -> str:
    """Replace each ``$(NAME)`` once and each ``$$`` by ``$``. Every other ``$`` and unknown names stay as they are.

    Raises:
        KeyError: a name is unknown and ``strict`` is set.
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        return variables[name] if strict else variables.get(name, match.group(0))

    return _REFERENCE.sub(value, text)


def service_links(pod: Mapping[str, Any], services: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the variables of the Services in the pod's namespace; none if ``enableServiceLinks`` is false."""
    if pod["spec"].get("enableServiceLinks") is False:
        return {}
    namespace = pod["metadata"]["namespace"]
    own = (service for service in services if service["metadata"]["namespace"] == namespace)
    return {name: value for service in own for name, value in service_variables(service).items()}


def service_variables(service: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of one Service; none if it has no cluster IP."""
    spec = service["spec"]
    address, ports = spec.get("clusterIP") or HEADLESS, spec.get("ports") or ()
    if address == HEADLESS or not ports:
        return {}
    stem = _name(service["metadata"]["name"])
    found = {f"{stem}_SERVICE_HOST": str(address), f"{stem}_SERVICE_PORT": str(ports[0]["port"])}
    for port in ports:
        if port.get("name"):
            found[f"{stem}_SERVICE_PORT_{_name(port['name'])}"] = str(port["port"])
    for port in reversed(ports):
        found |= _link(stem, address, port)
    return found


def _link(stem: str, address: str, port: Mapping[str, Any]) -> dict[str, str]:
    protocol, number = str(port.get("protocol") or "TCP"), port["port"]
    url, prefix = f"{protocol.lower()}://{address}:{number}", f"{stem}_PORT_{number}_{protocol.upper()}"
    return {
        f"{stem}_PORT": url,
        prefix: url,
        f"{prefix}_PROTO": protocol.lower(),
        f"{prefix}_PORT": str(number),
        f"{prefix}_ADDR": address,
    }


def _name(word: str) -> str:
    return word.upper().replace("-", "_")
