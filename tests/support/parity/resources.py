"""The resources in recordings: kinds of jobs, their children, and what cases create."""

from typing import Any

from api.meta import HORIZONTAL_POD_AUTOSCALERS, PODS, SERVICES, Resource

NAMESPACE = "golden"
"""The namespace of all cases, in the recordings and here."""
NODE = "golden-node"
"""A node without a kubelet: pods on it stay terminating until a case removes them."""

_RBAC = "rbac.authorization.k8s.io"

CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")

CHILDREN = (
    PODS,
    SERVICES,
    CONFIG_MAPS,
    Resource("", "v1", "Secret", "secrets"),
    Resource("", "v1", "ServiceAccount", "serviceaccounts"),
    Resource(_RBAC, "v1", "Role", "roles"),
    Resource(_RBAC, "v1", "RoleBinding", "rolebindings"),
    Resource("batch", "v1", "Job", "jobs"),
    HORIZONTAL_POD_AUTOSCALERS,
    Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
    Resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups"),
)
"""What an operator may create for a job."""

KINDS = {resource.plural: resource.kind for resource in CHILDREN}
"""By plural; PodGroups of both schedulers are one kind here."""

JOB_KINDS = frozenset({"PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob", "MXJob"})

_BROUGHT = {
    resource.kind: resource
    for resource in (
        *CHILDREN,
        Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False),
    )
}


def child(kind: str) -> Resource:
    """Return the resource of a kind of children. KeyError: there is none."""
    return _BROUGHT[kind]


def resource_of(manifest: dict[str, Any]) -> Resource:
    """Return the resource of an object that a case creates. KeyError: no case creates such an object."""
    kind, api_version = manifest["kind"], manifest["apiVersion"]
    if kind not in JOB_KINDS:
        return _BROUGHT[kind]
    group, _, version = api_version.rpartition("/")
    return Resource(group, version, kind, f"{kind.lower()}s")
