"""MPIJobs as clients of each version write and read them, and what of them a Go client of a version keeps.

For tests that write through one version and read through the others: manifests with every field of their version, the copy that a
typed client makes of an object, and a client of one namespace with the calls that such clients make.
"""

import copy
from collections.abc import Mapping
from typing import Any

from api.mpijob import MPIJob
from rallypoint.testing.http_trace import APPLY, JSON, MERGE, RawClient, Reply, Step
from tests.support.json_differences import differences

Object = dict[str, Any]

VERSIONS = ("v1", "v2beta1", "v1alpha2")
PLURAL = "mpijobs"

_POLICY = {
    "ttlSecondsAfterFinished": 600,
    "activeDeadlineSeconds": 7200,
    "backoffLimit": 3,
    "schedulingPolicy": {
        "minAvailable": 3,
        "queue": "blue",
        "minResources": {"cpu": "4", "nvidia.com/gpu": 8},
        "priorityClass": "high",
    },
}
_NEWER = {"suspend": True, "managedBy": "kubeflow.org/training-operator", "cleanPodPolicy": "All"}
OWN: Mapping[str, Object] = {
    "v1": {
        "cleanPodPolicy": "Running",
        "mainContainer": "mpi",
        "runPolicy": {**_POLICY, **_NEWER},
    },
    "v2beta1": {
        "runLauncherAsWorker": True,
        "sshAuthMountPath": "/home/mpiuser/.ssh",
        "launcherCreationPolicy": "WaitForWorkersReady",
        "mpiImplementation": "Intel",
        "runPolicy": {**_POLICY, **_NEWER, "managedBy": "kubeflow.org/mpi-operator"},
    },
    "v1alpha2": {
        "cleanPodPolicy": "Running",
        "mainContainer": "mpi",
        "backoffLimit": 5,
        "activeDeadlineSeconds": 3600,
        "mpiDistribution": "IntelMPI",
        "runPolicy": _POLICY,
    },
}
"""The fields of each version beside those that all have, with values that are no defaults."""

_FLAT = ("backoffLimit", "activeDeadlineSeconds", "mpiDistribution")
_SSH = ("runLauncherAsWorker", "sshAuthMountPath", "launcherCreationPolicy", "mpiImplementation")
UNKNOWN: Mapping[str, frozenset[str]] = {
    "v1": frozenset({*_FLAT, *_SSH, "flavor"}),
    "v2beta1": frozenset({*_FLAT, "cleanPodPolicy", "mainContainer", "flavor"}),
    "v1alpha2": frozenset({*_SSH, "flavor"}),
}
"""Fields of the spec that the Go structs of a version lack."""


def template(**spec: Any) -> Object:
    container = {"name": "mpi", "image": "mpi:1", "env": [{"name": "A", "value": "b"}]}
    return {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [container], **spec}}


def manifest(version: str, name: str, **spec: Any) -> Object:
    """A job with every field of its version; fields given as None are left out."""
    roles = {
        "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": template(hostNetwork=True)},
        "Worker": {"replicas": 2, "template": template(nodeSelector={"gpu": "a"})},
    }
    whole = {"slotsPerWorker": 2, "mpiReplicaSpecs": roles, **copy.deepcopy(OWN[version]), **spec}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": MPIJob.__name__,
        "metadata": {"name": name},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


def typed(version: str, obj: Object) -> Object:
    """The object as a Go client of a version has it: what its structs lack is gone."""
    copied = copy.deepcopy(obj)
    copied["apiVersion"] = copied["apiVersion"].partition("/")[0] + f"/{version}"
    copied["spec"] = {key: value for key, value in copied["spec"].items() if key not in UNKNOWN[version]}
    return copied


class MPIJobClient:
    """The MPIJobs of one namespace, by raw requests in any version."""

    def __init__(self, client: RawClient, namespace: str, group: str = "kubeflow.org") -> None:
        self.client = client
        self.namespace = namespace
        self.group = group

    def path(self, version: str, name: str = "", part: str = "") -> str:
        parts = [f"/apis/{self.group}/{version}/namespaces/{self.namespace}/{PLURAL}", name, part]
        return "/".join(filter(None, parts))

    async def send(
        self, method: str, path: str, body: Any = None, *, media: str = JSON, **query: str
    ) -> Reply:
        """Send with the group of this client, whatever the body says."""
        if isinstance(body, dict) and "apiVersion" in body:
            body = {**body, "apiVersion": f"{self.group}/{body['apiVersion'].rpartition('/')[2]}"}
        return await self.client.send(Step(method, path, body, type=media, query=query))

    async def create(self, version: str, body: Object, **query: str) -> Reply:
        return await self.send("POST", self.path(version), body, **query)

    async def read(self, version: str, name: str) -> Object:
        reply = await self.client.send(Step("GET", self.path(version, name)))
        assert reply.code == 200, reply.text
        return dict(reply.body)

    async def put(self, version: str, name: str, body: Object, part: str = "") -> Reply:
        return await self.send("PUT", self.path(version, name, part), body)

    async def merge(self, version: str, name: str, change: Object, part: str = "") -> Reply:
        return await self.send("PATCH", self.path(version, name, part), change, media=MERGE)

    async def apply(self, version: str, body: Object, manager: str) -> Reply:
        path = self.path(version, body["metadata"]["name"])
        return await self.send("PATCH", path, body, media=APPLY, fieldManager=manager, force="true")

    async def views(self, name: str) -> dict[str, Object]:
        """The spec as each version shows it."""
        return {version: (await self.read(version, name))["spec"] for version in VERSIONS}

    async def losses(self, body: Object, flavor: str, **changed: Any) -> list[str]:
        """What any version shows otherwise than the job was written, and changed; and of which other flavor it is."""
        wanted = {**body["spec"], **changed, "flavor": flavor}
        views = await self.views(body["metadata"]["name"])
        return [
            f"{version}{lost}"
            for version, view in views.items()
            for lost in differences(wanted, view, additions=False)
        ]
