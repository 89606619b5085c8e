"""The controller's calls in the API server's audit log."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.controlplane.job_kinds import RESOURCES
from rallypoint.testing.audit import read

IDLE_SECONDS = 1.5
"""After this time without a call the controller has no work left; longer than the debouncing of status counters."""
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Calls:
    """Number of calls by ``verb resource[/subresource]``, and of refused calls by HTTP status code."""

    by_kind: Mapping[str, int]
    refused: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.by_kind.values())

    @property
    def status_writes(self) -> int:
        """Writes of the status of jobs, refused ones included."""
        return status_writes(self.by_kind)


def status_writes(by_kind: Mapping[str, int]) -> int:
    """Return the number of writes of the status of jobs among calls by ``verb resource[/subresource]``."""
    names = {f"{verb} {resource.plural}/status" for verb in ("patch", "update") for resource in RESOURCES}
    return sum(count for name, count in by_kind.items() if name in names)


class AuditLog:
    """Reads the log while the API server writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def size_bytes(self) -> int:
        """Return how many bytes the log has now."""
        return self._path.stat().st_size if self._path.exists() else 0

    async def wait_until_idle(self) -> None:
        """Return when the log has not grown for ``IDLE_SECONDS``."""
        now = asyncio.get_running_loop().time
        size, since = self.size_bytes(), now()
        while now() - since < IDLE_SECONDS:
            await asyncio.sleep(POLL_SECONDS)
            if size != (size := self.size_bytes()):
                since = now()

    def calls_since(self, offset: int) -> Calls:
        """Count the calls that the server answered after ``offset``, without watches."""
        by_kind: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        for call in read(self._path, offset)[0]:
            if call.verb == "watch":
                continue
            name = f"{call.resource}/{call.subresource}" if call.subresource else call.resource
            by_kind[f"{call.verb} {name}"] += 1
            if call.code >= 400:
                refused[str(call.code)] += 1
        return Calls(dict(sorted(by_kind.items())), dict(sorted(refused.items())))
