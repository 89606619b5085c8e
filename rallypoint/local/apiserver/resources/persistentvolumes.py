"""PersistentVolumeClaims, PersistentVolumes and StorageClasses: defaults and validation.

Source: kubernetes, pkg/apis/core/v1/defaults.go, pkg/apis/core/validation/validation.go, pkg/apis/storage/v1/defaults.go,
plugin/pkg/admission/storage/storageobjectinuseprotection.
"""

from collections.abc import Iterator
from typing import Any

from api.quantity import value as amount
from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.selectors import validate_label_selector
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources.pods import scheduling
from rallypoint.local.apiserver.resources.resource import Strategy

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"
NOT_A_SOURCE = {
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
    "storageClassName", "volumeAttributesClassName", "volumeMode",
}  # fmt: skip
"""Fields of a volume's spec other than its source."""


def _default_claim(claim: Json) -> Json:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    return claim


def _new_claim(claim: Json) -> Json:
    claim["status"] = {"phase": "Pending"}
    return _add_finalizer(claim, CLAIM_FINALIZER)


def _validate_claim(claim: Json) -> Iterator[FieldError]:
    spec = claim.get("spec") or {}
    if not spec.get("accessModes"):
        yield field_errors.required("spec.accessModes", "at least 1 access mode is required")
    yield from _access_modes(spec)
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        yield field_errors.required("spec.resources[storage]")
    else:
        yield from _size(requests["storage"], "spec.resources[storage]")
    yield from validate_label_selector(spec.get("selector") or {}, "spec.selector")
    name = spec.get("storageClassName")
    if name and (wrong := names.subdomain(name)):
        yield field_errors.invalid("spec.storageClassName", name, wrong)


def _access_modes(spec: Json) -> Iterator[FieldError]:
    """Refuse an empty access mode; the enum of the field refuses the other unknown ones."""
    for mode in spec.get("accessModes") or ():
        if not mode:
            yield field_errors.not_supported("spec.accessModes", mode, ACCESS_MODES)


def _size(size: Any, path: str) -> Iterator[FieldError]:
    if amount(str(size)) <= 0:
        yield field_errors.invalid(path, str(size), "must be greater than zero")


def _default_volume(volume: Json) -> Json:
    spec = volume.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    if spec.get("hostPath") is not None:
        spec["hostPath"].setdefault("type", "")
    return volume


def _new_volume(volume: Json) -> Json:
    volume["status"] = {
        "phase": "Pending",
        "lastPhaseTransitionTime": volume["metadata"].get("creationTimestamp"),
    }
    return _add_finalizer(volume, VOLUME_FINALIZER)


def _validate_volume(volume: Json) -> Iterator[FieldError]:
    spec = volume.get("spec") or {}
    if set(spec.get("capacity") or ()) != {"storage"}:
        yield field_errors.not_supported("spec.capacity", spec.get("capacity"), ["storage"])
    if not spec.get("accessModes"):
        yield field_errors.required("spec.accessModes")
    if not spec.get("capacity"):
        yield field_errors.required("spec.capacity")
    else:
        yield from _size(spec["capacity"].get("storage", 1), "spec.capacity[storage]")
    yield from _access_modes(spec)
    if not set(spec) - NOT_A_SOURCE:
        yield field_errors.required("spec", "must specify a volume type")
    if spec.get("hostPath") is not None and not spec["hostPath"].get("path"):
        yield field_errors.required("spec.hostPath.path")
    affinity = spec.get("nodeAffinity")
    if affinity is not None and affinity.get("required") is None:
        yield field_errors.required("spec.nodeAffinity.required", "must specify required node constraints")
    elif affinity is not None:
        yield from scheduling.validate_node_selector(affinity["required"], "spec.nodeAffinity.required")


def _add_finalizer(obj: Json, finalizer: str) -> Json:
    """Add the finalizer that prevents deletion while the object is in use."""
    meta = obj["metadata"]
    if finalizer not in meta.get("finalizers", ()):
        meta["finalizers"] = [*meta.get("finalizers", ()), finalizer]
    return obj


def _default_class(storage_class: Json) -> Json:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")
    return storage_class


def _validate_class(storage_class: Json) -> Iterator[FieldError]:
    if not storage_class.get("provisioner"):
        yield field_errors.required("provisioner", storage_class.get("provisioner") or "")
    elif wrong := names.qualified(storage_class["provisioner"].lower()):
        yield field_errors.invalid("provisioner", storage_class["provisioner"], wrong)


CLAIMS = Strategy(
    default=_default_claim, prepare_create=_new_claim, validate=_validate_claim, returns_deleted_object=True
)
VOLUMES = Strategy(
    default=_default_volume,
    prepare_create=_new_volume,
    validate=_validate_volume,
    returns_deleted_object=True,
)
CLASSES = Strategy(default=_default_class, validate=_validate_class, returns_deleted_object=True)
