"""Structural schemas: pruning, defaulting and type checks.

``Compiler`` compiles a schema into ``Node``s. ``prune_and_default`` drops unknown fields and sets defaults.
``find_type_mismatch`` returns the first value of a wrong type, which the server reports before any other error.
``validation.validate`` collects the errors of custom resources. ``prune_and_default`` never changes its argument; the
result shares unchanged parts with it.
"""

import copy
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson
from typing_extensions import override

from api import quantity
from api.times import parse_time
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.schema.cel import MISSING, Rule
from rallypoint.local.apiserver.schema.projection import Fields, united


@dataclass(slots=True, eq=False)
class Node:
    """A node of a schema; ``type`` is "" if any JSON value is valid."""

    type: str = ""
    name: str = ""
    """Name of its definition, for error messages."""
    format: str = ""
    properties: dict[str, "Node"] = field(default_factory=dict)
    additional: "Node | None" = None
    items: "Node | None" = None
    required: tuple[str, ...] = ()
    default: Any = MISSING
    defaults: tuple[tuple[str, Any], ...] = ()
    """Properties that have a default."""
    nullable: bool = False
    preserve_unknown_fields: bool = False
    int_or_string: bool = False
    list_type: str = "atomic"
    map_keys: tuple[str, ...] = ()
    map_type: str = "granular"
    merge_key: str = ""
    merge_strategy: str = ""
    enum: tuple[Any, ...] = ()
    limits: dict[str, Any] = field(default_factory=dict)
    pattern: re.Pattern[str] | None = None
    rules: tuple[Rule, ...] = ()
    rule_fields: Fields | None = None
    """The fields that the rules read; None if they may read all."""
    embedded_resource: bool = False
    omit_empty: bool = False
    """Whether an empty list or map is dropped, as Go structs with ``omitempty`` do."""
    zero: Any = MISSING
    """What null becomes as an element of a list or a map, which Go structs decode into the zero value of their type."""


ZERO_VALUES = {"object": {}, "array": [], "string": "", "integer": 0, "number": 0, "boolean": False}
LIMITS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems",
    "maxItems", "minProperties", "maxProperties", "multipleOf",
)  # fmt: skip


class Compiler:
    """Compiles schemas into nodes; ``$ref`` names a definition, and definitions can be recursive."""

    def __init__(self, definitions: Mapping[str, Json] | None = None, *, omit_empty: bool = False) -> None:
        self._definitions = definitions or {}
        self._omit_empty = omit_empty
        self._compiled: dict[str, Node] = {}

    def definition(self, name: str) -> Node:
        found = self._compiled.get(name)
        if found is None:
            found = self._compiled[name] = Node(name=name)
            self._fill(found, self._definitions[name])
        return found

    def compile(self, schema: Json) -> Node:
        if "$ref" in schema:
            return self._compile_reference(schema)
        node = Node()
        self._fill(node, schema)
        return node

    def _compile_reference(self, schema: Json) -> Node:
        target = self.definition(schema["$ref"])
        if len(schema) == 1:
            return target
        node = Node(name=target.name)
        self._fill(node, {**self._definitions[schema["$ref"]], **schema})
        return node

    def _fill(self, node: Node, schema: Json) -> None:
        node.type = schema.get("type", "")
        node.format = schema.get("format", "")
        node.properties = {name: self.compile(part) for name, part in schema.get("properties", {}).items()}
        more = schema.get("additionalProperties")
        node.additional = self.compile(more) if isinstance(more, dict) else None
        node.items = self.compile(schema["items"]) if "items" in schema else None
        node.required = tuple(schema.get("required", ()))
        node.default = schema.get("default", MISSING)
        node.defaults = tuple(
            (name, part.default) for name, part in node.properties.items() if part.default is not MISSING
        )
        node.nullable = schema.get("nullable", False)
        node.preserve_unknown_fields = (
            schema.get("x-kubernetes-preserve-unknown-fields", False) or more is True
        )
        node.int_or_string = schema.get("x-kubernetes-int-or-string", False)
        node.list_type = schema.get("x-kubernetes-list-type", "atomic")
        node.map_keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        node.map_type = schema.get("x-kubernetes-map-type", "granular")
        node.merge_key = schema.get("x-kubernetes-patch-merge-key", "")
        node.merge_strategy = schema.get("x-kubernetes-patch-strategy", "")
        node.enum = tuple(schema.get("enum", ()))
        node.limits = {name: schema[name] for name in LIMITS if name in schema}
        node.pattern = re.compile(schema["pattern"]) if "pattern" in schema else None
        node.rules = tuple(Rule.parse(rule) for rule in schema.get("x-kubernetes-validations", ()))
        node.rule_fields = united(rule.fields for rule in node.rules)
        node.omit_empty = self._omit_empty and (node.type == "array" or node.additional is not None)
        if self._omit_empty:
            node.zero = "0" if node.format == "quantity" else ZERO_VALUES.get(node.type, MISSING)
        node.embedded_resource = schema.get("x-kubernetes-embedded-resource", False)


def compiled(schema: Json) -> Node:
    """Return the nodes of a schema without references. Equal schemas have the same nodes, which nobody may change.

    A definition is compiled for its validation and for its resources, and again each time somebody applies it.

    Raises:
        ValueError, re.error: a rule or a pattern is not valid.
    """
    return _compiled(orjson.dumps(schema))


@lru_cache(maxsize=64)
def _compiled(schema: bytes) -> Node:
    return Compiler().compile(orjson.loads(schema))


def projected(node: Node, value: Any, fields: Fields) -> Any:
    """Return the value without the fields that ``fields`` does not mention. Keys of maps stay."""
    if isinstance(value, dict):
        return {
            name: item
            if name in fields.whole
            else projected(node.properties.get(name) or node.additional or Node(), item, fields)
            for name, item in value.items()
            if name in fields.mentioned or name not in node.properties
        }
    if isinstance(value, list) and node.items is not None:
        return [projected(node.items, item, fields) for item in value]
    return value


def prune_and_default(node: Node, value: Any, unknown: list[str], path: str = "") -> Any:
    """Return the value without unknown fields and with defaults; ``unknown`` collects the paths of dropped fields."""
    if isinstance(value, dict):
        return _prune_object(node, value, unknown, path)
    if isinstance(value, list) and node.items is not None:
        pruned = [
            prune_and_default(node.items, _decoded(node.items, item), unknown, f"{path}[{i}]")
            for i, item in enumerate(value)
        ]
        return value if all(new is old for new, old in zip(pruned, value, strict=True)) else pruned
    if node.format == "quantity" and isinstance(value, str | int | float):
        canonical = quantity.canonical(str(value))
        return value if canonical is None or canonical == value else canonical
    return value


def _decoded(node: Node, element: Any) -> Any:
    """Return an element of a list or a map; in built-in kinds, null becomes a new zero value."""
    return element if element is not None or node.zero is MISSING else copy.copy(node.zero)


def _prune_object(node: Node, value: Json, unknown: list[str], path: str) -> Json:
    if node.type not in ("object", ""):
        return value
    result: Json = {}
    changed = False
    for name, old in value.items():
        part = node.properties.get(name) or node.additional
        if part is None:
            if (
                node.preserve_unknown_fields
                or not node.type
                or (node.embedded_resource and name in EMBEDDED_RESOURCE_FIELDS)
            ):
                result[name] = old
            else:
                unknown.append(f"{path}.{name}" if path else name)
                changed = True
            continue
        if name not in node.properties:
            old = _decoded(part, old)
        if old is None and not part.nullable and (part.type or part.int_or_string):
            changed = True
            continue
        new = prune_and_default(part, old, unknown, f"{path}.{name}" if path else name)
        if part.omit_empty and not new and name not in node.required:
            changed = True
            continue
        result[name] = new
        changed = changed or new is not value[name]
    for name, default in node.defaults:
        if name not in result:
            filled = prune_and_default(
                node.properties[name], copy.deepcopy(default), unknown, f"{path}.{name}"
            )
            result[name] = filled
            changed = True
    return result if changed else value


EMBEDDED_RESOURCE_FIELDS = ("apiVersion", "kind", "metadata")

JSON_TYPES = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


INTEGER_BOUNDS = {"int32": 2**31, "int64": 2**63}
"""Exclusive upper bounds of the integer formats."""
INT32 = Node(type="integer", format="int32")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:[0-5]\d(?P<fraction>[.,]\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
"""The times that Go parses, which are fewer than those of the format ``date-time``."""
GO_LAYOUT = "2006-01-02T15:04:05Z07:00"
GO_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=\r\n]|=(?=[^=\r\n])")

INVALID_QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


@dataclass(frozen=True, slots=True)
class TypeMismatch:
    """A value of the wrong type for its field: the path without indexes, and the names of the Go types."""

    path: str
    struct: str
    actual: str
    expected: str

    @override
    def __str__(self) -> str:
        field_path = f"{self.struct}.{self.path}" if self.struct else self.path
        return (
            f"json: cannot unmarshal {self.actual} into Go struct field {field_path} of type {self.expected}"
        )


def find_type_mismatch(node: Node, value: Any, path: str = "", struct: str = "") -> TypeMismatch | str | None:
    """Return the first value with a wrong type or an invalid format; None if there is none. No other rule is checked."""
    if node.format == "quantity" and value is not None and _is_invalid_quantity(value):
        return INVALID_QUANTITY
    if value is None:
        return None
    if node.format == "int-or-string":
        return None if isinstance(value, str) else find_type_mismatch(INT32, value, path, struct)
    if node.int_or_string or not node.type:
        return None
    if not _fits(node, value):
        return TypeMismatch(path, struct, _json_type(node, value), _go_type(node))
    if node.format == "byte" and (end := _base64_error_offset(value)) is not None:
        return f"illegal base64 data at input byte {end}"
    if node.format == "date-time":
        return _time_error(value, GO_MICRO_LAYOUT if node.name.endswith("MicroTime") else GO_LAYOUT)
    if isinstance(value, dict):
        inner = node.name.rpartition(".")[2] or struct
        for name, item in value.items():
            part = node.properties.get(name)
            field_path = path if part is None else f"{path}.{name}".lstrip(".")
            part = part or node.additional
            if part is not None and (found := find_type_mismatch(part, item, field_path, inner)):
                return found
    elif isinstance(value, list) and node.items is not None:
        for item in value:
            if found := find_type_mismatch(node.items, item, path, struct):
                return found
    return None


def _json_type(node: Node, value: Any) -> str:
    """Return the JSON type as Go prints it; a number in an integer field includes its value."""
    actual = JSON_TYPES[type(value)]
    return f"{actual} {value}" if node.type == "integer" and actual == "number" else actual


def _base64_error_offset(text: str) -> int | None:
    """Return the offset of the first byte that is not base64; None for valid base64."""
    if wrong := NOT_BASE64.search(text):
        return wrong.start()
    encoded = text.replace("\r", "").replace("\n", "")
    return len(encoded) // 4 * 4 if len(encoded) % 4 else None


def _time_error(text: str, layout: str) -> str | None:
    """Return why Go cannot parse a time; None for a valid time."""
    found = TIME.fullmatch(text)
    try:
        if found and (layout == GO_LAYOUT or len(found["fraction"] or "") == len(".000000")):
            parse_time(text)
            return None
    except ValueError:
        pass
    quoted = orjson.dumps(text).decode()
    return f'parsing time {quoted} as "{layout}": cannot parse {quoted} as "2006"'


def _is_invalid_quantity(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return True
    return quantity.canonical(str(value)) is None


def _fits(node: Node, value: Any) -> bool:
    if node.type == "integer":
        bound = INTEGER_BOUNDS.get(node.format, math.inf)
        return type(value) is int and -bound <= value < bound
    return JSON_TYPES[type(value)] == {"boolean": "bool"}.get(node.type, node.type)


def _go_type(node: Node) -> str:
    match node.type:
        case "object" if node.additional is not None:
            return f"map[string]{_go_type(node.additional)}"
        case "object":
            return f"v1.{node.name.rpartition('.')[2]}"
        case "array":
            return f"[]{_go_type(node.items)}" if node.items is not None else "[]interface {}"
        case "integer":
            return node.format or "int64"
        case "boolean":
            return "bool"
        case _:
            return node.type
