"""Which claims a pod uses, and what keeps it from using them. Pure.

Source: Kubernetes, pkg/scheduler/framework/plugins/volumebinding; staging/src/k8s.io/component-helpers/storage/ephemeral.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from api.meta import PODS, Resource
from rallypoint.local.manifest import Manifest, controller_reference, controller_uid, from_template
from rallypoint.local.storage.binding import is_bound

CLAIMS = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")

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
        if volume.get("ephemeral") is not None and controller_uid(claim) != pod["metadata"]["uid"]:
            meta = pod["metadata"]
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
    """Whether the pod keeps its claims from going: it is placed and has not ended."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return bool(pod["spec"].get("nodeName")) and not ended
