"""The differences between a record and the recorded one, and the verdict on a case.

A difference counts unless it is declared: there the controller differs from the original on purpose.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from tests.support.json_differences import Difference, child_pointer, differences
from tests.support.parity.case import Case, Record

SECTIONS = ("creates", "rejected", "deletes", "live", "current", "status", "events")

_OPTIONAL_EVENT = "ExitedWithCode"
"""The original sends it for ended pods that a reconcile happens to find; more of them are no difference."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One entry. ``case``, ``record`` and ``pointer`` may hold wildcards; a pointer covers everything below it."""

    case: str
    pointer: str
    reason: str
    record: str = "*"

    def concerns(self, case: str) -> bool:
        return fnmatchcase(case, self.case)

    def covers(self, case: str, record: str, difference: Difference) -> bool:
        return (
            self.concerns(case)
            and fnmatchcase(record, self.record)
            and any(
                fnmatchcase(difference.pointer, pattern)
                for pattern in (self.pointer, f"{self.pointer.rstrip('/')}/*")
            )
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The records of a case, and the failure that ended it early, if any."""

    records: Mapping[str, Record]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``complaints`` are lines for a person; a case without complaints matches its recording."""

    complaints: tuple[str, ...]
    used: frozenset[Declared]


def evaluate(case: Case, outcome: Outcome, declared: Collection[Declared]) -> Verdict:
    complaints, used = [outcome.failure] if outcome.failure else [], set[Declared]()
    for name, expected in case.expected.items():
        if name not in outcome.records:
            complaints.append(f"{name}: not recorded")
            continue
        found = compare(
            expected,
            outcome.records[name],
            left_out=case.not_compared,
            lossy_events=case.events_are_lossy,
        )
        for difference in found:
            entry = next((entry for entry in declared if entry.covers(case.id, name, difference)), None)
            if entry is not None:
                used.add(entry)
            else:
                complaints.append(f"{name} {difference}")
    return Verdict(tuple(complaints), frozenset(used))


def unused(
    declared: Iterable[Declared],
    used: Collection[Declared],
    played: Collection[str],
    all_cases: Collection[str],
) -> list[Declared]:
    """The entries that cover nothing although every case they may concern was played.

    Args:
        played: ids of the cases that were.
        all_cases: ids of those that could be, apart from which there may be others: an entry that concerns only
            others says nothing yet.
    """
    return [
        entry
        for entry in declared
        if entry not in used
        and (concerned := {case for case in all_cases if entry.concerns(case)})
        and concerned <= set(played)
    ]


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


def load_declared(folder: Path) -> list[Declared]:
    """The entries of all YAML files in a folder.

    Raises:
        ValueError: an entry has a field that there is not, or lacks one.
    """
    return [
        _declared(entry, path)
        for path in sorted(folder.glob("*.yaml"))
        for entry in yaml.safe_load(path.read_text()) or ()
    ]


def _variants(expected: Record, section: str) -> Iterator[Any]:
    yield expected[section]
    yield from (variant[section] for variant in expected.get("variants", ()) if section in variant)


def _section(section: str, expected: Any, actual: Any, lossy_events: bool) -> Iterator[Difference]:
    if section == "events":
        return _events(expected, actual, lossy_events)
    return differences(expected, actual, f"/{section}")


def _events(
    expected: list[dict[str, Any]], actual: list[dict[str, Any]], lossy: bool
) -> Iterator[Difference]:
    wanted, found = {_text(event): event for event in expected}, {_text(event): event for event in actual}
    for line, event in wanted.items():
        if line not in found and not event.get("sometimes"):
            yield Difference(child_pointer("/events", event["reason"]), f"missing: {line}")
    for line, event in found.items():
        if line not in wanted and not lossy and event["reason"] != _OPTIONAL_EVENT:
            yield Difference(child_pointer("/events", event["reason"]), f"not expected: {line}")


def _text(event: dict[str, Any]) -> str:
    return f"{event['type']} {event['reason']}: {event['message']}"


def _declared(entry: dict[str, Any], path: Path) -> Declared:
    try:
        return Declared(**entry)
    except TypeError as error:
        raise ValueError(f"{path.name}: {entry}: {error}") from None
