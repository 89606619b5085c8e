"""The user who writes jobs and the kubelet that runs pods, through one client of an embedded or a real API server."""

from collections.abc import Mapping
from typing import Any

import orjson

from api.meta import EVENTS, PODS, Resource
from api.nodes import NODES
from api.v1.pytorchjob import RESOURCE
from controller.kube.client import MERGE_PATCH, Client
from controller.kube.errors import AlreadyExists
from tests.support.builders import pod_status, template


class Actors:
    """The user and the kubelet of one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def submit(
        self,
        name: str = "train",
        *,
        masters: int = 1,
        workers: int = 1,
        namespace: str = "",
        **spec: Any,
    ) -> dict[str, Any]:
        """Create a PyTorchJob; ``spec`` overrides fields of its spec, in JSON names."""
        roles = {
            role: {"replicas": count, "template": template()}
            for role, count in (("Master", masters), ("Worker", workers))
            if count
        }
        body = {"apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind, "metadata": {"name": name}}
        return await self.create(
            RESOURCE, {**body, "spec": {"pytorchReplicaSpecs": roles, **spec}}, namespace
        )

    async def create(
        self, resource: Resource, body: Mapping[str, Any], namespace: str = ""
    ) -> dict[str, Any]:
        return _parsed(await self.client.create(resource, namespace or self.namespace, orjson.dumps(body)))

    async def get(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        return _parsed(await self.client.get(resource, namespace or self.namespace, name))

    async def job(self, name: str = "train") -> dict[str, Any]:
        return await self.get(RESOURCE, name)

    async def change(
        self, resource: Resource, name: str, change: Mapping[str, Any], subresource: str = ""
    ) -> dict[str, Any]:
        """Apply a merge patch."""
        body = orjson.dumps(change)
        return _parsed(
            await self.client.patch(
                resource, self.namespace, name, body, content_type=MERGE_PATCH, subresource=subresource
            )
        )

    async def items(self, resource: Resource, namespace: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = _parsed(await self.client.list(resource, namespace or self.namespace))[
            "items"
        ]
        return found

    async def names(self, resource: Resource, namespace: str = "") -> list[str]:
        """Return the names of the objects, sorted."""
        return sorted(item["metadata"]["name"] for item in await self.items(resource, namespace))

    async def delete(self, resource: Resource, name: str, **options: Any) -> None:
        await self.client.delete(resource, self.namespace, name, **options)

    async def set_phase(
        self, phase: str, *pods: str, code: int | None = None, container: str = "pytorch"
    ) -> None:
        """Set the phase of these pods as the kubelet does; of all pods without names."""
        for name in pods or await self.names(PODS):
            await self.change(PODS, name, {"status": pod_status(phase, container, code)}, "status")

    async def bind(self, pod: str, node: str) -> None:
        """Put a pod on a node, as the scheduler does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        await self.client.create(PODS, self.namespace, orjson.dumps(body), name=pod, subresource="binding")

    async def set_node(self, name: str, *taints: str, ready: str = "True") -> None:
        """Set the taints of a node and its condition Ready, as an administrator and the node controller do. Create it if it does not exist."""
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T12:00:00Z"}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {"taints": [{"key": taint, "effect": "NoExecute"} for taint in taints]},
            "status": {"conditions": [condition]},
        }
        try:
            await self.client.create(NODES, "", orjson.dumps(body))
        except AlreadyExists:
            await self.change(NODES, name, {"spec": body["spec"]})
            await self.change(NODES, name, {"status": body["status"]}, "status")

    async def conditions(self, name: str = "train") -> str:
        """Return the job's conditions, such as ``Created T, Running F``."""
        return conditions(await self.job(name))

    async def events(self, reason: str = "") -> list[str]:
        """Return the messages of the events, of one reason if given; a counted event appears once."""
        return [event["message"] for event in await self.items(EVENTS) if reason in {"", event["reason"]}]


def conditions(job: Mapping[str, Any]) -> str:
    """Return a job's conditions, such as ``Created T, Running F``."""
    found = (job.get("status") or {}).get("conditions") or ()
    return ", ".join(f"{condition['type']} {condition['status'][0]}" for condition in found)


def _parsed(answer: bytes) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(answer)
    return value
