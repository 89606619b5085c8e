"""Validation of the containers of a pod.

Source: kubernetes, pkg/apis/core/validation/validation.go and pkg/apis/core/helper/helpers.go.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from api.quantity import value as amount
from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.metadata import validate_unique_name
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources.pods import probes, security, volumes

STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")
"""Resources without a domain that containers can request, besides huge pages."""
HUGE_PAGES = "hugepages-"
VALUE_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
NO_SOURCE = "must specify one of: "
SEVERAL_SOURCES = "may not have more than one field specified at a time"


def validate_containers(spec: Json, path: str, mountable: set[str]) -> Iterator[FieldError]:
    """Validate all containers of a pod; ``mountable`` are the names of its volumes."""
    used_names: set[str] = set()
    if not spec.get("containers"):
        yield field_errors.required(f"{path}.containers")
    grace_seconds = spec.get("terminationGracePeriodSeconds", 30)
    for role in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(role) or ()):
            item_path = f"{path}.{role}[{i}]"
            yield from _container(container, item_path, mountable, used_names)
            if role == "initContainers" and container.get("restartPolicy") != "Always":
                yield from probes.validate_init_container(container, item_path)
            else:
                yield from probes.validate_lifecycle(container, item_path, grace_seconds)


def _container(container: Json, path: str, mountable: set[str], used_names: set[str]) -> Iterator[FieldError]:
    if not container.get("image"):
        yield field_errors.required(f"{path}.image")
    elif container["image"] != container["image"].strip():
        yield field_errors.invalid(
            f"{path}.image", container["image"], "must not have leading or trailing whitespace"
        )
    yield from validate_unique_name(container, path, used_names)
    yield from _ports(container.get("ports") or (), f"{path}.ports")
    yield from _environment(container.get("env") or (), f"{path}.env")
    yield from _env_from(container.get("envFrom") or (), f"{path}.envFrom")
    yield from _mounts(container.get("volumeMounts") or (), f"{path}.volumeMounts", mountable)
    yield from _resources(container.get("resources") or {}, f"{path}.resources")
    yield from security.validate_ids(container.get("securityContext") or {}, f"{path}.securityContext")


def _ports(ports: list[Json] | tuple[()], path: str) -> Iterator[FieldError]:
    used_names: set[str] = set()
    for i, port in enumerate(ports):
        name, number = port.get("name", ""), port.get("containerPort", 0)
        if name and (wrong := names.port(name)):
            yield field_errors.invalid(f"{path}[{i}].name", name, wrong)
        elif name in used_names and name:
            yield field_errors.duplicate(f"{path}[{i}].name", name)
        used_names.add(name)
        if number == 0:
            yield field_errors.required(f"{path}[{i}].containerPort")
        elif wrong := names.port_number(number):
            yield field_errors.invalid(f"{path}[{i}].containerPort", number, wrong)


def _environment(variables: list[Json] | tuple[()], path: str) -> Iterator[FieldError]:
    for i, variable in enumerate(variables):
        name = variable.get("name", "")
        if not name:
            yield field_errors.required(f"{path}[{i}].name")
        elif wrong := names.environment(name):
            yield field_errors.invalid(f"{path}[{i}].name", name, wrong)
        if variable.get("valueFrom") is not None:
            yield from _source(variable, f"{path}[{i}].valueFrom")


def _source(variable: Json, path: str) -> Iterator[FieldError]:
    """Validate the source of a variable's value."""
    source = variable["valueFrom"]
    kinds = [kind for kind in VALUE_SOURCES if source.get(kind) is not None]
    for kind in kinds:
        item_path = f"{path}.{kind}"
        if kind == "fieldRef":
            yield from volumes.validate_field_ref(source[kind], item_path, volumes.ENV_FIELDS)
        elif kind == "resourceFieldRef":
            yield from volumes.validate_resource_field_ref(source[kind], item_path)
        elif kind != "fileKeyRef":
            yield from _key(source[kind], item_path)
    if not kinds:
        listed = ", ".join(f"`{kind}`" for kind in VALUE_SOURCES[:-1])
        yield field_errors.invalid(path, "", f"{NO_SOURCE}{listed} or `{VALUE_SOURCES[-1]}`")
    elif variable.get("value"):
        yield field_errors.invalid(path, "", "may not be specified when `value` is not empty")
    elif len(kinds) > 1:
        yield field_errors.invalid(path, "", SEVERAL_SOURCES)


def _key(reference: Json, path: str) -> Iterator[FieldError]:
    """Validate a reference to a key of a ConfigMap or Secret."""
    name, key = reference.get("name", ""), reference.get("key", "")
    if wrong := names.subdomain(name):
        yield field_errors.invalid(f"{path}.name", name, wrong)
    if not key:
        yield field_errors.required(f"{path}.key")
    elif wrong := names.config_key(key):
        yield field_errors.invalid(f"{path}.key", key, wrong)


def _env_from(sources: list[Json] | tuple[()], path: str) -> Iterator[FieldError]:
    for i, source in enumerate(sources):
        kinds = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        for kind in kinds:
            name = source[kind].get("name", "")
            if not name:
                yield field_errors.required(f"{path}[{i}].{kind}.name")
            elif wrong := names.subdomain(name):
                yield field_errors.invalid(f"{path}[{i}].{kind}.name", name, wrong)
        if not kinds:
            yield field_errors.invalid(path, "", f"{NO_SOURCE}`configMapRef` or `secretRef`")
        elif len(kinds) > 1:
            yield field_errors.invalid(path, "", SEVERAL_SOURCES)


def _mounts(mounts: list[Json] | tuple[()], path: str, mountable: set[str]) -> Iterator[FieldError]:
    mount_paths: set[str] = set()
    for i, mount in enumerate(mounts):
        name, mount_path = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield field_errors.required(f"{path}[{i}].name")
        elif name not in mountable:
            yield FieldError("FieldValueNotFound", f"{path}[{i}].name", f'Not found: "{name}"')
        if not mount_path:
            yield field_errors.required(f"{path}[{i}].mountPath")
        elif mount_path in mount_paths:
            yield field_errors.invalid(f"{path}[{i}].mountPath", mount_path, "must be unique")
        mount_paths.add(mount_path)
        if mount.get("subPath") and mount.get("subPathExpr"):
            detail = "subPathExpr and subPath are mutually exclusive"
            yield field_errors.invalid(f"{path}[{i}].subPathExpr", mount["subPathExpr"], detail)
        for part in ("subPath", "subPathExpr"):
            if wrong := names.inner_path(mount.get(part) or ""):
                yield field_errors.invalid(f"{path}.{part}", mount[part], wrong)


def _resources(resources: Json, path: str) -> Iterator[FieldError]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, text in limits.items():
        yield from _quantity(name, text, f"{path}.limits[{name}]")
    for name, text in requests.items():
        yield from _quantity(name, text, f"{path}.requests[{name}]")
        yield from _request(name, text, limits, path)


def _quantity(name: str, text: Any, path: str) -> Iterator[FieldError]:
    if wrong := names.qualified(name):
        yield field_errors.invalid(path, name, wrong)
    if "/" in name:
        if _is_extended(name) and names.qualified(name):
            yield field_errors.invalid(path, name, "doesn't follow extended resource name standard")
    elif name not in STANDARD_RESOURCES and not name.startswith(HUGE_PAGES):
        yield field_errors.invalid(path, name, "must be a standard resource type or fully qualified")
        yield field_errors.invalid(path, name, "must be a standard resource for containers")
    if amount(str(text)) < 0:
        yield field_errors.negative(path, text)
    if _is_extended(name) and amount(str(text)).denominator != 1:
        yield field_errors.invalid(path, text, "must be an integer")


def _request(name: str, text: Any, limits: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Validate a request against its limit; both must be equal for resources that cannot be overcommitted."""
    is_overcommittable = not _is_extended(name) and not name.startswith(HUGE_PAGES)
    if name not in limits:
        if not is_overcommittable:
            yield field_errors.required(
                f"{path}.limits", "Limit must be set for non overcommitable resources"
            )
        return
    request, limit = amount(str(text)), amount(str(limits[name]))
    if request != limit and not is_overcommittable:
        yield field_errors.invalid(
            f"{path}.requests", text, f"must be equal to {name} limit of {limits[name]}"
        )
    elif request > limit:
        detail = f"must be less than or equal to {name} limit of {limits[name]}"
        yield field_errors.invalid(f"{path}.requests", text, detail)


def _is_extended(name: str) -> bool:
    """Return whether it is an extended resource, such as GPUs."""
    return "/" in name and "kubernetes.io/" not in name
