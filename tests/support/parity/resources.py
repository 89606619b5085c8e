"""The resources in recordings: kinds of jobs, their children, what cases create, and whose an object is."""

from collections.abc import Iterable
from typing import Any

from api.batch import BATCH_JOBS
from api.meta import (
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    HORIZONTAL_POD_AUTOSCALERS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    Resource,
)

NAMESPACE = "golden"
"""The namespace of all cases, in the recordings and here."""
NODE = "golden-node"
"""A node without a kubelet: pods on it stay terminating until a case removes them."""

CHILDREN = (
    PODS,
    SERVICES,
    CONFIG_MAPS,
    SECRETS,
    SERVICE_ACCOUNTS,
    ROLES,
    ROLE_BINDINGS,
    BATCH_JOBS,
    HORIZONTAL_POD_AUTOSCALERS,
    VOLCANO_POD_GROUPS,
    COSCHEDULING_POD_GROUPS,
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


class Owners:
    """Finds the job of an object by names alone: that of a child starts with the name of its job and ``-`` or ``.``."""

    def __init__(self, jobs: Iterable[str]) -> None:
        self._jobs = sorted(jobs, key=len, reverse=True)

    def named(self, name: str) -> str:
        """Return the job with the longest matching name; empty if none matches."""
        return next((job for job in self._jobs if name == job or name.startswith((f"{job}-", f"{job}."))), "")

    def of(self, metadata: dict[str, Any], name: str = "") -> str:
        """Return the job that owns an object; ``name`` is for bodies without a name."""
        references = metadata.get("ownerReferences") or ()
        owner = next((entry["name"] for entry in references if entry["kind"] in JOB_KINDS), "")
        return self.named(owner or name or metadata.get("name", ""))
