"""Binds claims to volumes, and finds the claims that a pod uses. Pure; ``storage`` writes the results.

Source: Kubernetes, pkg/controller/volume/persistentvolume/pv_controller.go and index.go,
pkg/scheduler/framework/plugins/volumebinding, staging/src/k8s.io/component-helpers/storage/ephemeral.

Differs: every StorageClass, even an undefined one, provisions a folder on this machine. Capacity is not enforced.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from api import quantity
from api.meta import PODS, Resource
from api.times import format_time
from rallypoint.local.manifest import Manifest, controller_reference, controller_uid, from_template

CLAIMS = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""

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
"""The StorageClass of claims that name none."""


def is_bound(claim: Manifest) -> bool:
    return (claim.get("status") or {}).get("phase") == "Bound"


def is_reserved_for(volume: Manifest, claim: Manifest) -> bool:
    """Return whether ``claimRef`` of a volume names this claim."""
    claim_ref, meta = volume["spec"].get("claimRef") or {}, claim["metadata"]
    is_named = (claim_ref.get("namespace"), claim_ref.get("name")) == (meta["namespace"], meta["name"])
    return is_named and claim_ref.get("uid") in (None, "", meta["uid"])


def find_volume(claim: Manifest, volumes: Iterable[Manifest]) -> Manifest | None:
    """Return the volume that the claim names, else one that is reserved for it, else the smallest that satisfies it."""
    candidates = [volume for volume in volumes if not volume["metadata"].get("deletionTimestamp")]
    reserved = [volume for volume in candidates if is_reserved_for(volume, claim)]
    unclaimed = [volume for volume in candidates if not volume["spec"].get("claimRef")]
    if name := claim["spec"].get("volumeName"):
        return next(
            (volume for volume in (*reserved, *unclaimed) if volume["metadata"]["name"] == name), None
        )
    if reserved:
        return reserved[0]
    return min((volume for volume in unclaimed if _satisfies(volume, claim)), key=_size, default=None)


def provisioned_volume(claim: Manifest, path: Path) -> dict[str, Any]:
    """Return a new volume for a claim; its folder is ``path``."""
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
    """Return the patch that binds a claim, without its status."""
    annotations = {COMPLETED: "yes"} | ({} if claim["spec"].get("volumeName") else {BY_CONTROLLER: "yes"})
    return {"metadata": {"annotations": annotations}, "spec": {"volumeName": volume["metadata"]["name"]}}


def bound_status(volume: Manifest) -> dict[str, Any]:
    spec = volume["spec"]
    return {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]}


def volume_status(phase: str, now: datetime) -> dict[str, Any]:
    return {"phase": phase, "lastPhaseTransitionTime": format_time(now)}


def claims(pod: Manifest) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each volume of the pod that a claim backs, with the name of the claim."""
    for volume in pod["spec"].get("volumes") or ():
        if (source := volume.get("persistentVolumeClaim")) is not None:
            yield volume, source["claimName"]
        elif volume.get("ephemeral") is not None:
            yield volume, f"{pod['metadata']['name']}-{volume['name']}"


def volume_conflict(pod: Manifest, found: Mapping[Key, Manifest]) -> str:
    """Return why the pod cannot be scheduled, in kube-scheduler's words; empty if all its claims are bound.

    ``found`` are the existing claims among those that the pod uses.
    """
    meta = pod["metadata"]
    for volume, name in claims(pod):
        claim = found.get((meta["namespace"], name))
        is_ephemeral = volume.get("ephemeral") is not None
        if claim is None and is_ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim["metadata"].get("deletionTimestamp"):
            return f'persistentvolumeclaim "{name}" is being deleted'
        if is_ephemeral and controller_uid(claim) != meta["uid"]:
            about = f"{meta['namespace']}/{name} was not created for pod {meta['namespace']}/{meta['name']}"
            return f"PVC {about} (pod is not owner)"
        if not is_bound(claim):
            return "pod has unbound immediate PersistentVolumeClaims"
    return ""


def ephemeral_claim(pod: Manifest, volume: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the claim of an ``ephemeral`` volume; its pod owns it."""
    owner = controller_reference(PODS, pod["metadata"])
    return from_template(CLAIMS, volume["ephemeral"]["volumeClaimTemplate"], owner, name=name)


def is_in_use(pod: Manifest) -> bool:
    """Return whether the pod uses its claims: it is scheduled and has not ended. Such claims are not removed."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return bool(pod["spec"].get("nodeName")) and not ended


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
