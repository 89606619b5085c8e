"""Declared differences: where the controller differs from the original on purpose, and why."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from tests.support.parity.compare import Difference


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


def load(folder: Path) -> list[Declared]:
    """The entries of all YAML files in a folder.

    Raises:
        ValueError: an entry has a field that there is not, or lacks one.
    """
    return [
        _declared(entry, path)
        for path in sorted(folder.glob("*.yaml"))
        for entry in yaml.safe_load(path.read_text()) or ()
    ]


def first(declared: Iterable[Declared], case: str, record: str, difference: Difference) -> Declared | None:
    """Return the entry that covers a difference; None if no entry does."""
    return next((entry for entry in declared if entry.covers(case, record, difference)), None)


def _declared(entry: dict[str, Any], path: Path) -> Declared:
    try:
        return Declared(**entry)
    except TypeError as error:
        raise ValueError(f"{path.name}: {entry}: {error}") from None
