"""What etcd goes through when somebody restores a backup of it: the objects and the revision are those of then.

The API servers are restarted for that, so nobody who watches hears of it, and what was written since the backup is unknown to all.
"""

from dataclasses import dataclass
from typing import Any

from rallypoint.local.apiserver import ApiServer
from rallypoint.local.apiserver.storage.store import Store


@dataclass(frozen=True, slots=True)
class Backup:
    """Of an embedded server's store."""

    revision: int
    objects: tuple[tuple[str, dict[str, Any]], ...]
    """The name of the collection, and the object."""

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
        """Put everything back as it was; whoever watches has to begin anew.

        The listeners of the store are told of all objects as if they were new, and of none that is gone.
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
