"""The cached form of jobs: a small header and the JSON of spec and status, parsed into a model only for a reconcile.

A field that cannot be parsed becomes a problem with the field's name.
"""

import contextlib
from collections import OrderedDict
from typing import Any

import msgspec
from pydantic import ValidationError

from api.job import Job, JobSpec
from api.labels import LAST_APPLIED
from controller.domain import Problem

PARSED_BYTES = 512 * 1024
"""JSON of the jobs of one kind that are kept parsed, which takes several times as much memory: about two hundred small jobs."""
MOST_PRUNINGS = 5
"""How often a status is parsed again without its invalid fields before the whole status counts as unreadable."""


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
    finalizers: list[str] | None = None


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"null")


class _AppliedSpec(msgspec.Struct, omit_defaults=True):
    flavor: str = ""


class _Applied(msgspec.Struct, rename="camel", omit_defaults=True):
    """The part of the last applied manifest that is kept."""

    api_version: str = ""
    spec: _AppliedSpec = msgspec.field(default_factory=_AppliedSpec)


class _RunPolicy(msgspec.Struct):
    suspend: bool | None = None


class _Spec(msgspec.Struct, rename="camel"):
    run_policy: _RunPolicy | None = None


class _Status(msgspec.Struct):
    conditions: list[msgspec.Raw] | None = None


class StoredCondition(msgspec.Struct, rename="camel"):
    """One condition of a stored status. The time has the format of the API."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class StoredStatus(msgspec.Struct, rename="camel"):
    """The parts of a stored status that describe the state of the job."""

    conditions: list[StoredCondition] | None = None
    completion_time: str | None = None
    wall_clock: dict[str, Any] | None = None

    def find(self, type_: str, status: str) -> StoredCondition | None:
        """Return the condition if it has that status."""
        return next((own for own in self.conditions or () if (own.type, own.status) == (type_, status)), None)


_decode = msgspec.json.Decoder(_Object).decode
_decode_spec = msgspec.json.Decoder(_Spec).decode
_decode_status = msgspec.json.Decoder(_Status | None).decode
_decode_stored_status = msgspec.json.Decoder(StoredStatus | None).decode
_decode_meta = msgspec.json.Decoder(_Meta).decode
_decode_applied = msgspec.json.Decoder(_Applied).decode


ORPHAN = "orphan"
"""The finalizer of an object that is deleted without its dependents.

Source: the Kubernetes API, meta/v1, FinalizerOrphanDependents.
"""


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
    leaves_children: bool = False
    """Whether the job is being deleted without its children."""
    is_suspended: bool = False
    """Whether ``spec.runPolicy.suspend`` is true."""
    has_conditions: bool = False
    """Whether its status has conditions, so that a controller has reconciled it before."""


def job_from_json(raw: bytes | memoryview | msgspec.Raw) -> JobRow:
    """Return the row of a job as the API server sends it, without managedFields and similar parts.

    Raises:
        msgspec.DecodeError: this is not an API object.
    """
    raw_object = _decode(raw)
    meta = raw_object.metadata
    if meta.annotations:
        _shorten(meta.annotations)
    finalizers, meta.finalizers = meta.finalizers or (), None
    return JobRow(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        generation=meta.generation,
        deleting=meta.deletion_timestamp is not None,
        metadata=msgspec.json.encode(meta),
        # Copies, because a Raw would keep the whole page in memory.
        spec=bytes(raw_object.spec),
        status=bytes(raw_object.status),
        leaves_children=meta.deletion_timestamp is not None and ORPHAN in finalizers,
        is_suspended=_is_suspended(raw_object.spec),
        has_conditions=_has_conditions(raw_object.status),
    )


def _is_suspended(spec: msgspec.Raw) -> bool:
    """Return whether a spec has ``suspend: true``; a malformed one does not."""
    try:
        policy = _decode_spec(spec).run_policy
    except msgspec.DecodeError:
        return False
    return policy is not None and policy.suspend is True


def _has_conditions(status: msgspec.Raw) -> bool:
    """Return whether a status has conditions; a malformed one does not."""
    try:
        decoded = _decode_status(status)
    except msgspec.DecodeError:
        return False
    return decoded is not None and bool(decoded.conditions)


def stored_status(row: JobRow) -> StoredStatus:
    """Return the status of a row; a malformed one is empty."""
    try:
        return _decode_stored_status(row.status) or StoredStatus()
    except msgspec.DecodeError:
        return StoredStatus()


def differs_beside_status(before: JobRow, after: JobRow) -> bool:
    """Return whether anything but the status and the version differs, so that somebody else has changed the job."""
    return before.spec != after.spec or _without_version(before) != _without_version(after)


def _without_version(row: JobRow) -> _Meta:
    return msgspec.structs.replace(_decode_meta(row.metadata), resource_version="")


def _shorten(annotations: dict[str, str]) -> None:
    """Keep only the apiVersion of the last applied manifest; the rest is as long as the job."""
    with contextlib.suppress(msgspec.DecodeError):
        applied = _decode_applied(annotations.pop(LAST_APPLIED, "{}"))
        if applied.api_version:
            annotations[LAST_APPLIED] = msgspec.json.encode(applied).decode()


class JobParser:
    """Parses the jobs of one kind, and keeps some of them: a new job is reconciled several times within a second, with the same spec."""

    def __init__(self, model: type[Job], kind: str, most_bytes: int = PARSED_BYTES) -> None:
        self._model = model
        self._kind = kind
        self._most_bytes = self._free_bytes = most_bytes
        self._parsed = OrderedDict[str, tuple[JobRow, Job]]()
        """Jobs without problems, by UID; those that were parsed last come last."""

    def parse(self, row: JobRow) -> tuple[Job, tuple[Problem, ...]]:
        """Return the job and its problems like ``parse``. Nobody may change the job: later callers get the same spec."""
        known, job = self._parsed.get(row.uid, (None, None))
        if known is row and job is not None:
            return job, ()
        spec = job.spec if known and job and known.spec == row.spec else None
        job, problems = parse(row, self._model, self._kind, spec)
        self.discard(row.uid)
        if not problems and _size_bytes(row) <= self._most_bytes:
            self._keep(row, job)
        return job, problems

    def discard(self, uid: str) -> None:
        """Drop a job that is deleted or being deleted."""
        if kept := self._parsed.pop(uid, None):
            self._free_bytes += _size_bytes(kept[0])

    def _keep(self, row: JobRow, job: Job) -> None:
        self._parsed[row.uid] = row, job
        self._free_bytes -= _size_bytes(row)
        while self._free_bytes < 0:
            self.discard(next(iter(self._parsed)))


def _size_bytes(row: JobRow) -> int:
    return len(row.metadata) + len(row.spec) + len(row.status)


def parse(
    row: JobRow, model: type[Job], kind: str, spec: JobSpec | None = None
) -> tuple[Job, tuple[Problem, ...]]:
    """Parse the job into its kind's model. With problems in its spec, the spec of the result has at most the run policy and plain strings.

    With problems in its status or metadata, the result lacks the invalid fields. See ``of_spec``. ``spec`` is the parsed spec, if it is known.
    """
    whole: dict[str, Any] = {
        "kind": kind,
        "metadata": msgspec.json.decode(row.metadata),
        "spec": spec or msgspec.json.decode(row.spec),
        "status": msgspec.json.decode(row.status) or None,
    }
    with contextlib.suppress(ValidationError):
        return model.model_validate(whole), ()
    whole["spec"] = msgspec.json.decode(row.spec)
    unreadable: list[Problem] = []
    for _ in range(MOST_PRUNINGS):
        wrong_fields = _unreadable(whole, model)
        if not wrong_fields:
            break
        unreadable += [_problem(loc, message) for loc, message in wrong_fields]
        for loc, _ in reversed(wrong_fields):
            _prune(whole, loc)
    else:
        whole["status"] = None
    job, problems = _parse_spec(whole, model)
    return job, (*unreadable, *problems)


def of_spec(problem: Problem) -> bool:
    """Return whether a problem concerns the spec, which a user can correct, and not the rest of the object."""
    return problem.field.split(".")[0].split("[")[0] == "spec"


def _unreadable(whole: dict[str, Any], model: type[Job]) -> list[tuple[tuple[int | str, ...], str]]:
    """Return the paths of the invalid fields of status and metadata, with messages."""
    try:
        model.model_validate(whole)
    except ValidationError as error:
        return [(detail["loc"], detail["msg"]) for detail in error.errors() if detail["loc"][:1] != ("spec",)]
    return []


def _prune(whole: Any, path: tuple[int | str, ...]) -> None:
    """Remove the value at the path, or the nearest existing parent."""
    holder: Any = None
    node: Any = whole
    last: Any = path[0]
    for part in path:
        if isinstance(node, str):
            break
        try:
            found = node[part]
        except (LookupError, TypeError):
            break
        holder, last, node = node, part, found
    if holder is not None:
        del holder[last]


def _parse_spec(whole: dict[str, Any], model: type[Job]) -> tuple[Job, tuple[Problem, ...]]:
    try:
        return model.model_validate(whole), ()
    except ValidationError as error:
        locations = [detail["loc"] for detail in error.errors()]
        problems = tuple(_problem(detail["loc"], detail["msg"]) for detail in error.errors())
        # The manager of the job and its suspension still count, if they are readable.
        readable = isinstance(whole["spec"], dict) and all(
            location[1:2] != ("runPolicy",) for location in locations
        )
        wrong = {location[1] for location in locations if len(location) > 1}
        spec = (
            {"runPolicy": whole["spec"].get("runPolicy"), **_words(whole["spec"], wrong)} if readable else {}
        )
        return model.model_validate({**whole, "spec": spec}), problems


def _words(spec: dict[str, Any], wrong: set[int | str]) -> dict[str, str]:
    """Return the valid plain strings of a spec; one of them may select the variant of the kind."""
    return {key: value for key, value in spec.items() if isinstance(value, str) and key not in wrong}


def _problem(location: tuple[int | str, ...], message: str) -> Problem:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    return Problem(path, f"Invalid value: {message}")
