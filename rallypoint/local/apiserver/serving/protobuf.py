"""Decodes objects of built-in kinds from Kubernetes' protobuf encoding, which Go clients send.

The envelope contains the kind. ``numbers.json`` (see ``tools/protobuf_fields.py``) maps field numbers to names, and the schema
of a field determines how its bytes are decoded.

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

_STRING, _INTEGER, _BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
_EXTRA_TYPES: dict[str, Json] = {
    DELETE_OPTIONS: {
        "gracePeriodSeconds": _INTEGER,
        "preconditions": {"$ref": f"{META}Preconditions"},
        "orphanDependents": _BOOLEAN,
        "propagationPolicy": _STRING,
        "dryRun": {"type": "array", "items": _STRING},
        "ignoreStoreReadErrorWithClusterBreakingPotential": _BOOLEAN,
    },
    f"{META}Preconditions": {"uid": _STRING, "resourceVersion": _STRING},
}
"""Schemas of types that are no objects and are missing in ``core.json``."""

Field = tuple[int, int, Any]


class DecodeError(ValueError):
    """The bytes are not a valid message, or its kind is not known."""


@cache
def _field_numbers() -> dict[str, Any]:
    decoded: dict[str, Any] = orjson.loads(Path(__file__).with_name("numbers.json").read_bytes())
    return decoded


def decode(body: bytes) -> Json:
    """Decode the object in an envelope.

    Raises:
        DecodeError: the envelope is not valid, or the kind is not known.
    """
    if not body.startswith(MAGIC):
        raise DecodeError("the magic bytes are missing")
    try:
        envelope = {number: value for number, _, value in _fields(body[len(MAGIC) :])}
        kind = {number: value.decode() for number, _, value in _fields(envelope.get(1, b""))}
        api_version, name = kind.get(1, ""), kind.get(2, "")
        definition = _definition(api_version, name)
        decoded = _decode_message(envelope.get(2, b""), _field_numbers()[definition], _properties(definition))
    except (IndexError, UnicodeDecodeError, struct.error, AttributeError, TypeError) as error:
        raise DecodeError(f"the message is damaged: {error}") from error
    return {"kind": name, "apiVersion": api_version, **decoded}


def _definition(api_version: str, kind: str) -> str:
    if kind == "DeleteOptions":
        return DELETE_OPTIONS
    name = builtin.schemas().kinds.get(f"{api_version.rpartition('/')[0]}/{kind}", "")
    if name not in _field_numbers():
        raise DecodeError(f"no fields are known of {kind} in {api_version}")
    return name


def _properties(definition: str) -> Mapping[str, Json]:
    if definition in _EXTRA_TYPES:
        return _EXTRA_TYPES[definition]
    decoded: Mapping[str, Json] = builtin.schemas().definitions[definition].get("properties", {})
    return decoded


def _decode_message(data: bytes, numbers: Mapping[str, Any], properties: Mapping[str, Json]) -> Json:
    decoded: Json = {}
    for number, wire_type, value in _fields(data):
        field = numbers.get(str(number))
        if isinstance(field, dict):
            decoded |= _decode_message(value, field, properties)
        elif field is not None and (name := field.rstrip("*")) in properties:
            _set_field(decoded, name, properties[name], wire_type, value, is_pointer=field.endswith("*"))
    return decoded


def _set_field(
    decoded: Json, name: str, schema: Json, wire_type: int, value: Any, *, is_pointer: bool
) -> None:
    """Set a field. Go also sends zero values of fields that are no pointers; JSON omits them."""
    if schema.get("type") == "array":
        decoded.setdefault(name, []).append(_decode_value(schema["items"], wire_type, value))
    elif "additionalProperties" in schema:
        entry = {number: (kind, part) for number, kind, part in _fields(value)}
        key = entry[1][1].decode() if 1 in entry else ""
        decoded.setdefault(name, {})[key] = _decode_value(
            schema["additionalProperties"], *entry.get(2, (BYTES, b""))
        )
    else:
        read = _decode_value(schema, wire_type, value)
        if is_pointer or read not in ("", 0, False, None, {}):
            decoded[name] = read


def _decode_value(schema: Json, wire_type: int, value: Any) -> Any:
    reference: str = schema.get("$ref", "")
    if reference:
        return _decode_reference(reference, value)
    match schema.get("type"):
        case "integer":
            return value - (1 << 64) if value >= 1 << 63 else value
        case "boolean":
            return bool(value)
        case "number":
            return struct.unpack("<d" if wire_type == FIXED64 else "<f", value)[0]
        case "string":
            return b64encode(value).decode() if schema.get("format") == "byte" else value.decode()
        case _:
            return None


def _decode_reference(reference: str, value: bytes) -> Any:
    parts = {number: part for number, _, part in _fields(value)} if reference not in _field_numbers() else {}
    match reference.rpartition(".")[2]:
        case "Time":
            return _format_time(parts, "seconds") if parts else None
        case "MicroTime":
            return _format_time(parts, "microseconds") if parts else None
        case "Quantity":
            return parts.get(1, b"").decode()
        case "IntOrString":
            return parts.get(3, b"").decode() if parts.get(1) else parts.get(2, 0)
        case "FieldsV1":
            return orjson.loads(parts.get(1, b"{}"))
        case _ if reference in _field_numbers():
            return _decode_message(value, _field_numbers()[reference], _properties(reference))
        case _:
            return None


def _format_time(parts: Mapping[int, int], precision: str) -> str:
    time = datetime.fromtimestamp(0, UTC) + timedelta(
        seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000
    )
    return time.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def _fields(data: bytes) -> Iterator[Field]:
    """Yield the number, wire type and value of each field.

    Raises:
        IndexError: the message ends too early.
    """
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == VARINT:
            value, offset = _varint(data, offset)
            yield number, wire_type, value
            continue
        if wire_type == BYTES:
            size, offset = _varint(data, offset)
        elif wire_type in FIXED:
            size = FIXED[wire_type]
        else:
            raise DecodeError(f"wire type {wire_type}")
        if offset + size > len(data):
            raise IndexError("it ends too early")
        yield number, wire_type, data[offset : offset + size]
        offset += size


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return value, offset
