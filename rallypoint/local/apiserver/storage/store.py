"""The objects, their versions and their history: one revision counter, one collection per resource.

Stored objects never change in place: a write stores a new dict, which can share unchanged parts with the old one.
Readers and watchers keep entries without copying, and each object is encoded once. No method but ``flush`` awaits, so
a read and the following write are atomic unless the caller awaits between them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

import orjson

from rallypoint.local.apiserver.apimachinery.unstructured import Json

Key = tuple[str, str]
"""Namespace ("" for cluster-scoped objects) and name."""

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class Entry:
    """One version of an object; ``encoded`` caches its JSON per API version."""

    __slots__ = ("encoded", "object", "revision", "stale")

    def __init__(self, obj: Json, revision: int) -> None:
        self.object = obj
        self.revision = revision
        self.encoded: dict[str, bytes] = {}
        self.stale = False
        """Whether the object in etcd would differ from the object as read; then even a write without changes is stored."""

    @property
    def metadata(self) -> Json:
        metadata: Json = self.object["metadata"]
        return metadata

    @property
    def key(self) -> Key:
        return self.metadata.get("namespace", ""), self.metadata["name"]

    def bytes(self, api_version: str) -> bytes:
        """Return the object as JSON in an API version, cached for lists and watches."""
        found = self.encoded.get(api_version)
        if found is None:
            obj = self.object
            versioned = obj if obj["apiVersion"] == api_version else {**obj, "apiVersion": api_version}
            found = self.encoded[api_version] = orjson.dumps(versioned)
        return found


@dataclass(frozen=True, slots=True)
class Change:
    """The change at one revision; ``entry`` is the object after it, for DELETED its last state."""

    type: ChangeType
    entry: Entry
    previous: Entry | None

    @property
    def revision(self) -> int:
        return self.entry.revision


class Gone(Exception):
    """The requested revision is compacted; ``oldest`` is the first one available."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {revision} ({oldest})")
        self.oldest = oldest


def _ignore() -> None: ...


@dataclass(slots=True, eq=False)
class Watcher:
    """A queue of changes for one reader. A full queue is closed (``lost``), so writers never wait."""

    capacity: int
    pending: deque[Change] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    lost: bool = False
    on_overflow: Callable[[], None] = _ignore
    """Called once, when the queue overflows."""

    def enqueue(self, change: Change) -> None:
        if self.lost:
            return
        if len(self.pending) >= self.capacity:
            self.lost = True
            self.pending.clear()
            self.on_overflow()
        else:
            self.pending.append(change)
        self.wake.set()

    def drain(self) -> list[Change]:
        """Remove and return all pending changes, and clear ``wake``."""
        drained = list(self.pending)
        self.pending.clear()
        self.wake.clear()
        return drained


class ChangeRecorder(Protocol):
    """Persists changes beyond the life of this process."""

    def record(self, collection: str, change: Change) -> None: ...

    async def flush(self) -> None:
        """Wait until all recorded changes are persistent."""
        ...


class Collection:
    """The objects of one resource and their latest changes."""

    def __init__(self, name: str, history: int, compacted_revision: int) -> None:
        self.name = name
        self.entries: dict[Key, Entry] = {}
        self.namespaces: dict[str, dict[Key, Entry]] = {}
        self.history: deque[Change] = deque()
        self.limit = history
        self.compacted_revision = compacted_revision
        """The latest revision whose change is no longer in the history."""
        self.watchers: set[Watcher] = set()

    def select(self, namespace: str = "") -> list[Entry]:
        """Return the objects of a namespace, or all, sorted by namespace and name."""
        found = self.namespaces.get(namespace, {}) if namespace else self.entries
        return [found[key] for key in sorted(found)]

    def at(self, revision: int, namespace: str = "") -> list[Entry]:
        """Return the objects as of a revision.

        Raises:
            Gone: the revision is compacted.
        """
        self.check(revision)
        then = dict(self.namespaces.get(namespace, {}) if namespace else self.entries)
        for change in reversed(self.history):
            if change.revision <= revision:
                break
            key = change.entry.key
            if namespace and key[0] != namespace:
                continue
            if change.previous is None:
                then.pop(key, None)
            else:
                then[key] = change.previous
        return [then[key] for key in sorted(then)]

    def since(self, revision: int) -> Iterator[Change]:
        """Return the changes after a revision, oldest first; raises Gone like ``at``."""
        self.check(revision)
        return (change for change in self.history if change.revision > revision)

    def check(self, revision: int) -> None:
        if revision < self.compacted_revision:
            raise Gone(revision, self.compacted_revision)

    def compact(self, keep: int = 0) -> None:
        """Drop all but the latest changes from the history."""
        while len(self.history) > keep:
            self.compacted_revision = self.history.popleft().revision

    def close_watchers(self) -> None:
        for watcher in self.watchers:
            watcher.lost = True
            watcher.wake.set()

    def record(self, change: Change) -> None:
        self.history.append(change)
        self.compact(self.limit)
        for watcher in self.watchers:
            watcher.enqueue(change)


class Store:
    """All collections and the revision counter."""

    def __init__(self, history: int = 4096) -> None:
        self.revision = 1
        self.collections: dict[str, Collection] = {}
        self.owners: dict[str, tuple[Collection, Key]] = {}
        """Collection and key of every object, by UID."""
        self.dependents: dict[str, set[tuple[Collection, Key]]] = {}
        """Dependents by the UID of their owner, which need not exist."""
        self.listeners: list[asyncio.Queue[tuple[Collection, Change]]] = []
        self.recorder: ChangeRecorder | None = None
        self._history = history

    def collection(self, name: str) -> Collection:
        """Return the collection of that name (``group/plural``), created on first use."""
        found = self.collections.get(name)
        if found is None:
            found = self.collections[name] = Collection(name, self._history, self.revision)
        return found

    def restore(self, revision: int, objects: Iterable[tuple[str, Json]]) -> None:
        """Load the revision and the objects of an earlier process, with the names of their collections.

        Watchers receive no events for them. Listeners do, because the garbage collector has not checked their owners.
        """
        self.revision = revision
        for name, obj in objects:
            collection = self.collection(name)
            entry = Entry(obj, int(obj["metadata"]["resourceVersion"]))
            self._insert(collection, entry)
            for listener in self.listeners:
                listener.put_nowait((collection, Change("ADDED", entry, None)))

    async def flush(self) -> None:
        """Wait until all changes so far are persistent, if this store has a recorder."""
        if self.recorder is not None:
            await self.recorder.flush()

    def put(self, collection: Collection, obj: Json) -> Entry:
        """Store an object under its namespace and name, and notify watchers."""
        entry = self._new_entry(obj)
        previous = collection.entries.get(entry.key)
        if previous is not None:
            self._unindex(collection, previous)
        self._insert(collection, entry)
        self._publish(collection, Change("MODIFIED" if previous else "ADDED", entry, previous))
        return entry

    def reread(self, collection: Collection, read: Callable[[Json], Json], storage_api_version: str) -> None:
        """Convert every object with ``read`` at its current revision, and close all watches.

        Objects that are not in the API version ``storage_api_version`` become stale: the next write stores them in it.
        """
        for old in list(collection.entries.values()):
            entry = Entry(read(old.object), old.revision)
            entry.stale = (
                old.stale
                or entry.object is not old.object
                or entry.object["apiVersion"] != storage_api_version
            )
            collection.entries[old.key] = collection.namespaces[old.key[0]][old.key] = entry
        collection.compact()
        collection.close_watchers()

    def remove(self, collection: Collection, obj: Json) -> Entry:
        """Remove an object; its last state has the revision of the removal."""
        entry = self._new_entry(obj)
        previous = collection.entries.pop(entry.key)
        namespace_entries = collection.namespaces[entry.key[0]]
        del namespace_entries[entry.key]
        if not namespace_entries:
            del collection.namespaces[entry.key[0]]
        self._unindex(collection, previous)
        self._publish(collection, Change("DELETED", entry, previous))
        return entry

    def watch(self, collection: Collection, capacity: int, changes: Iterable[Change] = ()) -> Watcher:
        """Add a watcher that receives ``changes`` and then all later ones; ``unwatch`` removes it."""
        watcher = Watcher(capacity)
        watcher.pending.extend(changes)
        collection.watchers.add(watcher)
        return watcher

    def unwatch(self, collection: Collection, watcher: Watcher) -> None:
        collection.watchers.discard(watcher)

    def close_watchers(self) -> None:
        """Close all watches, as a server does when it stops."""
        for collection in self.collections.values():
            collection.close_watchers()

    def _new_entry(self, obj: Json) -> Entry:
        self.revision += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.revision)}
        return Entry({**obj, "metadata": metadata}, self.revision)

    def _publish(self, collection: Collection, change: Change) -> None:
        if self.recorder is not None:
            self.recorder.record(collection.name, change)
        collection.record(change)
        for listener in self.listeners:
            listener.put_nowait((collection, change))

    def _insert(self, collection: Collection, entry: Entry) -> None:
        collection.entries[entry.key] = entry
        collection.namespaces.setdefault(entry.key[0], {})[entry.key] = entry
        self._index(collection, entry)

    def _index(self, collection: Collection, entry: Entry) -> None:
        location = (collection, entry.key)
        self.owners[entry.metadata["uid"]] = location
        for owner in entry.metadata.get("ownerReferences", ()):
            self.dependents.setdefault(owner["uid"], set()).add(location)

    def _unindex(self, collection: Collection, entry: Entry) -> None:
        location = (collection, entry.key)
        self.owners.pop(entry.metadata["uid"], None)
        for owner in entry.metadata.get("ownerReferences", ()):
            locations = self.dependents.get(owner["uid"])
            if locations is not None:
                locations.discard(location)
                if not locations:
                    del self.dependents[owner["uid"]]
