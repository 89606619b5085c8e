"""The differences between two JSON values. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from typing_extensions import override

_SHOWN = 300
"""The longest value that a text shows whole, in characters."""


@dataclass(frozen=True, slots=True)
class Difference:
    """``pointer`` is a JSON pointer (RFC 6901)."""

    pointer: str
    text: str

    @override
    def __str__(self) -> str:
        return f"{self.pointer}: {self.text}"


def differences(expected: Any, actual: Any, at: str = "", *, additions: bool = True) -> Iterator[Difference]:
    """Yield the differences; without ``additions``, names that only ``actual`` has are none. Values of another type differ."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in sorted({*expected, *actual}):
            member_pointer = child_pointer(at, name)
            if name not in actual:
                yield Difference(member_pointer, f"missing, expected {_show(expected[name])}")
            elif name in expected:
                yield from differences(expected[name], actual[name], member_pointer, additions=additions)
            elif additions:
                yield Difference(member_pointer, f"not expected: {_show(actual[name])}")
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield Difference(at, f"expected {_show(expected)}, found {_show(actual)}")
        for index, (wanted, found) in enumerate(zip(expected, actual, strict=False)):
            yield from differences(wanted, found, child_pointer(at, index), additions=additions)
    elif expected != actual or type(expected) is not type(actual):
        yield Difference(at, f"expected {_show(expected)}, found {_show(actual)}")


def child_pointer(pointer: str, key: str | int) -> str:
    """Return the pointer to a member or an item."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _show(value: Any) -> str:
    shown = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]} ..."
