"""A queue with priority levels: higher levels first, groups alternate within a level, first in, first out within a group.

The concurrency limiter queues its calls here and the work queue its keys. A group is a namespace, so a namespace with many items
delays only itself.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """The waiting items, each once. The cost of an operation depends on the number of levels, not on the number of items."""

    def __init__(self) -> None:
        # An OrderedDict, because removing the first item of a plain dict gets slower with each removal.
        self._positions: OrderedDict[T, tuple[int, str]] = OrderedDict()
        """The level and group of each item, in order of arrival."""
        self._levels: dict[int, OrderedDict[str, OrderedDict[T, None]]] = {}
        """The items of each level by group, the next group first. No group is empty."""

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, item: object) -> bool:
        return item in self._positions

    def push(self, item: T, *, level: int, group: str) -> None:
        """Append an item.

        Raises:
            ValueError: it is already queued.
        """
        if item in self._positions:
            raise ValueError(f"{item!r} is already queued")
        self._positions[item] = (level, group)
        self._join(item, level, group)

    def pop(self) -> T:
        """Remove and return the next item; the next group of that level follows.

        Raises:
            IndexError: the queue is empty.
        """
        if not self._levels:
            raise IndexError("the queue is empty")
        level = max(self._levels)
        groups = self._levels[level]
        group, line = next(iter(groups.items()))
        item, _ = line.popitem(last=False)
        del self._positions[item]
        if line:
            groups.move_to_end(group)
        else:
            self._close(level, group)
        return item

    def pop_oldest(self) -> T:
        """Remove and return the item that has waited longest, whatever its level and group. The order of the groups does not change.

        Raises:
            IndexError: the queue is empty.
        """
        if not self._positions:
            raise IndexError("the queue is empty")
        item = next(iter(self._positions))
        self.discard(item)
        return item

    def peek_oldest(self) -> T:
        """Return the item that has waited longest, without removing it.

        Raises:
            IndexError: the queue is empty.
        """
        if not self._positions:
            raise IndexError("the queue is empty")
        return next(iter(self._positions))

    def pop_from_longest(self) -> T:
        """Remove and return the oldest item of the largest group in the lowest level, to make room.

        Raises:
            IndexError: the queue is empty.
        """
        if not self._levels:
            raise IndexError("the queue is empty")
        line = max(self._levels[min(self._levels)].values(), key=len)
        item = next(iter(line))
        self.discard(item)
        return item

    def discard(self, item: T) -> bool:
        """Remove an item, and return whether it was waiting."""
        position = self._positions.pop(item, None)
        if position is None:
            return False
        self._leave(item, *position)
        return True

    def raise_to(self, item: T, level: int) -> None:
        """Move an item to the end of a higher level. A lower level changes nothing.

        Raises:
            KeyError: it does not wait.
        """
        current, group = self._positions[item]
        if level > current:
            self._positions[item] = (level, group)
            self._leave(item, current, group)
            self._join(item, level, group)

    def _join(self, item: T, level: int, group: str) -> None:
        groups = self._levels.get(level)
        if groups is None:
            groups = self._levels[level] = OrderedDict()
        line = groups.get(group)
        if line is None:
            line = groups[group] = OrderedDict()
        line[item] = None

    def _leave(self, item: T, level: int, group: str) -> None:
        line = self._levels[level][group]
        del line[item]
        if not line:
            self._close(level, group)

    def _close(self, level: int, group: str) -> None:
        groups = self._levels[level]
        del groups[group]
        if not groups:
            del self._levels[level]
