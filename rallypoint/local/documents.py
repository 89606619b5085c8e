"""Reads the documents of manifest files, finds their resources, validates them with a dry run and creates them.

The server validates documents. This module rejects only what cannot be sent: values that JSON does not have, kinds that
the server does not serve, and duplicates.
"""

import errno
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import orjson
import yaml
from typing_extensions import override

from api.meta import Resource
from controller.kube.client import Client
from controller.kube.errors import ApiError, NotFound
from rallypoint.local.apiserver.apimachinery import names
from rallypoint.local.apiserver.schema.validation import json_type
from rallypoint.local.field_names import Schema, similar, suggestion
from rallypoint.local.manifest import Manifest

_UNKNOWN = re.compile(r'(unknown|duplicate) field "([^"]*)"')
"""A field in the message of a strict decoding error, which has no causes."""
_TYPE_ERROR = re.compile(r'Invalid value: "\w+": \S+ in body must be of type (\w+): "(\w+)"')
"""The message of a wrong type. It repeats the field, and shows the type in place of the value."""
MAX_INTEGER = 2**63 - 1
MAX_DEPTH = 200
"""Maximum levels of nesting: more than any Kubernetes object has, and fewer than the JSON encoder supports."""
STDIN = "-"
UNKNOWN_FIELD = "unknown field"
YAML_TYPES = {bytes: "binary value", set: "set", tuple: "pair"}
"""Names of the YAML types that JSON does not have."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a document is rejected, or why the command failed."""

    source: str
    """The file, with the number of the document if the file has several; or the command."""
    about: str
    """Kind and name; empty if the document has none."""
    field: str
    """The path of the field; empty for a problem of the whole document."""
    message: str

    @override
    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.about, self.field, self.message) if part)


@dataclass(frozen=True, slots=True)
class Document:
    source: str
    manifest: Any = field(repr=False)
    """The parsed YAML, of any type. ``read`` returns only documents with an object."""

    @property
    def api_version(self) -> str:
        return str(self.manifest.get("apiVersion") or "")

    @property
    def kind(self) -> str:
        return str(self.manifest.get("kind") or "")

    @property
    def meta(self) -> dict[str, Any]:
        meta = self.manifest.get("metadata")
        return meta if isinstance(meta, dict) else {}

    @property
    def name(self) -> str:
        return str(self.meta.get("name") or self.meta.get("generateName") or "")

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    def namespace(self, default: str) -> str:
        return str(self.meta.get("namespace") or default)

    def problem(self, message: str, path: str = "") -> Problem:
        return Problem(self.source, f"{self.kind} {self.name}".strip(), path, message)


class Refused(Exception):
    """Documents were rejected; none of them has been created."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def read(files: Iterable[str], namespace: str = "default") -> list[Document]:
    """Return all documents of ``files`` in order, with each ``List`` replaced by its items. The file ``-`` is standard input.

    Raises:
        Refused: a file cannot be read; a document is not an object with apiVersion and kind; it contains a value that
            JSON does not have; or two documents have the same name. ``namespace`` is that of documents without one.
    """
    documents: list[Document] = []
    problems: list[Problem] = []
    files = list(files)
    if files.count(STDIN) > 1:
        raise Refused([Problem("standard input", "", "", "it can be read only once")])
    for file in files:
        name = name_of(file)
        try:
            parsed = [document for document in yaml.safe_load_all(_text_of(file)) if document is not None]
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(name, "", "", getattr(error, "strerror", None) or str(error)))
        except (yaml.YAMLError, ValueError) as error:  # ValueError: month 13, or a number with 5,000 digits.
            problems.append(Problem(name, "", "", f"not YAML: {_syntax_error(error)}"))
        except RecursionError:
            problems.append(Problem(name, "", "", "nested too deep"))
        else:
            for index, document in enumerate(parsed):
                documents += _items(Document(_source(name, index, len(parsed)), document))
    problems += [problem for document in documents for problem in _find_problems(document)]
    problems += [] if problems else _find_duplicates(documents, namespace)
    if problems:
        raise Refused(problems)
    return documents


def name_of(file: str) -> str:
    """Return how problems name a file."""
    return "standard input" if file == STDIN else file or "''"


def _text_of(file: str) -> str:
    if not file:
        raise FileNotFoundError(errno.ENOENT, "the name of a file is empty")
    if file != STDIN:
        return Path(file).read_text()
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.read()


async def match(client: Client, documents: Iterable[Document]) -> list[tuple[Document, Resource]]:
    """Return each document with its resource, from the discovery of the server.

    Raises:
        Refused: the server does not serve the kind of a document.
    """
    served: dict[str, dict[str, Resource]] = {}
    matched: list[tuple[Document, Resource]] = []
    problems: list[Problem] = []
    for document in documents:
        if document.api_version not in served:
            served[document.api_version] = await _discover(client, document.api_version)
        resource = served[document.api_version].get(document.kind)
        if resource is None:
            message = f"no kind {document.kind} in {document.api_version} is served here"
            if meant := similar(document.kind, served[document.api_version]):
                message += f'; did you mean "{meant}"?'
            elif version := await _find_version(client, document):
                message += f'; did you mean apiVersion "{version}"?'
            problems.append(document.problem(message))
        else:
            matched.append((document, resource))
    if problems:
        raise Refused(problems)
    return matched


async def check(client: Client, matched: Iterable[tuple[Document, Resource]], namespace: str) -> None:
    """Validate every document with a dry run.

    Raises:
        Refused: the server rejects a document, also for an unknown field.
    """
    problems: list[Problem] = []
    schemas: dict[str, Schema] = {}
    for document, resource in matched:
        for problem in await _rejections(client, document, resource, namespace):
            if problem.message == UNKNOWN_FIELD:
                if document.api_version not in schemas:
                    schemas[document.api_version] = await _schemas(client, document.api_version)
                problem = _with_suggestion(problem, document, schemas[document.api_version])
            problems.append(problem)
    if problems:
        raise Refused(problems)


async def create(client: Client, document: Document, resource: Resource, namespace: str) -> Manifest:
    """Create the object of a document, in ``namespace`` if the document has none.

    Raises:
        Refused: the server rejects it.
    """
    try:
        created: Manifest = orjson.loads(
            await _post(client, document, resource, namespace, "Strict", dry_run=False)
        )
    except ApiError as error:
        raise Refused(problems_of(document, error)) from error
    return created


async def _rejections(
    client: Client, document: Document, resource: Resource, namespace: str
) -> list[Problem]:
    """Return all problems that the server reports in a dry run.

    The server reports unknown fields before it validates anything else, so a second request ignores them.
    """
    problems: list[Problem] = []
    for validation in ("Strict", "Ignore"):
        try:
            await _post(client, document, resource, namespace, validation, dry_run=True)
        except ApiError as error:
            problems += problems_of(document, error)
            if not _UNKNOWN.search(error.message):
                break
        else:
            break
    return problems


def problems_of(document: Document, error: ApiError) -> list[Problem]:
    unknown = _UNKNOWN.findall(error.message)
    if unknown:
        return [document.problem(f"{what} field", path) for what, path in unknown]
    causes = [(path, message) for path, message in error.causes if path not in ("", "<nil>")]
    if not causes:
        return [document.problem(error.message)]
    fields = {path for path, _ in causes}
    # A server that cannot read the replicas for the scale subresource reports their field again, with a leading dot.
    return [
        document.problem(_TYPE_ERROR.sub(r"Invalid value: must be of type \1, not \2", message), path)
        for path, message in causes
        if not (path.startswith(".") and path.lstrip(".") in fields)
    ]


def _with_suggestion(problem: Problem, document: Document, schemas: Schema) -> Problem:
    meant = suggestion(schemas, document.group, document.kind, problem.field)
    return replace(problem, message=f'{problem.message}; did you mean "{meant}"?') if meant else problem


async def _schemas(client: Client, api_version: str) -> Schema:
    """Return the OpenAPI document of a version; empty if the server has none."""
    path = f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"
    try:
        found: Schema = orjson.loads(await client.request("GET", f"/openapi/v3/{path}"))
    except ApiError:
        return {}
    return found


async def _post(
    client: Client, document: Document, resource: Resource, namespace: str, validation: str, *, dry_run: bool
) -> bytes:
    params = {"fieldValidation": validation} | ({"dryRun": "All"} if dry_run else {})
    path = resource.path(document.namespace(namespace))
    body = orjson.dumps(document.manifest, option=orjson.OPT_NON_STR_KEYS)
    return await client.request("POST", path, resource=resource.plural, params=params, body=body)


async def _discover(client: Client, api_version: str) -> dict[str, Resource]:
    """Return the resources of a group version by kind; none if the server does not serve it."""
    group, _, version = api_version.rpartition("/")
    path = f"/apis/{api_version}" if group else f"/api/{version}"
    try:
        listed = orjson.loads(await client.request("GET", path))
    except NotFound:
        return {}
    return {
        entry["kind"]: Resource(group, version, entry["kind"], entry["name"], namespaced=entry["namespaced"])
        for entry in listed["resources"]
        if "/" not in entry["name"]
    }


async def _find_version(client: Client, document: Document) -> str:
    """Return an apiVersion with the document's kind, if possible of its group; empty if the server serves none."""
    listed = orjson.loads(await client.request("GET", "/apis"))
    groups = sorted(listed["groups"], key=lambda group: group["name"] != document.group)
    versions = [version["groupVersion"] for group in groups for version in group["versions"]]
    for version in (*versions, "v1"):
        if document.kind in await _discover(client, version):
            return str(version)
    return ""


def _syntax_error(error: Exception) -> str:
    """Return the position and the reason of a YAML error in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and (mark := error.problem_mark):
        position = f"line {mark.line + 1}, column {mark.column + 1}"
        return ", ".join(filter(None, (f"{position}: {error.problem}", error.context)))
    return " ".join(str(error).split()).replace(' in "<unicode string>"', "")


def _source(file: str, index: int, count: int) -> str:
    return file if count == 1 else f"{file} (document {index + 1})"


def _find_problems(document: Document) -> list[Problem]:
    if not isinstance(document.manifest, dict):
        return [Problem(document.source, "", "", "not an object")]
    missing = [key for key in ("apiVersion", "kind") if not document.manifest.get(key)]
    if missing:
        return [document.problem("Required value", missing[0])]
    if _is_list(document) and not isinstance(document.manifest.get("items"), list | None):
        return [document.problem("Invalid value: must be a list", "items")]
    if error := _version_error(document.api_version):
        return [document.problem(f'Invalid value: "{document.api_version}": {error}', "apiVersion")]
    found = (*_find_unencodable(document.manifest), *_find_wrong_types(document.manifest.get("metadata")))
    problems = [document.problem(message, path) for path, message in found]
    # The server creates missing namespaces here, and would report the name of the Namespace.
    if (
        not problems
        and (namespace := document.meta.get("namespace"))
        and (error := names.label(str(namespace)))
    ):
        problems.append(document.problem(f'Invalid value: "{namespace}": {error}', "metadata.namespace"))
    return problems


def _version_error(api_version: str) -> str:
    """Return why this is neither ``VERSION`` nor ``GROUP/VERSION``; empty if it is."""
    group, separator, version = api_version.rpartition("/")
    return (names.subdomain(group) if separator else "") or names.label(version)


def _find_wrong_types(meta: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and an error message of each field of the metadata that the server cannot decode.

    The server reports only the first one, without its name, and no other problem beside it.
    """
    if _json_type(meta) not in ("object", "null"):
        yield "metadata", _wrong_type("object", meta)
        return
    fields: dict[str, Any] = meta or {}
    for name in ("name", "generateName", "namespace"):
        if _json_type(fields.get(name)) not in ("string", "null"):
            yield f"metadata.{name}", _wrong_type("string", fields[name])
    for name in ("labels", "annotations"):
        values = fields.get(name)
        if _json_type(values) not in ("object", "null"):
            yield f"metadata.{name}", _wrong_type("object", values)
            continue
        for key, value in (values or {}).items():
            if _json_type(value) not in ("string", "null"):
                yield f"metadata.{name}[{key}]", _wrong_type("string", value)


def _wrong_type(wanted: str, value: Any) -> str:
    given = _json_type(value)
    advice = "; put it in quotes" if given in ("boolean", "integer", "number") and wanted == "string" else ""
    return f"Invalid value: must be of type {wanted}, not {given}{advice}"


def _json_type(value: Any) -> str:
    """Return the JSON type that is sent. Dates are sent as strings; types that cannot be sent are reported elsewhere."""
    return "string" if isinstance(value, (date, *YAML_TYPES)) else json_type(value)


def _find_unencodable(value: Any, path: str = "", parents: tuple[int, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the path and an error message of each value that YAML has and JSON does not.

    ``parents`` are the identities of the containers of the value; YAML aliases can make a value contain itself.
    """
    if id(value) in parents:
        yield path, "Invalid value: an alias of an object or list that contains it"
    elif len(parents) > MAX_DEPTH:
        yield path, f"Invalid value: nested more than {MAX_DEPTH} levels deep"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if message := _scalar_error(key):
                yield path, f"key: {message}"
            else:
                yield from _find_unencodable(item, f"{path}.{key}".lstrip("."), (*parents, id(value)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_unencodable(item, f"{path}[{index}]", (*parents, id(value)))
    elif message := _scalar_error(value):
        yield path, message


def _scalar_error(scalar: Any) -> str:
    """Return why JSON does not have this scalar; empty if it has. Dates are sent as strings."""
    match scalar:
        case int() if not -MAX_INTEGER - 1 <= scalar <= MAX_INTEGER:
            return "Invalid value: not an integer of 64 bits"
        case float() if not math.isfinite(scalar):
            return f"Invalid value: {scalar}: not a finite number"
        case str() if any("\ud800" <= char <= "\udfff" for char in scalar):
            return f"Invalid value: {scalar!a}: not Unicode text"
        case bytes() | set() | tuple():
            return f"Invalid value: a {YAML_TYPES[type(scalar)]} of YAML, which JSON does not have"
        case _:
            return ""


def _find_duplicates(documents: Iterable[Document], namespace: str) -> Iterator[Problem]:
    """Yield a problem for each document of an object that an earlier one has. Generated names are never duplicates."""
    first: dict[tuple[str, ...], Document] = {}
    for document in documents:
        if not document.meta.get("name"):
            continue
        key = (document.group, document.kind, document.namespace(namespace), document.name)
        earlier = first.setdefault(key, document)
        if earlier is not document:
            yield document.problem(
                f'Duplicate value: "{document.name}": also in {earlier.source}', "metadata.name"
            )


def _items(document: Document) -> Iterator[Document]:
    """Yield the items of a List; any other document, and a List whose items are no list, as it is."""
    items = document.manifest.get("items") if _is_list(document) else None
    if _is_list(document) and (items is None or isinstance(items, list)):
        for index, item in enumerate(items or ()):
            yield Document(f"{document.source} (item {index + 1})", item)
    else:
        yield document


def _is_list(document: Document) -> bool:
    return isinstance(document.manifest, dict) and (document.kind, document.api_version) == ("List", "v1")
