"""The API server's audit log: which calls the controller made. Metadata only, of its user only."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {{level: None, resources: [{{group: coordination.k8s.io}}]}}
- {{level: Metadata, users: ["{user}"]}}
- {{level: None}}
"""
"""With a user's name put in, the policy that the log is written by. A Lease is renewed for ever: nothing would ever be quiet."""

IDLE_SECONDS = 1.5
"""A log that has not grown for so long tells of a controller that has nothing left to do; longer than counters of a status wait."""
POLL_SECONDS = 0.1


class _Object(msgspec.Struct):
    resource: str = ""
    subresource: str = ""


class _Response(msgspec.Struct):
    code: int = 0


class _Event(msgspec.Struct, rename="camel"):
    verb: str
    object_ref: _Object | None = None
    response_status: _Response | None = None


_decode = msgspec.json.Decoder(_Event).decode


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
        for event in self._events(offset):
            target = event.object_ref or _Object()
            if event.verb == "watch":
                continue
            name = f"{target.resource}/{target.subresource}" if target.subresource else target.resource
            by_kind[f"{event.verb} {name}"] += 1
            if event.response_status and event.response_status.code >= 400:
                refused[str(event.response_status.code)] += 1
        return Calls(dict(sorted(by_kind.items())), dict(sorted(refused.items())))

    def _events(self, offset: int) -> Iterator[_Event]:
        with self._path.open("rb") as log:
            log.seek(offset)
            for line in log:
                if line.endswith(b"\n"):  # the last one may still be in the making
                    yield _decode(line)
