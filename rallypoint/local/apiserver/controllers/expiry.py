"""Deletes events after an hour, as kube-apiserver does."""

import asyncio
from datetime import timedelta

from api.times import parse_time
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.registry.writer import Writer

LIFETIME = timedelta(hours=1)
"""Source: kube-apiserver, ``--event-ttl``."""
INTERVAL_SECONDS = 60.0


async def expire_events(writer: Writer) -> None:
    """Delete expired events periodically until canceled."""
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        resource = writer.catalog.find("", "v1", "events")
        assert resource is not None
        oldest = writer.clock() - LIFETIME
        for entry in list(writer.collection(resource).entries.values()):
            if parse_time(_last_observed(entry.object)) < oldest:
                writer.remove(resource, entry.object)


def _last_observed(event: Json) -> str:
    """Return the time at which an event last occurred."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"]["creationTimestamp"]
    )
