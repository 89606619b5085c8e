"""How a pod reaches the API server: the files of its service account and the variables of the ``kubernetes`` Service.

Source: Kubernetes, plugin/pkg/admission/serviceaccount/admission.go. Differs: the token lasts as long as the pod.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers import servicelinks
from rallypoint.local.node.volumes.objects import Reference

ROOT_CA = Reference("configmap", "kube-root-ca.crt")
"""What every namespace of a cluster has, and what is made up here where it is missing."""
PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME = "kube-api-access"
PORT = 443
NAMES = ("kubernetes.default.svc.cluster.local", "kubernetes.default.svc", "kubernetes.default", "kubernetes")


@dataclass(frozen=True, slots=True)
class Access:
    """The API server as pods are told of it."""

    token: Callable[[Mapping[str, Any], str], str] = field(repr=False)
    """The token of a pod for an audience; an empty one is the API server."""
    authority: bytes
    """What vouches for the server (PEM)."""
    address: str
    """Where it listens in the network of the pods, at ``PORT``; empty where they have none of their own."""

    def is_given(self, pod: Manifest) -> bool:
        return bool(self.address) and pod["spec"].get("automountServiceAccountToken") is not False

    def variables(self) -> dict[str, str]:
        if not self.address:
            return {}
        ports = [{"name": "https", "port": PORT, "protocol": "TCP"}]
        spec = {"clusterIP": self.address, "ports": ports}
        return servicelinks.variables({"metadata": {"name": "kubernetes"}, "spec": spec})


def with_volume(pod: Manifest) -> dict[str, Any]:
    """The pod with the volume that tells it of the API server."""
    spec = pod["spec"]
    sources = [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": ROOT_CA.name, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    volume = {"name": VOLUME, "projected": {"sources": sources}}
    return {**pod, "spec": {**spec, "volumes": [*(spec.get("volumes") or ()), volume]}}


def with_mount(container: Mapping[str, Any]) -> dict[str, Any]:
    """The container with that volume at its place, unless it has something of its own there."""
    mounts = container.get("volumeMounts") or ()
    if any(mount["mountPath"].rstrip("/") == PATH for mount in mounts):
        return dict(container)
    return {**container, "volumeMounts": [*mounts, {"name": VOLUME, "mountPath": PATH, "readOnly": True}]}
