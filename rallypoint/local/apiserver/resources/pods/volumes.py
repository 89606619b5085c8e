"""Validation of the volumes of a pod and of downward API references.

Source: kubernetes, pkg/apis/core/validation/validation.go.
"""

import re
from collections.abc import Callable, Collection, Iterator

from api.quantity import value as amount
from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.metadata import validate_unique_name
from rallypoint.local.apiserver.apimachinery.unstructured import Json

KINDS = (
    "emptyDir", "hostPath", "secret", "persistentVolumeClaim", "downwardAPI", "configMap", "projected", "ephemeral",
)  # fmt: skip
"""In the order of validation."""

ENV_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
VOLUME_FIELDS = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
FIELDS = {
    *ENV_FIELDS,
    *VOLUME_FIELDS,
    "spec.host",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
}
"""The fields of the downward API; environment variables and volumes each support a part of them."""
SUBSCRIPT = re.compile(r"(?P<path>.*)\['(?P<key>[^']*)'\]")
RESOURCE_FIELDS = tuple(
    f"{side}.{name}" for side in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")

INVALID_MODE = "must be a number between 0 and 0777 (octal), both inclusive"


def validate_volume(volume: Json, path: str, used_names: set[str]) -> Iterator[FieldError]:
    """Validate a volume; add its name to ``used_names`` if the volume is valid, as only valid ones can be mounted."""
    found = [*_sources(volume, path), *validate_unique_name(volume, path, set(used_names))]
    yield from found
    if not found:
        used_names.add(volume["name"])


def _sources(volume: Json, path: str) -> Iterator[FieldError]:
    kinds = [kind for kind in KINDS if volume.get(kind) is not None]
    for kind in kinds[1:]:
        yield field_errors.forbidden(f"{path}.{kind}", "may not specify more than 1 volume type")
    for kind in kinds[:1]:
        if kind in CHECKS:
            yield from CHECKS[kind](volume[kind], f"{path}.{kind}")


def _empty_dir(source: Json, path: str) -> Iterator[FieldError]:
    if amount(str(source.get("sizeLimit") or 0)) < 0:
        yield field_errors.forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _host_path(source: Json, path: str) -> Iterator[FieldError]:
    if not source.get("path"):
        yield field_errors.required(f"{path}.path")
    elif ".." in source["path"].split("/"):
        yield field_errors.invalid(f"{path}.path", source["path"], "must not contain '..'")


def _claim(source: Json, path: str) -> Iterator[FieldError]:
    if not source.get("claimName"):
        yield field_errors.required(f"{path}.claimName")


def _config_map(source: Json, path: str) -> Iterator[FieldError]:
    yield from _keys(source, path, "name")


def _secret(source: Json, path: str) -> Iterator[FieldError]:
    yield from _keys(source, path, "secretName")


def _keys(source: Json, path: str, name: str) -> Iterator[FieldError]:
    """Validate a volume of the keys of an object; ``name`` is the field with its name."""
    if not source.get(name):
        yield field_errors.required(f"{path}.{name}")
    yield from _mode(source, path, "defaultMode")
    for i, item in enumerate(source.get("items") or ()):
        if not item.get("key"):
            yield field_errors.required(f"{path}.items[{i}].key")
        yield from _file(item, f"{path}.items[{i}]")
        yield from _mode(item, f"{path}.items[{i}]", "mode")


def _downward_api(source: Json, path: str) -> Iterator[FieldError]:
    yield from _mode(source, path, "defaultMode")
    for item in source.get("items") or ():
        yield from _file(item, path)
        if item.get("fieldRef") is not None:
            yield from validate_field_ref(item["fieldRef"], f"{path}.fieldRef", VOLUME_FIELDS)
            if item.get("resourceFieldRef") is not None:
                detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
                yield field_errors.invalid(path, "resource", detail)
        elif item.get("resourceFieldRef") is not None:
            yield from validate_resource_field_ref(
                item["resourceFieldRef"], f"{path}.resourceFieldRef", needs_container=True
            )
        else:
            yield field_errors.required(path, "one of fieldRef and resourceFieldRef is required")
        yield from _mode(item, path, "mode")


def _projected(source: Json, path: str) -> Iterator[FieldError]:
    yield from _mode(source, path, "defaultMode")
    for i, part in enumerate(source.get("sources") or ()):
        inner = f"{path}.sources[{i}]"
        for kind in ("secret", "configMap"):
            if part.get(kind) is not None:
                yield from _keys(part[kind], f"{inner}.{kind}", "name")
        if part.get("downwardAPI") is not None:
            yield from _downward_api(part["downwardAPI"], f"{inner}.downwardAPI")


CHECKS: dict[str, Callable[[Json, str], Iterator[FieldError]]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "secret": _secret,
    "persistentVolumeClaim": _claim,
    "downwardAPI": _downward_api,
    "configMap": _config_map,
    "projected": _projected,
}


def _mode(holder: Json, path: str, name: str) -> Iterator[FieldError]:
    mode = holder.get(name)
    if mode is not None and not 0 <= mode <= 0o777:
        yield field_errors.invalid(f"{path}.{name}", mode, INVALID_MODE)


def _file(item: Json, path: str) -> Iterator[FieldError]:
    if not item.get("path"):
        yield field_errors.required(f"{path}.path")
    elif wrong := names.file_path(item["path"]):
        yield field_errors.invalid(f"{path}.path", item["path"], wrong)


def validate_field_ref(reference: Json, path: str, allowed: Collection[str]) -> Iterator[FieldError]:
    """Validate a ``fieldRef`` of the downward API."""
    requested = reference.get("fieldPath")
    if not requested:
        yield field_errors.required(f"{path}.fieldPath")
        return
    subscript = SUBSCRIPT.fullmatch(requested)
    name = subscript["path"] if subscript else requested
    if name not in FIELDS:
        yield _field_path_error(path, requested, f"not supported: {name}")
    elif subscript and name not in ("metadata.annotations", "metadata.labels"):
        yield _field_path_error(path, requested, f"does not support subscript: {requested}")
    elif subscript:
        key = subscript["key"]
        if wrong := names.qualified(key.lower() if name == "metadata.annotations" else key):
            yield field_errors.invalid(path, key, wrong)
    elif name not in allowed:
        yield field_errors.not_supported(f"{path}.fieldPath", name, allowed)


def _field_path_error(path: str, requested: str, why: str) -> FieldError:
    return field_errors.invalid(
        f"{path}.fieldPath", requested, f"error converting fieldPath: field label {why}"
    )


def validate_resource_field_ref(
    reference: Json, path: str, *, needs_container: bool = False
) -> Iterator[FieldError]:
    """Validate a ``resourceFieldRef`` of the downward API."""
    requested = reference.get("resource")
    if needs_container and not reference.get("containerName"):
        yield field_errors.required(f"{path}.containerName")
    elif not requested:
        yield field_errors.required(f"{path}.resource")
    elif requested not in RESOURCE_FIELDS and not requested.startswith(HUGE_PAGES):
        yield field_errors.not_supported(f"{path}.resource", requested, RESOURCE_FIELDS)
