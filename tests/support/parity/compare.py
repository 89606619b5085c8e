"""The differences between a record and the recorded one. Pure."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from typing_extensions import override

from tests.support.parity.case import Record

SECTIONS = ("creates", "rejected", "deletes", "live", "current", "status", "events")

_SHOWN = 300
_OPTIONAL_EVENT = "ExitedWithCode"
"""The original sends it for ended pods that a reconcile happens to find; more of them are no difference."""


@dataclass(frozen=True, slots=True)
class Difference:
    """``pointer`` is a JSON pointer into the record; that of an event is ``/events/<reason>``."""

    pointer: str
    text: str

    @override
    def __str__(self) -> str:
        return f"{self.pointer}: {self.text}"


def compare(
    expected: Record, actual: Record, *, left_out: Collection[str] = (), lossy_events: bool = False
) -> list[Difference]:
    """The differences in all sections but those left out; none when the records agree.

    Where several outcomes were recorded, the one that fits best is taken, for each section by itself. With
    ``lossy_events``, events that were not recorded are no difference.
    """
    return [
        difference
        for section in SECTIONS
        if section not in left_out
        for difference in min(
            (
                list(_section(section, variant, actual[section], lossy_events))
                for variant in _variants(expected, section)
            ),
            key=len,
        )
    ]


def _variants(expected: Record, section: str) -> Iterator[Any]:
    yield expected[section]
    yield from (variant[section] for variant in expected.get("variants", ()) if section in variant)


def _section(section: str, expected: Any, actual: Any, lossy_events: bool) -> Iterator[Difference]:
    if section == "events":
        return _events(expected, actual, lossy_events)
    return _values(expected, actual, f"/{section}")


def _events(
    expected: list[dict[str, Any]], actual: list[dict[str, Any]], lossy: bool
) -> Iterator[Difference]:
    wanted, found = {_text(event): event for event in expected}, {_text(event): event for event in actual}
    for line, event in wanted.items():
        if line not in found and not event.get("sometimes"):
            yield Difference(_under("/events", event["reason"]), f"missing: {line}")
    for line, event in found.items():
        if line not in wanted and not lossy and event["reason"] != _OPTIONAL_EVENT:
            yield Difference(_under("/events", event["reason"]), f"not expected: {line}")


def _text(event: dict[str, Any]) -> str:
    return f"{event['type']} {event['reason']}: {event['message']}"


def _values(expected: Any, actual: Any, at: str) -> Iterator[Difference]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in sorted({*expected, *actual}):
            place = _under(at, name)
            if name not in actual:
                yield Difference(place, f"missing, expected {_show(expected[name])}")
            elif name not in expected:
                yield Difference(place, f"not expected: {_show(actual[name])}")
            else:
                yield from _values(expected[name], actual[name], place)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield Difference(at, f"expected {_show(expected)}, found {_show(actual)}")
        for index, (wanted, found) in enumerate(zip(expected, actual, strict=False)):
            yield from _values(wanted, found, _under(at, index))
    elif expected != actual or type(expected) is not type(actual):
        yield Difference(at, f"expected {_show(expected)}, found {_show(actual)}")


def _under(pointer: str, key: str | int) -> str:
    """RFC 6901."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _show(value: Any) -> str:
    shown = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]} ..."
