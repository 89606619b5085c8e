"""An embedded API server with faults in front, and what tests do to it: the user's part and the kubelet's.

The controller under test is another client of the same server. Everything happens on the running loop, so on loop time in tests.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import yaml

from api.meta import EVENTS, PODS, SERVICES, Resource
from api.v1.pytorchjob import RESOURCE
from controller import app
from controller.kube.client import MERGE_PATCH, Client
from controller.kube.connect import Connection
from controller.local.apiserver import ApiServer
from controller.local.apiserver.front import Call
from controller.settings import Settings
from controller.testing.builders import template
from controller.testing.faults import Faults, Rule

CRDS = Path(__file__).parents[2] / "manifests" / "base" / "crds"
NAMESPACE = "default"
TESTER = "test"
"""The user agent of the test's own client, which meets no faults."""
QUIET = Settings(metrics_bind_address="0", health_probe_bind_address="0")
"""Settings of a controller that serves nothing itself."""


@cache
def _definition(resource: Resource) -> dict[str, Any]:
    text = (CRDS / f"{resource.group}_{resource.plural}.yaml").read_text()
    found: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)
    return found


class Stage:
    """The server, and a client that plays everybody but the controller."""

    def __init__(self, server: ApiServer, faults: Faults, client: Client) -> None:
        self.server = server
        self.faults = faults
        self.client = client

    @property
    def connection(self) -> Connection:
        """How a controller reaches the server."""
        return Connection(self.server.url, token=lambda: self.server.token)

    async def submit(
        self,
        name: str = "train",
        *,
        masters: int = 1,
        workers: int = 1,
        namespace: str = NAMESPACE,
        **spec: Any,
    ) -> dict[str, Any]:
        """Create a PyTorchJob; ``spec`` is laid over its spec, spelled as on the wire."""
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
        self, resource: Resource, body: Mapping[str, Any], namespace: str = NAMESPACE
    ) -> dict[str, Any]:
        return _parsed(await self.client.create(resource, namespace, orjson.dumps(body)))

    async def get(self, resource: Resource, name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        return _parsed(await self.client.get(resource, namespace, name))

    async def job(self, name: str = "train") -> dict[str, Any]:
        return await self.get(RESOURCE, name)

    async def change(
        self, resource: Resource, name: str, change: Mapping[str, Any], subresource: str = ""
    ) -> dict[str, Any]:
        """Apply a merge patch."""
        body = orjson.dumps(change)
        return _parsed(
            await self.client.patch(
                resource, NAMESPACE, name, body, content_type=MERGE_PATCH, subresource=subresource
            )
        )

    async def items(self, resource: Resource, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = _parsed(await self.client.list(resource, namespace))["items"]
        return found

    async def names(self, resource: Resource, namespace: str = NAMESPACE) -> list[str]:
        """Sorted."""
        return sorted(one["metadata"]["name"] for one in await self.items(resource, namespace))

    async def delete(self, resource: Resource, name: str, **options: Any) -> None:
        await self.client.delete(resource, NAMESPACE, name, **options)

    @property
    def calls(self) -> list[Call]:
        """All calls but the test's own."""
        return [one for one in self.faults.calls if one.user_agent != TESTER]

    async def become(self, phase: str, *pods: str, code: int | None = None) -> None:
        """Play the kubelet: pods change their phase; all pods if none is named."""
        for name in pods or await self.names(PODS):
            state = {"terminated": {"exitCode": code or 0}} if code is not None else {"running": {}}
            container = {"name": "pytorch", "image": "img", "imageID": "", "ready": False, "restartCount": 0}
            status = {"phase": phase, "containerStatuses": [{**container, "state": state}]}
            await self.change(PODS, name, {"status": status}, "status")

    async def conditions(self, name: str = "train") -> str:
        """Such as ``Created T, Running F``."""
        status = (await self.job(name)).get("status") or {}
        return ", ".join(f"{one['type']} {one['status'][0]}" for one in status.get("conditions") or ())

    async def events(self, reason: str = "") -> list[str]:
        """Messages, those that were counted up once; of one reason if it is named."""
        return [one["message"] for one in await self.items(EVENTS) if reason in {"", one["reason"]}]

    async def settled(self, seconds: float = 1.0) -> None:
        """Let everything happen that is due within so much loop time."""
        await asyncio.sleep(seconds)


@asynccontextmanager
async def stage(
    *rules: Rule, crds: Sequence[Resource] = (RESOURCE,), **options: Any
) -> AsyncGenerator[Stage]:
    """A server with the definitions of these kinds, and with faults that start at once."""
    faults = Faults(rules, spared=TESTER)
    server = ApiServer(crds=[_definition(one) for one in crds], front=faults, **options)
    await server.start()
    try:
        async with Client(Connection(server.url, token=lambda: server.token), user_agent=TESTER) as client:
            yield Stage(server, faults, client)
    finally:
        await server.stop()


@asynccontextmanager
async def controlling(
    on: Stage, settings: Settings = QUIET, *, connection: Connection | None = None
) -> AsyncGenerator["asyncio.Task[None]"]:
    """The whole controller on that stage, from when it is ready; its task."""
    ready = asyncio.Event()
    task = asyncio.create_task(app.run(settings, connection or on.connection, on_ready=ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def owned_by(job: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool]:
    """Whether an object's controller is that very job."""

    def is_owned(one: Mapping[str, Any]) -> bool:
        owners = one["metadata"].get("ownerReferences") or ()
        return any(owner.get("controller") and owner["uid"] == job["metadata"]["uid"] for owner in owners)

    return is_owned


def _parsed(answer: bytes) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(answer)
    return value


CHILDREN = (PODS, SERVICES)
