"""Jobs as the service remembers them: a small header and the JSON of spec and status, read into a model only when a pass needs it.

A spec that cannot be read is no accident of ours: it becomes problems that name the field.
"""

from typing import Any

import msgspec
from pydantic import ValidationError

from api.job import Job
from controller.domain import Problem


class _Meta(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Wire(msgspec.Struct):
    metadata: _Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Wire).decode
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class JobRow(msgspec.Struct, frozen=True, gc=False):
    """One job. ``spec`` and ``status`` are JSON."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    generation: int
    deleting: bool
    metadata: bytes
    spec: bytes
    status: bytes


def job_from_json(raw: bytes | memoryview | msgspec.Raw) -> JobRow:
    """The row of a job as the API server sends it; managedFields and the like are left behind.

    Raises:
        msgspec.DecodeError: this is no object of the API.
    """
    wire = _decode(raw)
    meta = wire.metadata
    if meta.annotations:
        meta.annotations.pop(_LAST_APPLIED, None)
    return JobRow(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        generation=meta.generation,
        deleting=meta.deletion_timestamp is not None,
        metadata=msgspec.json.encode(meta),
        # Copies: a Raw would keep the whole page alive that it was read from.
        spec=bytes(wire.spec),
        status=bytes(wire.status),
    )


def parse(row: JobRow, model: type[Job], kind: str) -> tuple[Job, tuple[Problem, ...]]:
    """The job as its kind's model; with problems, a job whose spec holds the run policy at most."""
    whole: dict[str, Any] = {
        "kind": kind,
        "metadata": msgspec.json.decode(row.metadata),
        "spec": msgspec.json.decode(row.spec),
        "status": msgspec.json.decode(row.status) or None,
    }
    try:
        return model.model_validate(whole), ()
    except ValidationError as error:
        places = [one["loc"] for one in error.errors()]
        problems = tuple(
            _problem(one["loc"], one["msg"]) for one in error.errors() if one["loc"][:1] == ("spec",)
        )
        if not problems:
            raise
        # Whose job it is and whether it is suspended still counts, if that much can be read.
        readable = isinstance(whole["spec"], dict) and all(place[1:2] != ("runPolicy",) for place in places)
        spec = {"runPolicy": whole["spec"].get("runPolicy")} if readable else {}
        return model.model_validate({**whole, "spec": spec}), problems


def _problem(location: tuple[int | str, ...], message: str) -> Problem:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    return Problem(path, f"Invalid value: {message}")
