"""How schemas become fields; tests/takeover compares the file with the definitions of the Go operators."""

from typing import Any

from rallypoint.cli.check.go_operators import FIELDS_FILE, go_fields
from tools.go_fields import fields_of, text


def definition(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"properties": {"spec": spec}}}
    versions = [{"name": "v0", "storage": False}, {"name": "v1", "storage": True, "schema": schema}]
    return {"metadata": {"name": kind.lower()}, "spec": {"names": {"kind": kind}, "versions": versions}}


def test_equal_schemas_are_one_node() -> None:
    spec = {
        "properties": {
            "list": {"items": {"type": "string"}},
            "map": {"additionalProperties": {"type": "string"}},
            "any": {"x-kubernetes-preserve-unknown-fields": True},
            "other": {"items": {"type": "integer"}},
        }
    }
    found = fields_of({"training-operator": [definition("A", spec), definition("B", spec)]})

    assert found["operators"] == {"training-operator": {"A": 4, "B": 4}}
    assert found["nodes"] == [
        {"open": True},
        {},
        {"items": 1},
        {"values": 1},
        {"fields": {"any": 0, "list": 2, "map": 3, "other": 2}},
    ]


def test_the_file_is_as_it_is_written() -> None:
    assert text(go_fields()) == FIELDS_FILE.read_text(encoding="utf-8")
