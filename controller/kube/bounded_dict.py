"""A mapping of limited size."""

from collections import OrderedDict
from typing import TypeVar

from typing_extensions import override

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """A mapping with at most ``max_size`` keys. Beyond that it evicts the key that was set longest ago."""

    __slots__ = ("_max_size",)

    def __init__(self, max_size: int) -> None:
        super().__init__()
        self._max_size = max_size

    @override
    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._max_size:
            self.popitem(last=False)
