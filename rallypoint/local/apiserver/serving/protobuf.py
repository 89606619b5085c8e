"""Objects in Kubernetes' protobuf, as Go clients send those of built-in kinds: read, never written.

An envelope names the kind; ``numbers.json`` (see ``numbering``) says which number is which field, and the schema of
the field what its bytes mean.

Source: apimachinery, pkg/runtime/serializer/protobuf/protobuf.go; protobuf's encoding of messages.
"""

import struct
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources import builtin

MAGIC = b"k8s\x00"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
DELETE_OPTIONS = f"{META}DeleteOptions"

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED = {FIXED64: 8, FIXED32: 4}

_TEXT, _WHOLE, _YES_OR_NO = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
_BESIDES: dict[str, Json] = {
    DELETE_OPTIONS: {
        "gracePeriodSeconds": _WHOLE,
        "preconditions": {"$ref": f"{META}Preconditions"},
        "orphanDependents": _YES_OR_NO,
        "propagationPolicy": _TEXT,
        "dryRun": {"type": "array", "items": _TEXT},
        "ignoreStoreReadErrorWithClusterBreakingPotential": _YES_OR_NO,
    },
    f"{META}Preconditions": {"uid": _TEXT, "resourceVersion": _TEXT},
}
"""The fields of what is no object, and so not among the schemas."""

Field = tuple[int, int, Any]


class DecodeError(ValueError):
    """The bytes are no such message, or its kind is not known."""


@cache
def _numbers() -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(Path(__file__).with_name("numbers.json").read_bytes())
    return found


def decode(body: bytes) -> Json:
    """The object in an envelope, as JSON has it.

    Raises:
        DecodeError: there is none, or it is of a kind whose fields are not known.
    """
    if not body.startswith(MAGIC):
        raise DecodeError("the magic bytes are missing")
    try:
        envelope = {number: value for number, _, value in _fields(body[len(MAGIC) :])}
        kind = {number: value.decode() for number, _, value in _fields(envelope.get(1, b""))}
        api_version, name = kind.get(1, ""), kind.get(2, "")
        definition = _definition(api_version, name)
        found = _message(envelope.get(2, b""), _numbers()[definition], _properties(definition))
    except (IndexError, UnicodeDecodeError, struct.error, AttributeError, TypeError) as error:
        raise DecodeError(f"the message is damaged: {error}") from error
    return {"kind": name, "apiVersion": api_version, **found}


def _definition(api_version: str, kind: str) -> str:
    if kind == "DeleteOptions":
        return DELETE_OPTIONS
    name = builtin.schemas().kinds.get(f"{api_version.rpartition('/')[0]}/{kind}", "")
    if name not in _numbers():
        raise DecodeError(f"no fields are known of {kind} in {api_version}")
    return name


def _properties(definition: str) -> Mapping[str, Json]:
    if definition in _BESIDES:
        return _BESIDES[definition]
    found: Mapping[str, Json] = builtin.schemas().definitions[definition].get("properties", {})
    return found


def _message(data: bytes, numbers: Mapping[str, Any], properties: Mapping[str, Json]) -> Json:
    found: Json = {}
    for number, wire, value in _fields(data):
        field = numbers.get(str(number))
        if isinstance(field, dict):
            found |= _message(value, field, properties)
        elif field is not None and (name := field.rstrip("*")) in properties:
            _put(found, name, properties[name], wire, value, is_pointer=field.endswith("*"))
    return found


def _put(found: Json, name: str, schema: Json, wire: int, value: Any, *, is_pointer: bool) -> None:
    """Put in a field; Go sends the zeros of what is no pointer too, which JSON leaves out."""
    if schema.get("type") == "array":
        found.setdefault(name, []).append(_value(schema["items"], wire, value))
    elif "additionalProperties" in schema:
        entry = {number: (kind, part) for number, kind, part in _fields(value)}
        key = entry[1][1].decode() if 1 in entry else ""
        found.setdefault(name, {})[key] = _value(schema["additionalProperties"], *entry.get(2, (BYTES, b"")))
    else:
        read = _value(schema, wire, value)
        if is_pointer or read not in ("", 0, False, None, {}):
            found[name] = read


def _value(schema: Json, wire: int, value: Any) -> Any:
    reference: str = schema.get("$ref", "")
    if reference:
        return _referred(reference, value)
    match schema.get("type"):
        case "integer":
            return value - (1 << 64) if value >= 1 << 63 else value
        case "boolean":
            return bool(value)
        case "number":
            return struct.unpack("<d" if wire == FIXED64 else "<f", value)[0]
        case "string":
            return b64encode(value).decode() if schema.get("format") == "byte" else value.decode()
        case _:
            return None


def _referred(reference: str, value: bytes) -> Any:
    parts = {number: part for number, _, part in _fields(value)} if reference not in _numbers() else {}
    match reference.rpartition(".")[2]:
        case "Time":
            return _moment(parts, "seconds") if parts else None
        case "MicroTime":
            return _moment(parts, "microseconds") if parts else None
        case "Quantity":
            return parts.get(1, b"").decode()
        case "IntOrString":
            return parts.get(3, b"").decode() if parts.get(1) else parts.get(2, 0)
        case "FieldsV1":
            return orjson.loads(parts.get(1, b"{}"))
        case _ if reference in _numbers():
            return _message(value, _numbers()[reference], _properties(reference))
        case _:
            return None


def _moment(parts: Mapping[int, int], precision: str) -> str:
    moment = datetime.fromtimestamp(0, UTC) + timedelta(
        seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000
    )
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def _fields(data: bytes) -> Iterator[Field]:
    """Number, wire type and value of each field.

    Raises:
        IndexError: the message ends too early.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, at = _varint(data, at)
        elif wire in FIXED:
            size = FIXED[wire]
        else:
            raise DecodeError(f"wire type {wire}")
        if at + size > len(data):
            raise IndexError("it ends too early")
        yield number, wire, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
