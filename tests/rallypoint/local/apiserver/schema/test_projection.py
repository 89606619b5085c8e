"""The fields that CEL rules read, and objects without the others."""

from typing import Any

import pytest

from rallypoint.local.apiserver.schema.projection import Fields, fields_of
from rallypoint.local.apiserver.schema.structural import Compiler, projected
from rallypoint.local.apiserver.schema.validation import validate


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param("self.a == 'b.c'", {"a"}, id="a comparison with a literal"),
        pytest.param("self.a.b == oldSelf.a.b", {"b"}, id="a comparison of two fields"),
        pytest.param("has(self.a.b) && self.a.b.size() > 0", set(), id="existence and size"),
        pytest.param("'k' in self.a && self.a['k'].b > 1", {"b"}, id="a key of a map"),
        pytest.param("self.a.all(k, k in ['x'] || self.a[k].b == 1)", {"b"}, id="all keys of a map"),
        pytest.param("self.a.exists(item, item.b == 'x')", {"b"}, id="the items of a list"),
        pytest.param("self.metadata.name.matches('^[a-z]$')", set(), id="a text"),
    ],
)
def test_the_fields_whose_whole_value_counts(expression: str, expected: set[str]) -> None:
    fields = fields_of(expression)

    assert fields is not None
    assert fields.whole == expected


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("self == oldSelf", id="whole objects"),
        pytest.param("self.all(k, self[k] == oldSelf[k])", id="values of a map"),
        pytest.param("self.a.all(x, self.b.exists(y, x == y))", id="items of lists"),
        pytest.param("self.a.filter(x, x.b > 1) == self.c", id="a list of objects"),
        pytest.param("self.?a.orValue({}) == {}", id="an optional field"),
        pytest.param("type(self) == map", id="an argument"),
    ],
)
def test_an_expression_that_may_read_all_fields(expression: str) -> None:
    assert fields_of(expression) is None


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "integer"}, "c": {"type": "integer"}}},
        "map": {
            "type": "object",
            "additionalProperties": {"type": "object", "properties": {"b": {"type": "integer"}}},
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "list": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "integer"}}}},
    },
}
VALUE = {"a": {"b": 1, "c": 2}, "map": {"k": {"b": 3}}, "free": {"x": 4}, "list": [{"b": 5}]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(Fields(frozenset({"a", "b"})), {"a": {"b": 1}}, id="the fields of an object"),
        pytest.param(Fields(frozenset({"map"})), {"map": {"k": {}}}, id="all keys of a map"),
        pytest.param(
            Fields(frozenset({"free"})), {"free": {"x": 4}}, id="fields that the schema does not name"
        ),
        pytest.param(Fields(frozenset({"list"})), {"list": [{}]}, id="all items of a list"),
        pytest.param(Fields(frozenset({"a"}), frozenset({"a"})), {"a": {"b": 1, "c": 2}}, id="a whole value"),
    ],
)
def test_a_projection(fields: Fields, expected: Any) -> None:
    assert projected(Compiler().compile(SCHEMA), VALUE, fields) == expected


@pytest.mark.parametrize("rule", ["self.a == oldSelf.a", "self == oldSelf"])
def test_a_change_of_a_field_that_no_rule_names_changes_the_whole_object(rule: str) -> None:
    node = Compiler().compile({**SCHEMA, "x-kubernetes-validations": [{"rule": rule, "message": "changed"}]})

    assert [error.message for error in validate(node, {"a": {"b": 2}}, {"a": {"b": 1}})] == [
        "Invalid value: changed"
    ]
