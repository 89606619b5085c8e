"""Services: defaults, cluster IPs and validation.

Source: kubernetes, pkg/apis/core/v1/defaults.go, pkg/apis/core/validation/validation.go (ValidateService).
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.metadata import validate_labels
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources.resource import Strategy

HEADLESS = "None"
IP_FAMILIES = ("IPv4", "IPv6")


def default(service: Json) -> Json:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}})
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort", 0) in (0, ""):
            port["targetPort"] = port.get("port", 0)
    return service


def prepare(service: Json) -> Json:
    """Prepare a new service: one IP family, and a cluster IP unless it is headless."""
    spec = service["spec"]
    if spec["type"] != "ExternalName":
        address = spec.get("clusterIP") or _address(service["metadata"]["uid"])
        spec["clusterIP"] = address
        spec.setdefault("clusterIPs", [address])
        headless_without_selector = address == HEADLESS and not spec.get("selector")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if headless_without_selector else ["IPv4"])
        policy = "RequireDualStack" if headless_without_selector else "SingleStack"
        spec.setdefault("ipFamilyPolicy", policy)
    service["status"] = {"loadBalancer": {}}
    return service


def _address(uid: str) -> str:
    """Return a stable cluster IP. Nothing listens there."""
    high, low = blake2b(uid.encode(), digest_size=2).digest()
    return f"10.0.{high}.{low}"


def validate(service: Json) -> Iterator[FieldError]:
    spec = service.get("spec") or {}
    ports = spec.get("ports") or ()
    if not ports and spec.get("clusterIP") != HEADLESS and spec.get("type") != "ExternalName":
        yield field_errors.required("spec.ports")
    if spec.get("type") == "ExternalName" and not spec.get("externalName"):
        yield field_errors.required("spec.externalName")
    yield from _addresses(spec)
    used_names: set[str] = set()
    for i, port in enumerate(ports):
        yield from _port(port, f"spec.ports[{i}]", used_names, alone=len(ports) == 1)
    yield from validate_labels(spec.get("selector") or {}, "spec.selector")
    yield from _distinct(ports)


def _addresses(spec: Json) -> Iterator[FieldError]:
    address = spec.get("clusterIP")
    if address and address != HEADLESS and (wrong := names.ip_address(address)):
        yield field_errors.invalid("spec.clusterIPs[0]", address, wrong)
    for i, address in enumerate(spec.get("externalIPs") or ()):
        if wrong := names.ip_address(address):
            yield field_errors.invalid(f"spec.externalIPs[{i}]", address, wrong)
    for i, family in enumerate(spec.get("ipFamilies") or ()):
        if not family:
            yield field_errors.not_supported(f"spec.ipFamilies[{i}]", family, IP_FAMILIES)


def _port(port: Json, path: str, used_names: set[str], *, alone: bool) -> Iterator[FieldError]:
    name, number = port.get("name", ""), port.get("port", 0)
    if not name and not alone:
        yield field_errors.required(f"{path}.name")
    elif name and (wrong := names.label(name)):
        yield field_errors.invalid(f"{path}.name", name, wrong)
    elif name and name in used_names:
        yield field_errors.duplicate(f"{path}.name", name)
    used_names.add(name)
    if wrong := names.port_number(number):
        yield field_errors.invalid(f"{path}.port", number, wrong)
    target = port.get("targetPort")
    if target is not None and (wrong := names.port(target)):
        yield field_errors.invalid(f"{path}.targetPort", target, wrong)


def _distinct(ports: Any) -> Iterator[FieldError]:
    """Yield an error for each repeated pair of protocol and port."""
    taken: set[tuple[str, int]] = set()
    for i, port in enumerate(ports):
        key = (port.get("protocol", "TCP"), port.get("port", 0))
        if key in taken:
            value = {
                "Name": "", "Protocol": key[0], "AppProtocol": None, "Port": key[1], "TargetPort": 0, "NodePort": 0,
            }  # fmt: skip
            yield field_errors.duplicate(f"spec.ports[{i}]", value)
        taken.add(key)


def validate_update(new: Json, old: Json) -> Iterator[FieldError]:
    before, after = old["spec"].get("clusterIPs"), new["spec"].get("clusterIPs")
    if before and new["spec"].get("clusterIP") != old["spec"].get("clusterIP"):
        after = [new["spec"].get("clusterIP", "")]
    if before and after != before and new["spec"]["type"] != "ExternalName":
        yield field_errors.invalid("spec.clusterIPs[0]", after, "may not change once set")


STRATEGY = Strategy(
    default=default,
    prepare_create=prepare,
    validate=validate,
    validate_update=validate_update,
    validate_name=names.label,
    returns_deleted_object=True,
)
