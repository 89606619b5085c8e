"""The API server's audit log as a list of calls: who sent which request, when it arrived and when it was answered."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

READ_VERBS = ("get", "list", "watch")


def policy(users: Iterable[str], *, watches: bool = False, bodies: bool = False, leases: bool = True) -> str:
    """Return an audit policy that logs the calls of these users alone.

    Args:
        watches: log a watch when it begins, too.
        bodies: log what writes send.
        leases: log calls for Leases. A leader renews its Lease forever, so that such a log never stops growing.
    """
    names = list(users)
    rules: list[dict[str, Any]] = [{"level": "Metadata", "users": names}, {"level": "None"}]
    if bodies:
        reads = {"level": "Metadata", "users": names, "verbs": list(READ_VERBS)}
        rules = [reads, {"level": "Request", "users": names}, {"level": "None"}]
    if not leases:
        rules.insert(0, {"level": "None", "resources": [{"group": "coordination.k8s.io"}]})
    return yaml.safe_dump(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"] if watches else ["RequestReceived", "ResponseStarted"],
            "rules": rules,
        }
    )


class Call(NamedTuple):
    """One call. The times are the server's. The code is 0 if the connection broke before the answer."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    received: datetime
    answered: datetime
    subresource: str = ""
    body: Any = None
    """What a write sent; None without ``bodies`` in the policy."""
    group: str = ""

    @property
    def is_write(self) -> bool:
        return self.verb not in READ_VERBS

    @property
    def creates(self) -> bool:
        """Whether the call was to create an object; a server-side apply that did so counts."""
        return self.verb == "create" or (self.verb == "patch" and self.code == 201)

    @property
    def succeeded(self) -> bool:
        return self.code < 300


class _Object(msgspec.Struct, rename="camel"):
    api_group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Response(msgspec.Struct):
    code: int = 0


class _User(msgspec.Struct):
    username: str = ""


class _Event(msgspec.Struct, rename="camel"):
    verb: str
    user: _User
    request_received_timestamp: datetime
    stage_timestamp: datetime
    object_ref: _Object | None = None
    request_object: Any = None
    response_status: _Response | None = None


_decode = msgspec.json.Decoder(_Event).decode


def calls(log: Path) -> list[Call]:
    """Return all calls so far, in the order of their answers."""
    return read(log)[0]


def read(log: Path, offset: int = 0) -> tuple[list[Call], int]:
    """Return the calls after ``offset`` bytes, and the offset after the last complete line.

    The server writes a line before it answers the call.
    """
    if not log.exists():
        return [], offset
    found: list[Call] = []
    with log.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):  # the server is still writing it
                break
            offset += len(line)
            found.append(_call(_decode(line)))
    return found, offset


def _call(event: _Event) -> Call:
    target, body = event.object_ref or _Object(), event.request_object
    metadata: dict[str, Any] = body.get("metadata", {}) if isinstance(body, dict) else {}
    return Call(
        user=event.user.username,
        verb=event.verb,
        resource=target.resource,
        namespace=target.namespace,
        name=target.name or metadata.get("name", ""),
        code=event.response_status.code if event.response_status else 0,
        received=event.request_received_timestamp,
        answered=event.stage_timestamp,
        subresource=target.subresource,
        body=body,
        group=target.api_group,
    )
