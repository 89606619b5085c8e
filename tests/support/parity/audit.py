"""The operator's calls in the API server's audit log, with the bodies that it sent, by job."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from rallypoint.testing.audit import Call, read
from tests.support.parity.resources import Owners


class AuditLog:
    """Reads the log while the API server writes it."""

    def __init__(self, path: Path, owners: Owners) -> None:
        self._path = path
        self._owners = owners
        self._offset = 0
        self._calls: defaultdict[str, list[Call]] = defaultdict(list)

    def calls(self, job: str) -> list[Call]:
        """Return all calls about this job so far, in the order of their answers."""
        new, self._offset = read(self._path, self._offset)
        for call in new:
            if call.resource:
                self._calls[self._job(call)].append(call)
        return self._calls[job]

    def last_write(self, job: str) -> float:
        """Return when the last write about this job was answered, in seconds since 1970, or minus infinity."""
        return max(
            (call.answered.timestamp() for call in self.calls(job) if call.is_write), default=float("-inf")
        )

    def _job(self, call: Call) -> str:
        if call.resource == "events" and (involved := _involved(call)):
            return self._owners.named(involved)
        metadata = call.body.get("metadata", {}) if isinstance(call.body, dict) else {}
        return self._owners.of(metadata, call.name)


def _involved(call: Call) -> str:
    """Return the name of the object that an Event is about. A patch omits it, but the Event's name begins with it."""
    body: dict[str, Any] = call.body if isinstance(call.body, dict) else {}
    involved = body.get("involvedObject") or body.get("regarding") or {}
    return str(involved.get("name") or call.name.rpartition(".")[0])
