"""Records events in the background; nothing waits for them, and they may be lost.

A repeated event increases the count of the first one, as in client-go's recorder.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import aiohttp
import orjson

from api.meta import EVENTS
from api.times import format_time
from controller.kube.client import Client
from controller.kube.errors import ApiError

MAX_PENDING = 1000
MAX_AGGREGATED = 1000
"""The number of events whose repetitions can be counted; the oldest is discarded first."""


class EventRecorder:
    def __init__(self, client: Client, component: str, node: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._source = {"component": component, "host": node}
        self._now = now
        self._pending: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_PENDING)
        self._written: dict[tuple[str, str, str], dict[str, Any]] = {}

    def record(self, pod: Mapping[str, Any], reason: str, message: str, *, warning: bool = False) -> None:
        if not self._pending.full():
            self._pending.put_nowait(self._event(pod, reason, message, "Warning" if warning else "Normal"))

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            event = await self._pending.get()
            # A lost event has no consequences.
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
                await self._write(event)

    async def _write(self, event: dict[str, Any]) -> None:
        key = event["involvedObject"]["uid"], event["reason"], event["message"]
        before = self._written.pop(key, None)
        if before is None:
            await self._client.create(EVENTS, event["metadata"]["namespace"], orjson.dumps(event))
        else:
            update = {"count": before["count"] + 1, "lastTimestamp": event["lastTimestamp"]}
            meta = before["metadata"]
            await self._client.patch(EVENTS, meta["namespace"], meta["name"], orjson.dumps(update))
            event = before | update
        self._written[key] = event
        if len(self._written) > MAX_AGGREGATED:
            del self._written[next(iter(self._written))]

    def _event(self, involved: Mapping[str, Any], reason: str, message: str, kind: str) -> dict[str, Any]:
        meta, moment = involved["metadata"], format_time(self._now())
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{uuid.uuid4().hex[:16]}", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": involved.get("apiVersion") or "v1",
                "kind": involved.get("kind") or "Pod",
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "reason": reason,
            "message": message[:1024],
            "type": kind,
            "count": 1,
            "source": self._source,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
        }
