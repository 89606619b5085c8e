"""The documents of manifest files: read, matched with what the server serves, checked and created.

A document is refused by the server, never here, except when it cannot be sent at all, is of a kind nobody serves, or is
there twice.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import yaml
from typing_extensions import override

from api.meta import Resource
from controller.kube.client import Client
from controller.kube.errors import ApiError, NotFound
from rallypoint.local import foreign
from rallypoint.local.manifest import Manifest

_UNKNOWN = re.compile(r'(unknown|duplicate) field "([^"]*)"')
"""How an API server names fields in a strict decoding error; it gives no causes with it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a document is refused."""

    source: str
    """The file, and the document's number when it has several."""
    about: str
    """Kind and name; empty when the document has none."""
    field: str
    """The path of the field; empty when the whole document is meant."""
    message: str

    @override
    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.about, self.field, self.message) if part)


@dataclass(frozen=True, slots=True)
class Document:
    source: str
    manifest: Any = field(repr=False)
    """What the YAML says; of what shape is for ``read`` to find out."""

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
    """Documents are refused; nothing of them has been created."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def read(files: Iterable[str], namespace: str = "default") -> list[Document]:
    """All documents of ``files``, in order; the items of a ``List`` count as documents.

    Raises:
        Refused: a file cannot be read, a document is no object with apiVersion and kind or holds what JSON cannot, or
            two are of one name; ``namespace`` is for those that name none.
    """
    documents: list[Document] = []
    problems: list[Problem] = []
    for file in files:
        try:
            parsed = [
                document for document in yaml.safe_load_all(Path(file).read_text()) if document is not None
            ]
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(file, "", "", getattr(error, "strerror", None) or str(error)))
        except (
            yaml.YAMLError,
            ValueError,
        ) as error:  # ValueError: a date in month 13, a number of 5000 digits.
            problems.append(Problem(file, "", "", f"not YAML: {' '.join(str(error).split())}"))
        except RecursionError:
            problems.append(Problem(file, "", "", "nested too deep"))
        else:
            for index, document in enumerate(parsed):
                documents += _items(Document(_source(file, index, len(parsed)), document))
    problems += [problem for document in documents for problem in _unsendable(document)]
    problems += [] if problems else _repeated(documents, namespace)
    if problems:
        raise Refused(problems)
    return documents


async def match(client: Client, documents: Iterable[Document]) -> list[tuple[Document, Resource]]:
    """Each document with the resource that it is of, by the server's discovery.

    Raises:
        Refused: the server serves no such kind.
    """
    served: dict[str, dict[str, Resource]] = {}
    matched: list[tuple[Document, Resource]] = []
    problems: list[Problem] = []
    for document in documents:
        if document.api_version not in served:
            served[document.api_version] = await _discover(client, document.api_version)
        resource = served[document.api_version].get(document.kind)
        if resource is None:
            problems.append(
                document.problem(f"no kind {document.kind} in {document.api_version} is served here")
            )
        else:
            matched.append((document, resource))
    if problems:
        raise Refused(problems)
    return matched


async def check(client: Client, matched: Iterable[tuple[Document, Resource]], namespace: str) -> None:
    """Ask the server whether it would take every document.

    Raises:
        Refused: it would not; unknown fields count.
    """
    problems: list[Problem] = []
    for document, resource in matched:
        problems += await _rejections(client, document, resource, namespace)
    if problems:
        raise Refused(problems)


async def create(client: Client, document: Document, resource: Resource, namespace: str) -> Manifest:
    """Create a document's object, in ``namespace`` unless it names its own.

    Raises:
        Refused: the server refuses it.
    """
    try:
        created: Manifest = orjson.loads(
            await _post(client, document, resource, namespace, "Strict", dry_run=False)
        )
    except ApiError as error:
        raise Refused(_problems(document, error)) from error
    return created


async def _rejections(
    client: Client, document: Document, resource: Resource, namespace: str
) -> list[Problem]:
    """Every reason at once: unknown fields are reported before anything else is looked at, so look again without."""
    problems: list[Problem] = []
    for validation in ("Strict", "Ignore"):
        try:
            await _post(client, document, resource, namespace, validation, dry_run=True)
        except ApiError as error:
            problems += _problems(document, error)
            if not _UNKNOWN.search(error.message):
                break
        else:
            break
    return problems


def _problems(document: Document, error: ApiError) -> list[Problem]:
    unknown = _UNKNOWN.findall(error.message)
    if unknown:
        return [document.problem(f"{what} field", path) for what, path in unknown]
    causes = [(path, message) for path, message in error.causes if path not in ("", "<nil>")]
    return [document.problem(message, path) for path, message in causes or (("", error.message),)]


async def _post(
    client: Client, document: Document, resource: Resource, namespace: str, validation: str, *, dry_run: bool
) -> bytes:
    params = {"fieldValidation": validation} | ({"dryRun": "All"} if dry_run else {})
    path = resource.path(document.namespace(namespace))
    body = orjson.dumps(document.manifest, option=orjson.OPT_NON_STR_KEYS)
    return await client.request("POST", path, resource=resource.plural, params=params, body=body)


async def _discover(client: Client, api_version: str) -> dict[str, Resource]:
    """The kinds of a group and version; none when there is no such group."""
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


def _source(file: str, index: int, count: int) -> str:
    return file if count == 1 else f"{file} (document {index + 1})"


def _unsendable(document: Document) -> list[Problem]:
    if not isinstance(document.manifest, dict):
        return [Problem(document.source, "", "", "not an object")]
    missing = [key for key in ("apiVersion", "kind") if not document.manifest.get(key)]
    if missing:
        return [document.problem("Required value", missing[0])]
    return [document.problem(message, path) for path, message in foreign.faults(document.manifest)]


def _repeated(documents: Iterable[Document], namespace: str) -> Iterator[Problem]:
    """The second and later documents of one object. Those whose names the server makes up are all different."""
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
    if isinstance(document.manifest, dict) and (document.kind, document.api_version) == ("List", "v1"):
        for index, item in enumerate(document.manifest.get("items") or ()):
            yield Document(f"{document.source} (item {index + 1})", item)
    else:
        yield document
