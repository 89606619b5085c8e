"""Watches: stream the changes of a collection to one client."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator

import orjson

from rallypoint.local.apiserver.apimachinery import errors
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.registry.lists import (
    ListOptions,
    parse_resource_version,
    too_large_resource_version,
)
from rallypoint.local.apiserver.serving.views import View
from rallypoint.local.apiserver.storage.store import Change, Collection, Entry, Gone, Store, Watcher

QUEUE_CAPACITY = 16_384
"""Maximum pending changes of one client. A slower client is disconnected and lists again."""

BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0
"""A watch sends a bookmark so many seconds before its timeout. Source: apiserver, pkg/storage/cacher/cache_watcher.go, nextBookmarkTime."""
CLOCK_RESOLUTION_SECONDS = 1e-6
"""Remaining times below this count as zero, so a watch also ends on a clock that does not advance."""

DEFAULT_TIMEOUT_SECONDS = (1800, 3600)
"""Range of the timeout of a watch without ``timeoutSeconds``."""

INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class Watch:
    """The watch of one client; send the frames of ``open`` and ``frames``."""

    def __init__(
        self, store: Store, collection: Collection, namespace: str, options: ListOptions, view: View
    ) -> None:
        self._store = store
        self._collection = collection
        self._namespace = namespace
        self._options = options
        self._view = view
        self._since = parse_resource_version(options.version)
        self._watcher: Watcher | None = None

    def open(self, on_overflow: Callable[[], None]) -> list[bytes]:
        """Start the watch and return the initial frames; no later change is missed.

        A future resource version delays the events, except that ``sendInitialEvents`` returns an error. The server
        calls ``on_overflow`` when the queue of the client is full.
        """
        options, store = self._options, self._store
        since = self._since
        if options.initial_events and since > store.revision:
            return [frame("ERROR", orjson.dumps(too_large_resource_version(since, store.revision).status))]
        frames: list[bytes] = []
        changes: Iterator[Change] = iter(())
        if options.initial_events or (since == 0 and options.initial_events is None):
            frames = [self._frame("ADDED", entry) for entry in self._initial_entries()]
        elif since:
            try:
                changes = self._collection.since(since)
            except Gone as gone:
                return [frame("ERROR", orjson.dumps(errors.expired(str(gone)).status))]
        if options.initial_events and options.bookmarks:
            frames.append(self._bookmark(INITIAL_EVENTS_END))
        self._watcher = store.watch(self._collection, QUEUE_CAPACITY, changes)
        self._watcher.on_overflow = on_overflow
        return frames

    def close(self) -> None:
        if self._watcher is not None:
            self._store.unwatch(self._collection, self._watcher)

    async def frames(self) -> AsyncIterator[list[bytes]]:
        """Yield frames and bookmarks until the timeout or until the queue overflows."""
        watcher = self._watcher
        if watcher is None:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_seconds()
        next_bookmark = loop.time() + BOOKMARK_SECONDS
        if end - loop.time() > LAST_BOOKMARK_SECONDS:
            next_bookmark = min(next_bookmark, end - LAST_BOOKMARK_SECONDS)
        while not watcher.lost and end - loop.time() > CLOCK_RESOLUTION_SECONDS:
            try:
                remaining = max(min(end, next_bookmark) - loop.time(), CLOCK_RESOLUTION_SECONDS)
                async with asyncio.timeout(remaining):
                    await watcher.wake.wait() if not watcher.pending else None
            except TimeoutError:
                if end - loop.time() > CLOCK_RESOLUTION_SECONDS:
                    next_bookmark = loop.time() + BOOKMARK_SECONDS
                    if self._should_send_bookmark():
                        yield [self._bookmark()]
                continue
            found = [
                frame_bytes for change in watcher.drain() if (frame_bytes := self._event(change)) is not None
            ]
            if found:
                yield found
        if self._should_send_bookmark() and not watcher.lost:
            yield [self._bookmark()]

    def _timeout_seconds(self) -> float:
        if self._options.timeout_seconds and self._options.timeout_seconds > 0:
            return float(self._options.timeout_seconds)
        return random.uniform(*DEFAULT_TIMEOUT_SECONDS)

    def _initial_entries(self) -> list[Entry]:
        entries = self._collection.select(self._namespace)
        return [entry for entry in entries if self._is_selected(entry)]

    def _is_selected(self, entry: Entry | None) -> bool:
        if entry is None or (self._namespace and entry.key[0] != self._namespace):
            return False
        return self._options.predicate is None or self._options.predicate(entry.object)

    def _event(self, change: Change) -> bytes | None:
        """Return the event for a change; an object that leaves the selection is DELETED."""
        if change.revision <= self._since:
            return None
        before = self._is_selected(change.previous)
        after = change.type != "DELETED" and self._is_selected(change.entry)
        if after:
            return self._frame("MODIFIED" if before else "ADDED", change.entry)
        if not before or change.previous is None:
            return None
        if change.type == "DELETED":
            return self._frame("DELETED", change.entry)
        return self._frame("DELETED", _at_revision(change.previous, change.revision))

    def _frame(self, kind: str, entry: Entry) -> bytes:
        return frame(kind, self._view.encode_event(entry))

    def _should_send_bookmark(self) -> bool:
        return self._options.bookmarks and self._store.revision >= self._since

    def _bookmark(self, annotations: Json | None = None) -> bytes:
        metadata: Json = {"resourceVersion": str(self._store.revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        return frame("BOOKMARK", self._view.encode_bookmark(metadata))


def frame(kind: str, obj: bytes) -> bytes:
    """Encode a watch event as a line of JSON."""
    return b'{"type":"' + kind.encode() + b'","object":' + obj + b"}\n"


def _at_revision(entry: Entry, at: int) -> Entry:
    metadata = {**entry.metadata, "resourceVersion": str(at)}
    return Entry({**entry.object, "metadata": metadata}, at)
