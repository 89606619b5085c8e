"""The audit log of the API server: what the operator asked for, with the bodies it sent, by job."""

from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from rallypoint.testing.parity.owners import Owners

POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {{level: Metadata, users: ["{user}"], verbs: [get, list, watch]}}
- {{level: Request, users: ["{user}"]}}
- {{level: None}}
"""
"""With a user's name put in, the policy that the log is written by: of that user, everything."""

_READS = frozenset({"get", "list", "watch"})


class _Target(msgspec.Struct):
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _Answer(msgspec.Struct):
    code: int = 0


class _Event(msgspec.Struct, rename="camel"):
    verb: str
    stage_timestamp: datetime
    object_ref: _Target | None = None
    request_object: Any = None
    response_status: _Answer | None = None


_decode = msgspec.json.Decoder(_Event).decode


class Call(msgspec.Struct, frozen=True):
    """One request that was answered with ``code``; ``at`` is seconds since 1970, by the server's clock."""

    verb: str
    resource: str
    subresource: str
    name: str
    body: Any
    code: int
    at: float

    @property
    def is_write(self) -> bool:
        return self.verb not in _READS

    @property
    def creates(self) -> bool:
        """Whether it was to make an object; a server-side apply that did so counts."""
        return self.verb == "create" or (self.verb == "patch" and self.code == 201)

    @property
    def succeeded(self) -> bool:
        return self.code < 300


class AuditLog:
    """Reads along while the log is written. The server writes an entry before it answers the request."""

    def __init__(self, path: Path, owners: Owners) -> None:
        self._path = path
        self._owners = owners
        self._read = 0
        self._calls: defaultdict[str, list[Call]] = defaultdict(list)

    def calls(self, job: str) -> list[Call]:
        """All calls that were about this job so far, in the order of their answers."""
        self._take()
        return self._calls[job]

    def last_write(self, job: str) -> float:
        """When the last write about this job was answered, or long ago."""
        return max((call.at for call in self.calls(job) if call.is_write), default=float("-inf"))

    def _take(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):  # still in the making
                    break
                self._read += len(line)
                self._note(_decode(line))

    def _note(self, event: _Event) -> None:
        if event.object_ref is None:
            return
        target, body = event.object_ref, event.request_object
        metadata: dict[str, Any] = body.get("metadata", {}) if isinstance(body, dict) else {}
        name = target.name or metadata.get("name", "")
        owner = _about(body, name) if target.resource == "events" else ""
        job = self._owners.named(owner) if owner else self._owners.of(metadata, name)
        self._calls[job].append(
            Call(
                verb=event.verb,
                resource=target.resource,
                subresource=target.subresource,
                name=name,
                body=body,
                code=event.response_status.code if event.response_status else 0,
                at=event.stage_timestamp.timestamp(),
            )
        )


def _about(event: Any, name: str) -> str:
    """Whom an Event tells of; a patch of one does not say it, but its name begins with theirs."""
    whom = (event.get("involvedObject") or event.get("regarding") or {}) if isinstance(event, dict) else {}
    return str(whom.get("name") or name.rpartition(".")[0])
