"""The variables that tell a container of Services: ``NAME_SERVICE_HOST`` and the links of old. Pure.

Source: Kubernetes, pkg/kubelet/envvars/envvars.go; pkg/kubelet/kubelet_pods.go, getServiceEnvVarMap.
"""

from collections.abc import Iterable, Mapping
from typing import Any

HEADLESS = "None"


def service_links(pod: Mapping[str, Any], services: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Of the Services with a cluster address in the pod's namespace, unless ``enableServiceLinks`` is false."""
    if pod["spec"].get("enableServiceLinks") is False:
        return {}
    namespace = pod["metadata"]["namespace"]
    own = (service for service in services if service["metadata"]["namespace"] == namespace)
    return {name: value for service in own for name, value in variables(service).items()}


def variables(service: Mapping[str, Any]) -> dict[str, str]:
    """The variables of one Service; none of one without a cluster address."""
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
