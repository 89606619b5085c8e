"""What an informer knows: rows by name and by one index, never older than what this process has written itself.

All methods are plain: nothing awaits in here, so a reader sees one consistent state. resourceVersions of one resource type are ordered
numbers (KEP-5504); only those of one store are ever compared.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class Row(Protocol):
    """What a store asks of the objects in it."""

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
"""(before, after); None is not there."""


class Store(Generic[R]):
    """Rows by (namespace, name), and by ``index`` of each row if one is given."""

    def __init__(self, index: Callable[[R], str] | None = None) -> None:
        self.last_synced_resource_version = 0
        """The resourceVersion up to which the watch has told everything."""
        self.unselected: set[tuple[str, str]] = set()
        """Keys of rows that the watch does not report, because its selector does not match them, or because it lost their events.
        Whoever put them has them read again from time to time."""
        self._amended: set[tuple[str, str]] = set()
        """Keys of rows that say more than the server has told, at the version that it told last."""
        self._rows: dict[tuple[str, str], R] = {}
        self._index = index
        self._by_index: defaultdict[str, dict[tuple[str, str], R]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(list(self._rows.values()))

    def get(self, namespace: str, name: str) -> R | None:
        return self._rows.get((namespace, name))

    def indexed(self, value: str) -> tuple[R, ...]:
        """The rows whose index is ``value``."""
        return tuple(self._by_index[value].values()) if value in self._by_index else ()

    def put(self, row: R) -> Change[R] | None:
        """Take a row from a watch or from the answer to a write; None if it is not newer than what is known.

        A row that is not there although the watch has come further has been removed again: an answer that comes late must not
        bring it back, nor must an event that comes twice.
        """
        key = (row.namespace, row.name)
        before = self._rows.get(key)
        known = self.last_synced_resource_version if before is None else before.resource_version
        if before is not None and row.resource_version == known:
            self.unselected.discard(key)  # the watch has caught up with what was read by its name
        if row.resource_version <= known:
            return None
        self._set(key, before, row)
        self.unselected.discard(key)
        return before, row

    def put_unselected(self, row: R) -> Change[R] | None:
        """Take a row that was just read by its name and that the watch does not report; None if it is not newer than what is known."""
        key = (row.namespace, row.name)
        before = self._rows.get(key)
        if before is not None and row.resource_version <= before.resource_version:
            return None
        self._set(key, before, row)
        self.unselected.add(key)
        return before, row

    def advance(self, resource_version: int) -> None:
        """The watch has come so far."""
        self.last_synced_resource_version = max(self.last_synced_resource_version, resource_version)

    def amend(self, row: R) -> None:
        """Replace a row by a variant of itself that says more than the server has told yet."""
        key = (row.namespace, row.name)
        self._set(key, self._rows.get(key), row)
        self._amended.add(key)

    def remove(self, row: R) -> Change[R] | None:
        """Take away an object that is gone; None if it is not known, or another of its name is."""
        key = (row.namespace, row.name)
        before = self._rows.get(key)
        if before is None or before.uid != row.uid:
            return None
        self._set(key, before, None)
        return before, None

    def replace(self, rows: Iterable[R], resource_version: int) -> list[Change[R]]:
        """Take a whole list, as of ``resource_version``; what has changed.

        A row that is newer than the list was written by this process meanwhile, and stays. But if the list is older than what
        the watch has told, the server has been set back to an earlier state, and nothing that is known counts. A server that was set back may have passed
        that place since, so a row that was amended counts as changed even at its old version: what it says more may never have been.
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
        for key, row in listed.items():
            before = self._rows.get(key)
            is_same = before is not None and before.resource_version == row.resource_version
            if not is_same or is_set_back or key in self._amended:
                changes.append((before, row))
                self._set(key, before, row)
        self.unselected -= listed.keys()
        self.last_synced_resource_version = resource_version
        return changes

    def _set(self, key: tuple[str, str], before: R | None, after: R | None) -> None:
        self._amended.discard(key)
        if after is None:
            del self._rows[key]
            self.unselected.discard(key)
        else:
            self._rows[key] = after
        if self._index is None:
            return
        if before is not None:
            value = self._index(before)
            self._by_index[value].pop(key, None)
            if not self._by_index[value]:
                del self._by_index[value]
        if after is not None:
            self._by_index[self._index(after)][key] = after
