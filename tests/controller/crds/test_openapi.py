"""The conversion of published OpenAPI to structural schemas, on small examples."""

from copy import deepcopy

import pytest

from controller.crds.openapi import (
    EMBEDDED_META,
    QUANTITY,
    Schema,
    inline,
    select,
    slim,
    with_atomic_lists,
)

REF = "#/components/schemas/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        pytest.param(
            {"type": "string", "description": "A word.", "enum": ["a", "b"]},
            {"type": "string"},
            id="descriptions and enumerations go",
        ),
        pytest.param(
            {"type": "integer", "format": "int32"}, {"type": "integer", "format": "int32"}, id="widths stay"
        ),
        pytest.param({"$ref": REF + "a.B"}, {"$ref": "a.B"}, id="a reference becomes a name"),
        pytest.param(
            {"allOf": [{"$ref": REF + "a.B"}], "default": {}, "description": "x"},
            {"$ref": "a.B"},
            id="a reference that carries a default",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "string", "default": ""}, "x-kubernetes-list-type": "atomic"},
            {"type": "array", "items": {"type": "string"}},
            id="lists are atomic by default",
        ),
        pytest.param(
            {
                "type": "array",
                "items": {"$ref": REF + "a.B"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "name",
            },
            {
                "type": "array",
                "items": {"$ref": "a.B"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
            id="keys of lists stay, patch hints go",
        ),
        pytest.param(
            {
                "type": "object",
                "required": ["a"],
                "properties": {
                    "a": {"type": "integer", "default": 0},
                    "b": {"type": "string", "default": "TCP"},
                },
            },
            {
                "type": "object",
                "required": ["a"],
                "properties": {"a": {"type": "integer"}, "b": {"type": "string", "default": "TCP"}},
            },
            id="the default of a required field is no default",
        ),
        pytest.param(
            {"type": "object", "x-kubernetes-map-type": "atomic", "x-kubernetes-unions": [{}]},
            {"type": "object", "x-kubernetes-map-type": "atomic"},
            id="atomic maps stay, unions go",
        ),
    ],
)
def test_slim(published: Schema, expected: Schema) -> None:
    assert slim(published) == expected


def test_select_follows_references_and_omits_the_rest() -> None:
    published: dict[str, Schema] = {
        "z.Root": {"type": "object", "properties": {"part": {"allOf": [{"$ref": REF + "a.Part"}]}}},
        "a.Part": {"type": "object", "properties": {"metadata": {"$ref": REF + META}}},
        META: {"type": "object"},
        "b.Other": {"type": "object"},
    }

    assert list(select(published, ["z.Root"])) == ["a.Part", "z.Root"]


def test_select_names_missing_definitions() -> None:
    with pytest.raises(KeyError, match=r"a\.Missing"):
        select({"z.Root": {"type": "array", "items": {"$ref": REF + "a.Missing"}}}, ["z.Root"])


def test_inline_resolves_references() -> None:
    definitions: dict[str, Schema] = {
        "Template": {
            "type": "object",
            "properties": {
                "metadata": {"$ref": META},
                "limits": {
                    "type": "object",
                    "additionalProperties": {"$ref": "io.k8s.apimachinery.pkg.api.resource.Quantity"},
                },
                "port": {"$ref": "io.k8s.apimachinery.pkg.util.intstr.IntOrString"},
            },
        },
    }

    assert inline(definitions, "Template")["properties"] == {
        "metadata": EMBEDDED_META,
        "limits": {"type": "object", "additionalProperties": QUANTITY},
        "port": {"x-kubernetes-int-or-string": True},
    }


def test_inline_keeps_defaults_of_keys_only() -> None:
    """A keyed list's schema must require its keys or default them; other defaults are the API server's business."""
    definitions: dict[str, Schema] = {
        "Ports": {
            "type": "array",
            "items": {"$ref": "Port"},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["number", "protocol"],
        },
        "Port": {
            "type": "object",
            "required": ["number"],
            "properties": {
                "number": {"type": "integer"},
                "protocol": {"type": "string", "default": "TCP"},
                "name": {"type": "string", "default": "http"},
            },
        },
    }

    assert inline(definitions, "Ports")["items"]["properties"] == {
        "number": {"type": "integer"},
        "protocol": {"type": "string", "default": "TCP"},
        "name": {"type": "string"},
    }


def test_inline_rejects_recursive_definitions() -> None:
    definitions: dict[str, Schema] = {
        "Tree": {"type": "object", "properties": {"left": {"$ref": "Tree"}}},
    }

    with pytest.raises(ValueError, match="Tree contains itself"):
        inline(definitions, "Tree")


def test_inline_accepts_a_definition_that_is_referenced_twice() -> None:
    definitions: dict[str, Schema] = {
        "Pair": {"type": "object", "properties": {"a": {"$ref": "Leaf"}, "b": {"$ref": "Leaf"}}},
        "Leaf": {"type": "string"},
    }

    assert inline(definitions, "Pair")["properties"] == {"a": {"type": "string"}, "b": {"type": "string"}}


def test_atomic_lists_have_no_keys_at_any_depth_and_keep_their_defaults() -> None:
    keyed: Schema = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "protocol": {"type": "string", "default": "TCP"},
                "modes": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            },
        },
    }
    schema: Schema = {"type": "object", "properties": {"a": keyed}, "additionalProperties": {"items": keyed}}
    before = deepcopy(schema)

    atomic = with_atomic_lists(schema)

    assert schema == before
    assert (
        atomic["additionalProperties"]["items"]
        == atomic["properties"]["a"]
        == {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "protocol": {"type": "string", "default": "TCP"},
                    "modes": {"type": "array", "items": {"type": "string"}},
                },
            },
        }
    )


def test_an_atomic_list_may_have_properties_named_as_its_markers() -> None:
    schema: Schema = {"type": "object", "properties": {"x-kubernetes-list-type": {"type": "string"}}}

    assert with_atomic_lists(schema) == schema
