"""Which claims a pod uses, and what keeps it from using them. Pure.

Source: Kubernetes, pkg/scheduler/framework/plugins/volumebinding; staging/src/k8s.io/component-helpers/storage/ephemeral.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from rallypoint.local.manifest import Manifest
from rallypoint.local.storage.binding import is_bound

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""


def claims(pod: Manifest) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Each volume of the pod that is a claim's, and the claim's name."""
    for volume in pod["spec"].get("volumes") or ():
        if (given := volume.get("persistentVolumeClaim")) is not None:
            yield volume, given["claimName"]
        elif volume.get("ephemeral") is not None:
            yield volume, f"{pod['metadata']['name']}-{volume['name']}"


def volume_conflict(pod: Manifest, known: Mapping[Key, Manifest]) -> str:
    """Why the pod cannot be placed yet, in kube-scheduler's words; empty when its claims are all bound."""
    for volume, name in claims(pod):
        claim = known.get((pod["metadata"]["namespace"], name))
        if claim is None and volume.get("ephemeral") is not None:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim["metadata"].get("deletionTimestamp"):
            return f'persistentvolumeclaim "{name}" is being deleted'
        if volume.get("ephemeral") is not None and not is_owned(claim, pod):
            meta = pod["metadata"]
            about = f"{meta['namespace']}/{name} was not created for pod {meta['namespace']}/{meta['name']}"
            return f"PVC {about} (pod is not owner)"
        if not is_bound(claim):
            return "pod has unbound immediate PersistentVolumeClaims"
    return ""


def is_owned(claim: Manifest, pod: Manifest) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == pod["metadata"]["uid"] and owner.get("controller") for owner in owners)


def ephemeral_claim(pod: Manifest, volume: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The claim of an ``ephemeral`` volume, which goes with its pod."""
    template, meta = volume["ephemeral"]["volumeClaimTemplate"], pod["metadata"]
    given = template.get("metadata") or {}
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {part: given[part] for part in ("labels", "annotations") if given.get(part)}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {**metadata, "name": name, "ownerReferences": [owner]},
        "spec": template["spec"],
    }


def is_in_use(pod: Manifest) -> bool:
    """Whether the pod keeps its claims from going: it is placed and has not ended."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return bool(pod["spec"].get("nodeName")) and not ended
