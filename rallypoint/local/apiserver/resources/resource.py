"""What a served resource is: its names, its schema, and the rules that are its own."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.names import subdomain
from rallypoint.local.apiserver.apimachinery.selectors import FieldReader, path_reader
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.schema.structural import Node, prune_and_default

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

Propagation = Literal["Background", "Foreground", "Orphan"]


def _unchanged(obj: Json) -> Json:
    return obj


def _no_errors(obj: Json) -> Iterable[FieldError]:
    return ()


def _no_update_errors(new: Json, old: Json) -> Iterable[FieldError]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """What a kind does differently from the others when it is written."""

    default: Callable[[Json], Json] = _unchanged
    """Fills in what was left out; runs on every write, after the schema."""
    prepare_create: Callable[[Json], Json] = _unchanged
    """Makes a new object ready: first status, what admission adds."""
    validate: Callable[[Json], Iterable[FieldError]] = _no_errors
    validate_update: Callable[[Json, Json], Iterable[FieldError]] = _no_update_errors
    """Of the new and the old object; besides ``validate`` of the new one."""
    validate_name: Callable[[str], str] = subdomain
    """What is wrong with a name; "" when nothing is."""
    counts_generation: bool = False
    """Whether ``metadata.generation`` counts the changes of the spec."""
    status_owns_metadata: bool = True
    """Whether a write of the status subresource may change labels and annotations as well."""
    requires_version: bool = False
    """Whether a PUT must say which version it replaces."""
    allows_create_on_update: bool = False
    """Whether a PUT of a missing object creates it."""
    prepare_update: Callable[[Json], Json] = _unchanged
    """The last word on what takes the place of another object, once what it may not change is as it was."""
    returns_deleted_object: bool = False
    """Whether a deletion answers with the object instead of a Status."""
    graceful: bool = False
    """Whether a deletion waits for the node, as for pods."""
    emptied_first: bool = False
    """Whether a deletion waits until nothing is left inside, as for namespaces."""
    propagation: Propagation = "Background"
    """What becomes of dependents when the deletion does not say."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; ``cell`` reads it from an object.

    What it reads is shown as it is, as the time since then (``age``), or as how long a job took (``duration``).
    """

    name: str
    cell: Callable[[Json], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    reads: Literal["", "age", "duration"] = ""
    unknown: str | None = "<unknown>"
    """Shown instead of the time since nothing."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a custom resource keeps what its scale subresource shows; paths without the leading dot."""

    spec: tuple[str, ...]
    status: tuple[str, ...]
    selector: tuple[str, ...] = ()


def read_path(obj: Any, path: tuple[str, ...]) -> Any:
    """The value at a path of names; None when it is not there."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resource:
    """One resource in one API version."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    schema: Node
    strategy: Strategy = Strategy()
    subresources: tuple[str, ...] = ()
    scale: Scale | None = None
    columns: tuple[Column, ...] = ()
    fields: Mapping[str, FieldReader] = field(default_factory=dict[str, FieldReader])
    """Fields that selectors may ask for, besides name and namespace."""
    custom: bool = False
    source: Json = field(default_factory=dict[str, Any])
    """Of a custom resource, the schema as its definition gives it."""
    storage_version: str = ""
    forms: Mapping[str, Node] = field(default_factory=dict[str, Node])
    """Of a custom resource, the schema of each API version in which objects may be stored."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage_api_version(self) -> str:
        """The API version of the stored objects; the same for all versions of a resource."""
        version = self.storage_version or self.version
        return f"{self.group}/{version}" if self.group else version

    def read(self, obj: Json) -> Json:
        """A stored object as it is read: by the schema of the version that it is stored in, whichever is asked for."""
        form = self.forms.get(obj["apiVersion"])
        return obj if form is None else prune_and_default(form, obj, [])

    def read_back(self, obj: Json) -> Json:
        """An object that has come through this version, once it is stored."""
        return obj if self.api_version == self.storage_api_version else self.read(obj)

    @property
    def collection(self) -> str:
        """The name of its collection in the store; the same for all versions."""
        return f"{self.group}/{self.plural}"

    @property
    def verbs(self) -> tuple[str, ...]:
        return tuple(verb for verb in VERBS if verb != "deletecollection" or not self.strategy.emptied_first)

    @property
    def lists_as(self) -> str:
        return self.list_kind or f"{self.kind}List"

    @property
    def selectable_fields(self) -> Mapping[str, FieldReader]:
        return {**METADATA_FIELDS, **self.fields} if self.namespaced else {**NAME_FIELD, **self.fields}


NAME_FIELD = {"metadata.name": path_reader("metadata.name")}

METADATA_FIELDS = {**NAME_FIELD, "metadata.namespace": path_reader("metadata.namespace")}
