"""The definition of a resource: names, schema, strategy and printer columns."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How a resource is defaulted, validated, updated and deleted."""

    default: Callable[[Json], Json] = _unchanged
    """Sets defaults that the schema does not have; runs on every write."""
    prepare_create: Callable[[Json], Json] = _unchanged
    """Prepares a new object: its first status and what admission adds."""
    validate: Callable[[Json], Iterable[FieldError]] = lambda obj: ()
    validate_update: Callable[[Json, Json], Iterable[FieldError]] = lambda new, old: ()
    """Validates a new object against the old one, in addition to ``validate``."""
    validate_name: Callable[[str], str] = subdomain
    """Returns the error message for a name, "" for a valid one."""
    counts_generation: bool = False
    """Whether a change of the spec increments ``metadata.generation``."""
    status_owns_metadata: bool = True
    """Whether a write to the status subresource also changes labels and annotations."""
    requires_version: bool = False
    """Whether a PUT requires a resourceVersion."""
    allows_create_on_update: bool = False
    """Whether a PUT creates a missing object."""
    prepare_update: Callable[[Json], Json] = _unchanged
    """Prepares an updated object, after its immutable parts are restored."""
    returns_deleted_object: bool = False
    """Whether a deletion returns the object instead of a Status."""
    graceful: bool = False
    """Whether a deletion waits for the node, as for pods."""
    emptied_first: bool = False
    """Whether a deletion waits until ``spec.finalizers`` is empty, as for namespaces."""
    propagation: Propagation = "Background"
    """The default propagation policy of a deletion."""


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column; ``cell`` reads its value from an object.

    ``reads`` says how the value is formatted: unchanged, as the time since then (``age``), or as the run time of a job
    (``duration``).
    """

    name: str
    cell: Callable[[Json], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    reads: Literal["", "age", "duration"] = ""
    unknown: str | None = "<unknown>"
    """The cell of an ``age`` column without a time."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The paths of the scale subresource of a custom resource, without the leading dot."""

    spec: tuple[str, ...]
    status: tuple[str, ...]
    selector: tuple[str, ...] = ()


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
    """Selectable fields, besides name and namespace."""
    custom: bool = False
    source: Json = field(default_factory=dict[str, Any])
    """The schema in the CustomResourceDefinition."""
    storage_version: str = ""
    forms: Mapping[str, Node] = field(default_factory=dict[str, Node])
    """The schema of each API version in which objects of a custom resource can be stored."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage_api_version(self) -> str:
        """The API version of stored objects, the same for all versions of a resource."""
        version = self.storage_version or self.version
        return f"{self.group}/{version}" if self.group else version

    def read(self, obj: Json) -> Json:
        """Prune and default a stored object by the schema of the version in which it is stored."""
        form = self.forms.get(obj["apiVersion"])
        return obj if form is None else prune_and_default(form, obj, [])

    def read_back(self, obj: Json) -> Json:
        """Return an object that was written in this version as the store returns it."""
        return obj if self.api_version == self.storage_api_version else self.read(obj)

    @property
    def collection(self) -> str:
        """The name of its collection in the store, the same for all versions."""
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
