"""The API server's audit log: which calls the controller made. Metadata only, of its user only."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rallypoint.testing.audit import read

IDLE_SECONDS = 1.5
"""A log that has not grown for so long tells of a controller that has nothing left to do; longer than counters of a status wait."""
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Calls:
    """How many calls were made, by ``verb resource[/subresource]``, and how many of them were refused, by code."""

    by_kind: Mapping[str, int]
    refused: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.by_kind.values())


class AuditLog:
    """The log as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def size_bytes(self) -> int:
        """The place that the log has grown to, in bytes."""
        return self._path.stat().st_size if self._path.exists() else 0

    async def wait_until_idle(self) -> None:
        """Return when nothing has been written for ``IDLE_SECONDS``."""
        now = asyncio.get_running_loop().time
        size, since = self.size_bytes(), now()
        while now() - since < IDLE_SECONDS:
            await asyncio.sleep(POLL_SECONDS)
            if size != (size := self.size_bytes()):
                since = now()

    def calls_since(self, offset: int) -> Calls:
        """The calls that were answered after ``offset``; long watches are left out."""
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
