"""Events about pods, written behind the node's back: they are never waited for, and may be lost.

What is told again is counted in the event that tells of it, as client-go's recorder does.
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
from controller.kube.client import Client
from controller.kube.errors import ApiError
from rallypoint.local.node.pods.status import timestamp

MOST_WAITING = 1000
MOST_REMEMBERED = 1000
"""Events that can still be counted on; then the one that was told longest ago is forgotten."""


class Events:
    def __init__(self, client: Client, component: str, node: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._source = {"component": component, "host": node}
        self._now = now
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MOST_WAITING)
        self._written: dict[tuple[str, str, str], dict[str, Any]] = {}

    def tell(self, pod: Mapping[str, Any], reason: str, message: str, *, warning: bool = False) -> None:
        if not self._waiting.full():
            self._waiting.put_nowait(self._event(pod, reason, message, "Warning" if warning else "Normal"))

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            event = await self._waiting.get()
            # An event tells of something; it is not the thing itself.
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
                await self._write(event)

    async def _write(self, event: dict[str, Any]) -> None:
        key = event["involvedObject"]["uid"], event["reason"], event["message"]
        before = self._written.pop(key, None)
        if before is None:
            await self._client.create(EVENTS, event["metadata"]["namespace"], orjson.dumps(event))
        else:
            again = {"count": before["count"] + 1, "lastTimestamp": event["lastTimestamp"]}
            meta = before["metadata"]
            await self._client.patch(EVENTS, meta["namespace"], meta["name"], orjson.dumps(again))
            event = before | again
        self._written[key] = event
        if len(self._written) > MOST_REMEMBERED:
            del self._written[next(iter(self._written))]

    def _event(self, about: Mapping[str, Any], reason: str, message: str, kind: str) -> dict[str, Any]:
        meta, moment = about["metadata"], timestamp(self._now())
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{uuid.uuid4().hex[:16]}", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": about.get("apiVersion") or "v1",
                "kind": about.get("kind") or "Pod",
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
