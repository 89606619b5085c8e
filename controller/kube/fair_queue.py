"""Who goes next when many wait: higher levels first, groups in turn within a level, first come first served within a group.

Knows neither what waits nor for what. The concurrency limiter keeps its calls in such queues and the work queue its keys; a group is a namespace, so one
that floods the service delays only itself.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """What waits, each thing once. Every operation costs the same however many wait; only the number of levels counts."""

    def __init__(self) -> None:
        # OrderedDict, as taking the first of a plain dict gets slower with each one taken before.
        self._places: OrderedDict[T, tuple[int, str]] = OrderedDict()
        """The level and group of each thing, in order of arrival."""
        self._levels: dict[int, OrderedDict[str, OrderedDict[T, None]]] = {}
        """The lines of each level by group, the group whose turn is next first. None is empty."""

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, item: object) -> bool:
        return item in self._places

    def push(self, item: T, *, level: int, group: str) -> None:
        """Stand at the end of the line.

        Raises:
            ValueError: it waits already.
        """
        if item in self._places:
            raise ValueError(f"{item!r} waits already")
        self._places[item] = (level, group)
        self._join(item, level, group)

    def pop(self) -> T:
        """Take what goes next; the turn passes to the next group of that level.

        Raises:
            IndexError: nothing waits.
        """
        if not self._levels:
            raise IndexError("nothing waits")
        level = max(self._levels)
        groups = self._levels[level]
        group, line = next(iter(groups.items()))
        item, _ = line.popitem(last=False)
        del self._places[item]
        if line:
            groups.move_to_end(group)
        else:
            self._close(level, group)
        return item

    def pop_oldest(self) -> T:
        """Take what has waited longest, whatever its level and group, whose turn stays as it is.

        Raises:
            IndexError: nothing waits.
        """
        if not self._places:
            raise IndexError("nothing waits")
        item = next(iter(self._places))
        self.discard(item)
        return item

    def peek_oldest(self) -> T:
        """Return what has waited longest; it goes on waiting.

        Raises:
            IndexError: nothing waits.
        """
        if not self._places:
            raise IndexError("nothing waits")
        return next(iter(self._places))

    def pop_from_longest(self) -> T:
        """Take the oldest item of the group that has most waiting in the lowest level: what to drop when too much waits.

        Raises:
            IndexError: nothing waits.
        """
        if not self._levels:
            raise IndexError("nothing waits")
        line = max(self._levels[min(self._levels)].values(), key=len)
        item = next(iter(line))
        self.discard(item)
        return item

    def discard(self, item: T) -> bool:
        """Stop waiting; whether it did wait."""
        place = self._places.pop(item, None)
        if place is None:
            return False
        self._leave(item, *place)
        return True

    def raise_to(self, item: T, level: int) -> None:
        """Go to the end of a higher level's line; from there, a lower level changes nothing.

        Raises:
            KeyError: it does not wait.
        """
        current, group = self._places[item]
        if level > current:
            self._places[item] = (level, group)
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
