"""Events about pods, and their counts."""

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
    def counts(self) -> list[tuple[str, int]]:
        return [(event["message"], event["count"]) for event in self.events.values()]


async def record_events(server: Written, *messages: str) -> None:
    """Record an event with each message, one per second."""
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


async def test_repeated_events_are_counted() -> None:
    server = Written()
    await record_events(server, "a", "b", "a", "a")

    assert server.counts == [("a", 3), ("b", 1)]
    event = next(iter(server.events.values()))
    assert (event["firstTimestamp"], event["lastTimestamp"]) == (
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:03Z",
    )


async def test_an_expired_event_is_created_again() -> None:
    """The first repeat after the expiry is lost."""
    server = Written()
    discard = asyncio.get_running_loop().call_later(0.5, server.events.clear)
    await record_events(server, "a", "a", "a")

    assert (server.counts, discard.cancelled()) == ([("a", 1)], False)


async def test_remembered_events_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "MAX_AGGREGATED", 2)
    server = Written()
    await record_events(server, "a", "b", "c", "a", "c")

    assert server.counts == [("a", 1), ("b", 1), ("c", 2), ("a", 1)]
