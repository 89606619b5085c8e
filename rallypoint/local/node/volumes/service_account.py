"""Access of pods to the API server: the service account volume and the variables of the ``kubernetes`` Service.

Source: Kubernetes, plugin/pkg/admission/serviceaccount/admission.go. Differs: the token lasts as long as the pod.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.environment import service_variables
from rallypoint.local.node.volumes.references import Reference

ROOT_CA = Reference("configMap", "kube-root-ca.crt")
"""The ConfigMap with the CA certificate, which the node generates where it is missing."""
PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME = "kube-api-access"
PORT = 443
NAMES = ("kubernetes.default.svc.cluster.local", "kubernetes.default.svc", "kubernetes.default", "kubernetes")


@dataclass(frozen=True, slots=True)
class ApiServerAccess:
    """The address, CA and tokens for pods."""

    token: Callable[[Mapping[str, Any], str], str] = field(repr=False)
    """Returns the token of a pod for an audience; an empty audience is the API server."""
    authority: bytes
    """The CA certificate of the server (PEM)."""
    address: str
    """Its address in the pod network, at ``PORT``; empty if pods have no network of their own."""

    def is_given(self, pod: Manifest) -> bool:
        return bool(self.address) and pod["spec"].get("automountServiceAccountToken") is not False

    def variables(self) -> dict[str, str]:
        if not self.address:
            return {}
        ports = [{"name": "https", "port": PORT, "protocol": "TCP"}]
        spec = {"clusterIP": self.address, "ports": ports}
        return service_variables({"metadata": {"name": "kubernetes"}, "spec": spec})


def with_volume(pod: Manifest) -> dict[str, Any]:
    spec = pod["spec"]
    sources = [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": ROOT_CA.name, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    volume = {"name": VOLUME, "projected": {"sources": sources}}
    return {**pod, "spec": {**spec, "volumes": [*(spec.get("volumes") or ()), volume]}}


def with_mount(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container with the mount of that volume, unless it mounts another one there."""
    mounts = container.get("volumeMounts") or ()
    if any(mount["mountPath"].rstrip("/") == PATH for mount in mounts):
        return dict(container)
    return {**container, "volumeMounts": [*mounts, {"name": VOLUME, "mountPath": PATH, "readOnly": True}]}
