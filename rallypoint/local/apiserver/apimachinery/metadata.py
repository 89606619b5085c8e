"""Object metadata: creates it, carries it over to updated objects and validates it.

Source: apiserver, pkg/registry/rest/{create,update}.go; apimachinery, pkg/api/validation/objectmeta.go.
"""

import random
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from api.times import format_time
from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.unstructured import Json

ANNOTATIONS_LIMIT = 256 * 1024
"""Limit of the total size of all annotations in bytes."""

STANDARD_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")

WRITABLE = ("labels", "annotations", "ownerReferences", "finalizers")
"""Fields that clients set. The server ignores what clients send for the others."""


def create_metadata(
    requested: Json, namespace: str, now: datetime, rng: random.Random, *, generation: bool
) -> Json:
    """Create the metadata of a new object."""
    result: Json = {}
    name = requested.get("name") or ""
    if not name and requested.get("generateName"):
        name = names.generate(requested["generateName"], rng)
    if name:
        result["name"] = name
    if requested.get("generateName"):
        result["generateName"] = requested["generateName"]
    if namespace:
        result["namespace"] = namespace
    result["uid"] = str(uuid.uuid4())
    result["resourceVersion"] = ""
    if generation or requested.get("generation"):
        result["generation"] = 1 if generation else requested["generation"]
    result["creationTimestamp"] = format_time(now)
    return result | {key: requested[key] for key in WRITABLE if requested.get(key)}


def carry_over(new: Json, old: Json) -> Json:
    """Return the metadata of an updated object: fields that clients cannot set come from the old object."""
    result = {key: value for key, value in old.items() if key not in WRITABLE}
    return result | {key: new[key] for key in WRITABLE if new.get(key)}


def validate(
    metadata: Json, validate_name: Callable[[str], str], *, old: Json | None = None
) -> Iterator[FieldError]:
    """Yield the errors in the metadata of a new or updated object."""
    name = metadata.get("name", "")
    if not name:
        yield field_errors.required("metadata.name", "name or generateName is required")
    elif old is None and (wrong := validate_name(name)):
        yield field_errors.invalid("metadata.name", name, wrong)
    yield from validate_labels(metadata.get("labels") or {}, "metadata.labels")
    yield from validate_annotations(metadata.get("annotations") or {}, "metadata.annotations")
    yield from _validate_owners(metadata.get("ownerReferences") or [])
    for i, finalizer in enumerate(metadata.get("finalizers") or []):
        yield from _validate_finalizer(f"metadata.finalizers[{i}]", finalizer)
    if old is not None and old.get("deletionTimestamp"):
        added = [
            name for name in metadata.get("finalizers") or [] if name not in (old.get("finalizers") or [])
        ]
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            found = f"found new finalizers []string{{{listed}}}"
            detail = f"no new finalizers can be added if the object is being deleted, {found}"
            yield field_errors.forbidden("metadata.finalizers", detail)


def validate_labels(labels: Json, path: str) -> Iterator[FieldError]:
    for key, value in labels.items():
        if wrong := names.qualified(key):
            yield field_errors.invalid(path, key, wrong)
        if wrong := names.label_value(value):
            yield field_errors.invalid(path, value, wrong)


def validate_unique_name(
    obj: Json, path: str, used_names: set[str], validate_name: Callable[[str], str] = names.label
) -> Iterator[FieldError]:
    """Yield the error in the name of an item of a list, if there is one, and add the name to ``used_names``, those of the items before it."""
    name = obj.get("name", "")
    if not name:
        yield field_errors.required(f"{path}.name")
    elif wrong := validate_name(name):
        yield field_errors.invalid(f"{path}.name", name, wrong)
    elif name in used_names:
        yield field_errors.duplicate(f"{path}.name", name)
    used_names.add(name)


def validate_annotations(annotations: Json, path: str) -> Iterator[FieldError]:
    for key in annotations:
        if wrong := names.qualified(key.lower()):
            yield field_errors.invalid(path, key, wrong)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT:
        yield field_errors.too_long(path, ANNOTATIONS_LIMIT)


def _validate_owners(owners: list[Any]) -> Iterator[FieldError]:
    path = "metadata.ownerReferences"
    for owner in owners:
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                detail = "version must not be empty" if key == "apiVersion" else "must not be empty"
                yield field_errors.invalid(f"{path}.{key}", owner.get(key, ""), detail)
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        found = " and ".join(f"{owner.get('kind')}/{owner.get('name')}" for owner in controllers[:2])
        detail = f'Only one reference can have Controller set to true. Found "true" in references for {found}'
        yield field_errors.invalid(path, owners, detail)


def _validate_finalizer(path: str, finalizer: str) -> Iterator[FieldError]:
    if wrong := names.qualified(finalizer):
        yield field_errors.invalid("metadata.finalizers", finalizer, wrong)
    if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        yield field_errors.invalid(path, finalizer, detail)
