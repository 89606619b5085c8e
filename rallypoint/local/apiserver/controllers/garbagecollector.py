"""The garbage collector and the namespace controller.

Handles the changes of the store in order: deletes dependents of deleted owners, processes the finalizers of foreground
and orphaning deletions, and deletes the contents of terminating namespaces.

Source: kubernetes, pkg/controller/garbagecollector/garbagecollector.go, pkg/controller/namespace/deletion.
"""

import asyncio

from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.registry.deletion import FOREGROUND, ORPHAN, delete
from rallypoint.local.apiserver.registry.requests import DeleteOptions, Target
from rallypoint.local.apiserver.registry.writer import Writer
from rallypoint.local.apiserver.resources.resource import Resource
from rallypoint.local.apiserver.storage.store import Change, Collection, Entry, Key

Location = tuple[Collection, Key]


class GarbageCollector:
    """Handles the changes of one store until canceled."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._store = writer.store
        self._changes: asyncio.Queue[tuple[Collection, Change]] = asyncio.Queue()
        self._store.listeners.append(self._changes)

    async def run(self) -> None:
        while True:
            collection, change = await self._changes.get()
            self.handle(collection, change)
            if self._changes.qsize() % 64 == 0:  # lets requests run during a burst of deletions
                await asyncio.sleep(0)

    def handle(self, collection: Collection, change: Change) -> None:
        meta = change.entry.metadata
        if change.type == "DELETED":
            for location in list(self._store.dependents.get(meta["uid"], ())):
                self._collect_dependent(location)
            for owner in meta.get("ownerReferences", ()):
                self._process_finalizers(owner["uid"])
            self._finalize_namespace(meta.get("namespace", ""))
            return
        if meta.get("ownerReferences"):
            self._collect_dependent((collection, change.entry.key))
        if meta.get("deletionTimestamp"):
            self._process_finalizers(meta["uid"])
            if collection.name == "/namespaces":
                self._delete_contents(meta["name"])

    def _find(self, location: Location) -> tuple[Resource, Entry] | None:
        collection, key = location
        resource = self._writer.catalog.of_collection(collection.name)
        entry = collection.entries.get(key)
        return None if resource is None or entry is None else (resource, entry)

    def _collect_dependent(self, location: Location) -> None:
        """Delete an object without existing owners, or remove its references to missing ones."""
        found = self._find(location)
        if found is None:
            return
        resource, entry = found
        owners: list[Json] = entry.metadata.get("ownerReferences", [])
        remaining = [owner for owner in owners if self._exists(owner, entry)]
        if not remaining and owners:
            self._delete(resource, entry)
        elif len(remaining) < len(owners):
            self._write(resource, entry, {"ownerReferences": remaining})

    def _exists(self, owner: Json, dependent: Entry) -> bool:
        """Return whether an owner exists, in the namespace of its dependent or cluster-scoped."""
        location = self._store.owners.get(owner["uid"])
        return location is not None and location[1][0] in ("", dependent.key[0])

    def _process_finalizers(self, uid: str) -> None:
        """Process the garbage collector's finalizers of an owner that is being deleted."""
        location = self._store.owners.get(uid)
        found = self._find(location) if location is not None else None
        if found is None or not found[1].metadata.get("deletionTimestamp"):
            return
        resource, entry = found
        finalizers: list[str] = entry.metadata.get("finalizers", [])
        if ORPHAN in finalizers:
            self._orphan_dependents(uid)
        elif FOREGROUND not in finalizers or self._delete_dependents(uid):
            return
        remaining = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
        self._write(resource, entry, {"finalizers": remaining})

    def _orphan_dependents(self, uid: str) -> None:
        for location in list(self._store.dependents.get(uid, ())):
            found = self._find(location)
            if found is not None:
                resource, entry = found
                owners = [owner for owner in entry.metadata["ownerReferences"] if owner["uid"] != uid]
                self._write(resource, entry, {"ownerReferences": owners})

    def _delete_dependents(self, uid: str) -> bool:
        """Delete the dependents of an owner; return whether one that blocks its deletion remains."""
        for location in list(self._store.dependents.get(uid, ())):
            found = self._find(location)
            if found is not None and not found[1].metadata.get("deletionTimestamp"):
                self._delete(*found)
        remaining = (self._find(location) for location in self._store.dependents.get(uid, ()))
        return any(
            owner["uid"] == uid and owner.get("blockOwnerDeletion")
            for found in remaining
            if found is not None
            for owner in found[1].metadata["ownerReferences"]
        )

    def _delete_contents(self, namespace: str) -> None:
        for collection in list(self._store.collections.values()):
            for entry in collection.select(namespace):
                found = self._find((collection, entry.key))
                if found is not None and not entry.metadata.get("deletionTimestamp"):
                    self._delete(*found)
        self._finalize_namespace(namespace)

    def _finalize_namespace(self, namespace: str) -> None:
        """Remove the finalizer of a terminating namespace without contents."""
        found = self._find((self._store.collection("/namespaces"), ("", namespace)))
        if not namespace or found is None or not found[1].metadata.get("deletionTimestamp"):
            return
        if any(namespace in collection.namespaces for collection in self._store.collections.values()):
            return
        resource, entry = found
        self._writer.put(
            resource, {**entry.object, "spec": {**entry.object.get("spec", {}), "finalizers": []}}
        )

    def _delete(self, resource: Resource, entry: Entry) -> None:
        namespace, name = entry.key
        try:
            delete(self._writer, Target(resource, namespace, name), DeleteOptions(propagation="Background"))
        except StatusError as error:
            if error.code != 404:
                raise

    def _write(self, resource: Resource, entry: Entry, changed: Json) -> None:
        meta = {key: value for key, value in (entry.metadata | changed).items() if value != []}
        self._writer.put(resource, {**entry.object, "metadata": meta})
