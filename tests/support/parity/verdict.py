"""The verdict on a case: undeclared differences, and the declarations that it needed."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tests.support.parity.case import Case, Record
from tests.support.parity.compare import Difference, compare
from tests.support.parity.differs import Declared, first


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
        for difference in _differences(case, expected, outcome.records[name]):
            if entry := first(declared, case.id, name, difference):
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


def _differences(case: Case, expected: Record, actual: Record) -> list[Difference]:
    return compare(expected, actual, left_out=case.not_compared, lossy_events=case.events_are_lossy)
