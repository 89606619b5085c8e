"""Events expire after an hour."""

import asyncio
from datetime import UTC, datetime, timedelta

from rallypoint.local.apiserver import ApiServer
from rallypoint.local.apiserver.controllers.expiry import expire_events
from rallypoint.local.apiserver.registry.requests import Target, WriteOptions

START = datetime(2026, 1, 1, tzinfo=UTC)


async def test_events_expire_after_an_hour() -> None:
    loop = asyncio.get_running_loop()
    server = ApiServer(clock=lambda: START + timedelta(seconds=loop.time()))
    writer = server._writer
    served = writer.catalog.find("", "v1", "events")
    assert served is not None
    timestamps = {"old": "2026-01-01T00:00:00Z", "again": "2026-01-01T00:30:00Z"}
    for name, moment in timestamps.items():
        event = {
            "metadata": {"name": name},
            "involvedObject": {"namespace": "default"},
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": moment,
        }
        writer.create(Target(served, "default"), event, WriteOptions())
    running = asyncio.create_task(expire_events(writer))
    remaining: dict[int, list[str]] = {}
    for minutes in (59, 65, 95):
        await asyncio.sleep(minutes * 60 - loop.time())
        remaining[minutes] = [entry.metadata["name"] for entry in writer.collection(served).select()]
    running.cancel()

    assert remaining == {59: ["again", "old"], 65: ["again"], 95: []}
