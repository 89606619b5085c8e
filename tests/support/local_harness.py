"""A local cluster with real pods, and methods that wait for their state."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from api.meta import PODS, Resource
from controller.runtime.informer import Informer
from rallypoint.local.cluster import LocalCluster, local_cluster
from rallypoint.local.manifest import Manifest, Row, decode
from rallypoint.local.node.sandbox.selection import IsolationMode

TIMEOUT_SECONDS = 60.0
"""The timeout of each wait."""


class LocalHarness:
    """A local cluster, and pods that a test can wait for."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.client = cluster.client
        self.node = cluster.node
        self.kubeconfig = cluster.kubeconfig
        self.pods = Informer(cluster.client, PODS, decode, self._changed)
        self._change = asyncio.Event()

    def _changed(self, before: Row | None, after: Row | None) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def create(self, resource: Resource, manifest: dict[str, Any]) -> None:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **manifest}
        await self.client.create(resource, "default", orjson.dumps(body))

    async def pod(
        self, name: str, *command: str, spec: dict[str, Any] | None = None, **container: Any
    ) -> None:
        main = {"name": "main", "image": "none", "command": list(command), **container}
        metadata = {"name": name, "labels": {"app": name}}
        await self.create(
            PODS,
            {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [main], **(spec or {})}},
        )

    async def wait_for(self, name: str, holds: Callable[[Manifest], Any]) -> Manifest:
        """Wait until ``holds`` is true of the pod, and return it."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                change, row = self._change, self.pods.store.get("default", name)
                if row is not None and holds(row.manifest):
                    return row.manifest
                await change.wait()

    async def wait_for_end(self, name: str) -> Manifest:
        return await self.wait_for(name, lambda pod: phase(pod) in ("Succeeded", "Failed"))

    async def wait_for_deletion(self, name: str) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                change = self._change
                if self.pods.store.get("default", name) is None:
                    return
                await change.wait()

    async def log(self, name: str, **params: str) -> str:
        async with self.client.stream(PODS.path("default", name, "log"), params) as stream:
            return (await stream.read()).decode()

    async def wait_for_log(self, name: str, text: str) -> None:
        """Wait until the pod's container has written ``text``."""
        await self.wait_for(name, lambda pod: phase(pod) in ("Running", "Succeeded", "Failed"))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async with self.client.stream(PODS.path("default", name, "log"), {"follow": "true"}) as stream:
                while text not in (line := (await stream.readline()).decode()):
                    assert line, f"{name} has ended and did not write {text!r}"


def phase(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("phase"))


@asynccontextmanager
async def start_local_harness(
    folder: Path, isolation: IsolationMode, **how: Any
) -> AsyncGenerator[LocalHarness]:
    """Start a local cluster; ``how`` are further arguments of ``local_cluster``."""
    async with local_cluster([], folder, isolation=isolation, **how) as cluster:
        harness = LocalHarness(cluster)
        watching = asyncio.create_task(harness.pods.run())
        try:
            yield harness
        finally:
            watching.cancel()
            await asyncio.wait([watching])
