"""The restore of an etcd backup: objects and revision return to those of the backup.

A restore restarts the API servers, so that watches end without an event for what changed. Writes after the backup are lost.
"""

from dataclasses import dataclass
from typing import Any

from rallypoint.local.apiserver import ApiServer
from rallypoint.local.apiserver.storage.store import Store


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup of an embedded server's store."""

    revision: int
    objects: tuple[tuple[str, dict[str, Any]], ...]
    """Pairs of a collection's name and an object."""

    @classmethod
    def of(cls, store: Store) -> "Backup":
        return cls(
            store.revision,
            tuple(
                (name, entry.object)
                for name, collection in store.collections.items()
                for entry in collection.entries.values()
            ),
        )

    def restore(self, server: ApiServer) -> None:
        """Restore the store and close all watches.

        The listeners of the store get every restored object as added, and no deletion.
        """
        store = server.store
        for collection in store.collections.values():
            collection.close_watchers()
            collection.entries.clear()
            collection.namespaces.clear()
            collection.history.clear()
            collection.compacted_revision = self.revision
        store.owners.clear()
        store.dependents.clear()
        store.restore(self.revision, self.objects)
        server.serve_definitions()
