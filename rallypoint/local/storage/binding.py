"""Binds claims to volumes. Pure.

Source: Kubernetes, pkg/controller/volume/persistentvolume/pv_controller.go and index.go. Differs: every storage class,
even an undefined one, provides a folder of this machine; sizes are reported but not enforced.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from api import quantity
from api.times import format_time
from rallypoint.local.manifest import Manifest

DEFAULT_CLASS = "standard"
PROVISIONER = "rallypoint/folder"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
COMPLETED = "pv.kubernetes.io/bind-completed"
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
CLASS: Mapping[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": DEFAULT_CLASS,
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": PROVISIONER,
}
"""The class of claims that name none."""


def is_bound(claim: Manifest) -> bool:
    return (claim.get("status") or {}).get("phase") == "Bound"


def is_reserved_for(volume: Manifest, claim: Manifest) -> bool:
    """Return whether the ``claimRef`` of a volume names this claim."""
    held, meta = volume["spec"].get("claimRef") or {}, claim["metadata"]
    named = (held.get("namespace"), held.get("name")) == (meta["namespace"], meta["name"])
    return named and held.get("uid") in (None, "", meta["uid"])


def find_volume(claim: Manifest, volumes: Iterable[Manifest]) -> Manifest | None:
    """Return the volume for a claim: the one that it names or that is reserved for it, else the smallest suitable free one."""
    spec = claim["spec"]
    there = [volume for volume in volumes if not volume["metadata"].get("deletionTimestamp")]
    if name := spec.get("volumeName"):
        there = [volume for volume in there if volume["metadata"]["name"] == name]
        return next(
            (volume for volume in there if _is_unclaimed(volume) or is_reserved_for(volume, claim)), None
        )
    if reserved := next((volume for volume in there if is_reserved_for(volume, claim)), None):
        return reserved
    fitting = [volume for volume in there if _is_unclaimed(volume) and _satisfies(volume, claim)]
    return min(fitting, key=_size, default=None)


def provisioned_volume(claim: Manifest, path: Path) -> dict[str, Any]:
    """Return a new volume for a claim, in its own folder."""
    spec = claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name(claim), "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "claimRef": reference(claim),
            "hostPath": {"path": str(path), "type": "DirectoryOrCreate"},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec["storageClassName"],
        },
    }


def volume_name(claim: Manifest) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def is_provisioned(volume: Manifest) -> bool:
    return (volume["metadata"].get("annotations") or {}).get(PROVISIONED_BY) == PROVISIONER


def reference(claim: Manifest) -> dict[str, Any]:
    meta = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": meta["name"],
        "namespace": meta["namespace"],
        "resourceVersion": meta["resourceVersion"],
        "uid": meta["uid"],
    }


def bound_claim(claim: Manifest, volume: Manifest) -> dict[str, Any]:
    """Return the changes of a claim, without those of its status."""
    marks = {COMPLETED: "yes"} | ({} if claim["spec"].get("volumeName") else {BY_CONTROLLER: "yes"})
    return {"metadata": {"annotations": marks}, "spec": {"volumeName": volume["metadata"]["name"]}}


def bound_status(volume: Manifest) -> dict[str, Any]:
    spec = volume["spec"]
    return {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]}


def volume_status(phase: str, now: datetime) -> dict[str, Any]:
    return {"phase": phase, "lastPhaseTransitionTime": format_time(now)}


def _is_unclaimed(volume: Manifest) -> bool:
    return not volume["spec"].get("claimRef")


def _size(volume: Manifest) -> Any:
    return quantity.value(str(volume["spec"]["capacity"]["storage"]))


def _satisfies(volume: Manifest, claim: Manifest) -> bool:
    offered, requested = volume["spec"], claim["spec"]
    labels = volume["metadata"].get("labels") or {}
    selected = ((requested.get("selector") or {}).get("matchLabels") or {}).items()
    return (
        (offered.get("storageClassName") or "") == (requested.get("storageClassName") or "")
        and set(requested["accessModes"]) <= set(offered["accessModes"])
        and offered.get("volumeMode") == requested.get("volumeMode")
        and all(labels.get(key) == value for key, value in selected)
        and _size(volume) >= quantity.value(str(requested["resources"]["requests"]["storage"]))
    )
