"""Representations of objects: full, metadata only, or rows of a Table."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from api.times import parse_time
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources.resource import Column, Resource
from rallypoint.local.apiserver.storage.store import Entry

META = "meta.k8s.io/v1"


class FullObject:
    """Encodes full objects from their cached bytes."""

    def __init__(self, resource: Resource) -> None:
        self._served = resource
        prefix = {"kind": resource.kind, "apiVersion": resource.api_version}
        self._prefix = len(orjson.dumps(prefix)) - 1

    def encode_object(self, entry: Entry) -> bytes:
        return entry.bytes(self._served.api_version)

    encode_event = encode_object

    def encode_list(self, entries: Sequence[Entry], list_metadata: Json) -> bytes:
        resource = self._served
        if resource.custom:
            list_metadata = {"continue": "", **list_metadata}
        head = orjson.dumps(
            {"kind": resource.lists_as, "apiVersion": resource.api_version, "metadata": list_metadata}
        )
        items = (self.encode_object(entry) for entry in entries)
        if not resource.custom:  # items of built-in lists have no kind and apiVersion
            items = (b"{" + item[self._prefix + 1 :] for item in items)
        return head[:-1] + b',"items":[' + b",".join(items) + b"]}"

    def encode_bookmark(self, metadata: Json) -> bytes:
        return orjson.dumps(
            {"kind": self._served.kind, "apiVersion": self._served.api_version, "metadata": metadata}
        )


class MetadataOnly:
    """Encodes ``PartialObjectMetadata``."""

    def encode_object(self, entry: Entry) -> bytes:
        return orjson.dumps(partial_metadata(entry.object))

    encode_event = encode_object

    def encode_list(self, entries: Sequence[Entry], list_metadata: Json) -> bytes:
        items = [partial_metadata(entry.object) for entry in entries]
        head = {"kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": list_metadata}
        return orjson.dumps({**head, "items": items})

    def encode_bookmark(self, metadata: Json) -> bytes:
        return orjson.dumps({"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": metadata})


def partial_metadata(obj: Json) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": obj["metadata"]}


class Table:
    """Encodes a ``Table``; ``include`` is the object in each row: Metadata, Object or None."""

    def __init__(self, resource: Resource, clock: Callable[[], datetime], include: str) -> None:
        self._served = resource
        self._clock = clock
        self._include = include
        self._definitions: list[Json] | None = [_definition(column) for column in resource.columns]

    def encode_object(self, entry: Entry) -> bytes:
        return self.encode_list([entry], {"resourceVersion": entry.metadata["resourceVersion"]})

    def encode_list(self, entries: Sequence[Entry], list_metadata: Json) -> bytes:
        return self._encode(list_metadata, self._definitions, self._rows(entries))

    def encode_event(self, entry: Entry) -> bytes:
        """Only the first event has column definitions, as in kube-apiserver."""
        shown = self.encode_object(entry)
        self._definitions = None
        return shown

    def encode_bookmark(self, metadata: Json) -> bytes:
        return self._encode(metadata, None, None)

    def _encode(self, metadata: Json, definitions: list[Json] | None, rows: list[Json] | None) -> bytes:
        head = {"kind": "Table", "apiVersion": META, "metadata": metadata}
        return orjson.dumps({**head, "columnDefinitions": definitions, "rows": rows})

    def _rows(self, entries: Iterable[Entry]) -> list[Json]:
        now = self._clock()
        rows: list[Json] = []
        for entry in entries:
            row: Json = {"cells": [_cell(column, entry.object, now) for column in self._served.columns]}
            if self._include == "Object":
                row["object"] = entry.object
            elif self._include != "None":
                row["object"] = partial_metadata(entry.object)
            rows.append(row)
        return rows


View = FullObject | MetadataOnly | Table
"""Encodes objects, lists, watch events and bookmarks of one resource for one request."""

NAME_DESCRIPTION = "Name must be unique within a namespace."


def _definition(column: Column) -> Json:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description or (NAME_DESCRIPTION if column.name == "Name" else column.name),
        "priority": column.priority,
    }


def _cell(column: Column, obj: Json, now: datetime) -> Any:
    value = column.cell(obj)
    match column.reads:
        case "age":
            return age(parse_time(value), now) if value else column.unknown
        case "duration":
            return _job_duration(value, now)
        case _:
            return value


def _job_duration(status: Json, now: datetime) -> str:
    if not status.get("startTime"):
        return ""
    end = status.get("completionTime")
    return age(parse_time(status["startTime"]), parse_time(end) if end else now)


def age(since: datetime, now: datetime) -> str:
    """Format a duration: ``45s``, ``5m30s``, ``2h``, ``3d``.

    Source: apimachinery, pkg/util/duration/duration.go (HumanDuration).
    """
    seconds = int((now - since.astimezone(UTC)).total_seconds())
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _with_rest(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _with_rest(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _with_rest(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _with_rest(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _with_rest(whole: int, unit: str, rest: int, rest_unit: str) -> str:
    return f"{whole}{unit}{rest}{rest_unit}" if rest else f"{whole}{unit}"


PARAMETER = re.compile(r"\s*;\s*")

ACCEPTED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


def negotiate(accept: str, resource: Resource, clock: Callable[[], datetime], query_include: str) -> View:
    """Return the view for the first supported media range of an Accept header.

    Raises:
        StatusError: 406, no media range is supported.
    """
    for media_range in accept.split(",") if accept else ["*/*"]:
        media, *parameters = PARAMETER.split(media_range.strip())
        options = {name: value for name, _, value in (parameter.partition("=") for parameter in parameters)}
        if media not in ("application/json", "application/*", "*/*"):
            continue
        representation = options.get("as", "")
        if representation and (options.get("g") != "meta.k8s.io" or options.get("v") != "v1"):
            continue
        if representation == "Table":
            return Table(resource, clock, query_include)
        if representation in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return MetadataOnly()
        if not representation:
            return FullObject(resource)
    message = f"only the following media types are accepted: {ACCEPTED}"
    raise StatusError(406, "NotAcceptable", message)
