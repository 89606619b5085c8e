"""What ``rallypoint check`` reports: one finding per line, with its remedy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from api.messages import first_of
from rallypoint.cli.log_lines import in_one_line

_MAX_NAMED = 3


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BLOCKER = "blocker"
    """Something is broken, or would break."""
    UNKNOWN = "unknown"
    """The check could not be made."""


class Before(StrEnum):
    """What the user is about to do."""

    SWITCH = "switch"
    """Replace a Go operator with Rallypoint."""
    BACK = "back"
    """Replace Rallypoint with a Go operator."""
    UNINSTALL = "uninstall"
    UPGRADE = "upgrade"
    """Install the version of this command over an older one."""


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    """The subject, such as ``CRDs``."""
    level: Level
    text: str
    """May contain texts of the cluster; ``cleaned`` makes them safe to print."""
    remedy: str = ""

    def cleaned(self) -> "Finding":
        """Return the finding in one line and without terminal control: tenants choose names and messages."""
        return Finding(self.check, self.level, in_one_line(self.text), in_one_line(self.remedy))


def ok(check: str, text: str) -> Finding:
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, remedy: str = "") -> Finding:
    return Finding(check, Level.WARNING, text, remedy)


def blocker(check: str, text: str, remedy: str = "") -> Finding:
    return Finding(check, Level.BLOCKER, text, remedy)


def unknown(check: str, text: str, remedy: str = "") -> Finding:
    return Finding(check, Level.UNKNOWN, text, remedy)


def names(texts: Iterable[str]) -> str:
    """Return the first names and the number of the others."""
    return first_of(list(texts), _MAX_NAMED)


def exit_status(findings: Sequence[Finding]) -> int:
    """Return 1 if there is a blocker, else 2 if a check could not be made, else 0."""
    levels = {finding.level for finding in findings}
    return 1 if Level.BLOCKER in levels else 2 if Level.UNKNOWN in levels else 0
