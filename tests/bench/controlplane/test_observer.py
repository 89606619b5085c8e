"""Watches that end in several ways."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson

from api.meta import Resource
from bench.controlplane.observer import Observer
from controller.kube.client import Client


class Server:
    """Each of its watches sends one pod and then nothing."""

    def __init__(self) -> None:
        self.versions: list[str] = []

    async def list(self, resource: Resource, namespace: str) -> bytes:
        return b'{"metadata": {"resourceVersion": "1"}, "items": []}'

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str]) -> AsyncGenerator[AsyncIterator[bytes]]:
        yield self._lines(path, int(params["resourceVersion"]))

    async def _lines(self, path: str, reached: int) -> AsyncIterator[bytes]:
        if not path.endswith("/pods"):
            await asyncio.Event().wait()
        self.versions.append(str(reached))
        pod: dict[str, Any] = {
            "metadata": {"name": f"pod-{reached}", "resourceVersion": str(reached + 1)},
            "status": {"phase": "Running"},
        }
        yield orjson.dumps({"type": "ADDED", "object": pod})
        raise TimeoutError


async def test_a_silent_watch_resumes_at_its_resource_version() -> None:
    server = Server()
    async with Observer(cast(Client, server), "bench") as observer:
        await observer.wait_until(lambda: len(observer.pods) >= 3)

    assert server.versions[:3] == ["1", "2", "3"]
    assert list(observer.pods_running)[:3] == ["pod-1", "pod-2", "pod-3"]
