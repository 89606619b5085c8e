"""Events about pods, and how often each is told."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import orjson
import pytest

from controller.kube.client import Client
from controller.kube.errors import NotFound
from rallypoint.local.node import event_recorder
from rallypoint.local.node.event_recorder import EventRecorder

START = datetime(2026, 1, 1, tzinfo=UTC)
POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}


class Written:
    """A server that keeps events."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}

    async def create(self, resource: object, namespace: str, body: bytes) -> None:
        event = orjson.loads(body)
        self.events[event["metadata"]["name"]] = event

    async def patch(self, resource: object, namespace: str, name: str, body: bytes) -> None:
        if name not in self.events:
            raise NotFound(404, "NotFound", name)
        self.events[name] |= orjson.loads(body)

    @property
    def told(self) -> list[tuple[str, int]]:
        return [(event["message"], event["count"]) for event in self.events.values()]


async def tell(server: Written, *messages: str) -> None:
    """One each second."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    recorder = EventRecorder(
        cast("Client", server), "kubelet", "local", lambda: START + timedelta(seconds=loop.time() - began)
    )
    running = asyncio.create_task(recorder.run())
    for message in messages:
        recorder.record(POD, "Unhealthy", message, warning=True)
        await asyncio.sleep(1)
    running.cancel()
    await asyncio.wait([running])


async def test_what_is_told_again_is_counted() -> None:
    server = Written()
    await tell(server, "a", "b", "a", "a")

    assert server.told == [("a", 3), ("b", 1)]
    event = next(iter(server.events.values()))
    assert (event["firstTimestamp"], event["lastTimestamp"]) == (
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:03Z",
    )


async def test_an_event_that_has_gone_is_told_anew() -> None:
    """The first time after that is lost."""
    server = Written()
    discard = asyncio.get_running_loop().call_later(0.5, server.events.clear)
    await tell(server, "a", "a", "a")

    assert (server.told, discard.cancelled()) == ([("a", 1)], False)


async def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "MAX_AGGREGATED", 2)
    server = Written()
    await tell(server, "a", "b", "c", "a", "c")

    assert server.told == [("a", 1), ("b", 1), ("c", 2), ("a", 1)]
