"""CEL rules of custom resources: when they are evaluated, and where their errors are."""

from typing import Any

import pytest

from rallypoint.local.apiserver.schema.cel import MISSING, Rule
from rallypoint.local.apiserver.schema.structural import Compiler
from rallypoint.local.apiserver.schema.validation import validate

NUMBER = {"type": "integer"}


def errors(rule: str, value: dict[str, Any], old: dict[str, Any] | None = None, **more: str) -> list[str]:
    schema = {
        "type": "object",
        "properties": dict.fromkeys("abc", NUMBER),
        "x-kubernetes-validations": [{"rule": rule, "message": "broken", **more}],
    }
    return [f"{error.field}: {error.message}" for error in validate(Compiler().compile(schema), value, old)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param({"a": 1, "b": 0}, [], id="the field makes it true"),
        pytest.param({"b": 1}, [], id="the rest makes it true"),
        pytest.param({"b": 0}, [": Invalid value: broken"], id="false"),
    ],
)
def test_a_rule_with_a_guard(value: dict[str, Any], expected: list[str]) -> None:
    assert errors("has(self.a) || self.b > 0", value) == expected


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("has(self.a) || self.b > 0 ? self.c > 0 : true", id="a conditional around it"),
        pytest.param("has(self.a) && self.c > 0", id="a conjunction"),
        pytest.param("!has(self.a) || self.c > 0", id="a negation"),
    ],
)
def test_a_field_that_does_not_decide_alone(rule: str) -> None:
    assert errors(rule, {"a": 1, "b": 0, "c": 0}) == [": Invalid value: broken"]


def test_a_question_mark_in_a_text_is_no_conditional() -> None:
    assert Rule.parse({"rule": "has(self.a) || 'who?' == ''"}).guard == "a"


def test_a_transition_rule_applies_to_updates_only() -> None:
    rule = Rule.parse({"rule": "self == oldSelf"})

    assert not rule.applies({"a": 1}, MISSING)
    assert rule.applies({"a": 1}, {"a": 2})


def test_the_error_of_a_rule_at_the_root_names_the_field() -> None:
    found = errors("has(self.a)", {}, fieldPath=".a", reason="FieldValueRequired")

    assert found == ["a: Required value: broken"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param("'a is ' + string(self.a)", "a is 0", id="a text"),
        pytest.param("' padded '", "padded", id="spaces around it"),
        pytest.param("string(self.b)", "broken", id="an error"),
        pytest.param("' '", "broken", id="an empty text"),
        pytest.param("'two\\nlines'", "broken", id="a line break"),
        pytest.param(f"'{'x' * 5121}'", "broken", id="too long"),
    ],
)
def test_the_message_expression_falls_back_to_the_message(expression: str, expected: str) -> None:
    assert errors("self.a > 0", {"a": 0}, messageExpression=expression) == [f": Invalid value: {expected}"]
