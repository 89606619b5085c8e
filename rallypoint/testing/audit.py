"""The API server's audit log as a list of calls: who asked for what, when it came, and when it was answered."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml


def policy(users: Iterable[str], *, watches: bool = False) -> str:
    """The policy of a log that tells of the calls of these users, without their bodies; of ``watches`` when they begin, too."""
    omitted = ["RequestReceived"] if watches else ["RequestReceived", "ResponseStarted"]
    rules = [{"level": "Metadata", "users": list(users)}, {"level": "None"}]
    return yaml.safe_dump(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": omitted,
            "rules": rules,
        }
    )


class Call(NamedTuple):
    """One call; the times are the server's. One that was cut off before it was answered has the code 0."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    received: datetime
    answered: datetime

    @property
    def is_write(self) -> bool:
        return self.verb not in {"get", "list", "watch"}


class _Object(msgspec.Struct):
    resource: str = ""
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
    response_status: _Response | None = None


_decode = msgspec.json.Decoder(_Event).decode


def calls(log: Path) -> list[Call]:
    """All calls so far, in the order of their answers."""
    lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
    return [_call(_decode(line)) for line in lines if line.endswith(b"\n")]


def _call(event: _Event) -> Call:
    target, response = event.object_ref or _Object(), event.response_status or _Response()
    return Call(
        event.user.username,
        event.verb,
        target.resource,
        target.namespace,
        target.name,
        response.code,
        event.request_received_timestamp,
        event.stage_timestamp,
    )
