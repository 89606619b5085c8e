"""PersistentVolumeClaims, PersistentVolumes and StorageClasses: defaults and validation.

Source: kubernetes, pkg/apis/core/v1/defaults.go, pkg/apis/core/validation/validation.go, pkg/apis/storage/v1/defaults.go,
plugin/pkg/admission/storage/storageobjectinuseprotection.
"""

from collections.abc import Iterator

from rallypoint.local.apiserver.apimachinery import field_errors
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources.resource import Strategy

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
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        yield field_errors.required("spec.resources[storage]")


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
    if not set(spec) - NOT_A_SOURCE:
        yield field_errors.required("spec", "must specify a volume type")


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
