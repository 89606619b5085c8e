"""The cache of an informer: rows by name and by one index, never older than the last write of this process.

No method awaits, so a reader sees one consistent state. resourceVersions of one resource type are ordered numbers (KEP-5504); the store
compares only its own.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class Row(Protocol):
    """What the store requires of its objects."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> int: ...


R = TypeVar("R", bound=Row)
Change = tuple[R | None, R | None]
"""(before, after); None means that the row does not exist."""


class Store(Generic[R]):
    """Rows by (namespace, name), and by ``index`` of each row if given."""

    def __init__(self, index: Callable[[R], str] | None = None) -> None:
        self.last_synced_resource_version = 0
        """The resourceVersion up to which the watch has reported everything."""
        self.unselected: set[tuple[str, str]] = set()
        """Keys of rows that the watch does not report, because its selector does not match them or because events were lost.
        The relister reads them periodically.
        """
        self._latest_change = 0
        self._has_unknown_deletion = False
        """Whether an object was found to be gone without the event that says at which resourceVersion."""
        self._amended: set[tuple[str, str]] = set()
        """Keys of rows that contain more than the server has reported, at the version that it reported last."""
        self._rows: dict[tuple[str, str], R] = {}
        self._index = index
        self._by_index: defaultdict[str, dict[tuple[str, str], R]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def latest_change(self) -> int | None:
        """The highest resourceVersion of all changes that the store contains, by lists, events and answers to writes.

        None if that of a deletion is unknown, such as of one by this process that the watch has not reported yet.
        """
        return None if self._amended or self._has_unknown_deletion else self._latest_change

    def __iter__(self) -> Iterator[R]:
        return iter(list(self._rows.values()))

    def get(self, namespace: str, name: str) -> R | None:
        return self._rows.get((namespace, name))

    def indexed(self, value: str) -> tuple[R, ...]:
        """Return the rows whose index is ``value``."""
        return tuple(self._by_index[value].values()) if value in self._by_index else ()

    def confirm(self, namespace: str, name: str, uid: str, resource_version: int) -> bool:
        """Take note that the watch reports an object in this version, if the store has it in this version or a later one.

        Return whether it has; then ``put`` would change nothing.
        """
        key = (namespace, name)
        row = self._rows.get(key)
        if row is None or row.uid != uid or row.resource_version < resource_version:
            return False
        if row.resource_version == resource_version:
            self.unselected.discard(key)  # the watch has reached the version that was read by name
        return True

    def put(self, row: R) -> Change[R] | None:
        """Store a row from a watch or from the answer to a write. Return None if it is not newer than the known row.

        A missing row below ``last_synced_resource_version`` was deleted: neither a late answer nor a repeated event may add it again.
        """
        if self.confirm(row.namespace, row.name, row.uid, row.resource_version):
            return None
        key = (row.namespace, row.name)
        before = self._rows.get(key)
        known = self.last_synced_resource_version if before is None else before.resource_version
        if row.resource_version <= known:
            return None
        self._set(key, before, row)
        self.unselected.discard(key)
        return before, row

    def put_unselected(self, row: R) -> Change[R] | None:
        """Store a row that was read by name and that the watch does not report. Return None if it is not newer than the known row."""
        key = (row.namespace, row.name)
        before = self._rows.get(key)
        if before is not None and row.resource_version <= before.resource_version:
            return None
        self._set(key, before, row)
        self.unselected.add(key)
        return before, row

    def advance(self, resource_version: int) -> None:
        """Record that the watch has reached this version."""
        self.last_synced_resource_version = max(self.last_synced_resource_version, resource_version)

    def amend(self, row: R) -> None:
        """Replace a row by a variant that contains more than the server has reported yet."""
        key = (row.namespace, row.name)
        self._set(key, self._rows.get(key), row)
        self._amended.add(key)

    def remove(self, row: R) -> Change[R] | None:
        """Remove a deleted object. Return None if it is unknown, or if another object has its name."""
        key = (row.namespace, row.name)
        before = self._rows.get(key)
        if before is None or before.uid != row.uid:
            return None
        if row.resource_version > before.resource_version:
            self._latest_change = max(self._latest_change, row.resource_version)
        else:
            self._has_unknown_deletion = True
        self._set(key, before, None)
        return before, None

    def replace(self, rows: Iterable[R], resource_version: int) -> list[Change[R]]:
        """Replace the store's contents by a list at ``resource_version``, and return the changes.

        A row that is newer than the list comes from a later write of this process, and stays. But if the list is older than what
        the watch has reported, the server was restored from a backup, and no known row counts. The restored server may have passed
        that version since, so an amended row counts as changed even at its old version: its amendment may be lost.
        """
        listed = {(row.namespace, row.name): row for row in rows}
        is_set_back = resource_version < self.last_synced_resource_version
        changes: list[Change[R]] = []
        for key, known in list(self._rows.items()):
            if known.resource_version > resource_version and not is_set_back:
                listed.pop(key, None)
            elif key not in listed and (key not in self.unselected or is_set_back):
                changes.append((known, None))
                self._set(key, known, None)
                self._latest_change = max(self._latest_change, resource_version)  # the deletion was not later
        for key, row in listed.items():
            before = self._rows.get(key)
            is_same = before is not None and before.resource_version == row.resource_version
            if not is_same or is_set_back or key in self._amended:
                changes.append((before, row))
                self._set(key, before, row)
        self.unselected -= listed.keys()
        self._latest_change = resource_version if is_set_back else self._latest_change
        if self._has_unknown_deletion:
            self._latest_change, self._has_unknown_deletion = resource_version, False
        self.last_synced_resource_version = resource_version
        return changes

    def _set(self, key: tuple[str, str], before: R | None, after: R | None) -> None:
        self._amended.discard(key)
        if after is None:
            del self._rows[key]
            self.unselected.discard(key)
        else:
            self._rows[key] = after
            self._latest_change = max(self._latest_change, after.resource_version)
        if self._index is None:
            return
        if before is not None:
            value = self._index(before)
            self._by_index[value].pop(key, None)
            if not self._by_index[value]:
                del self._by_index[value]
        if after is not None:
            self._by_index[self._index(after)][key] = after
