"""Decoding of objects by their schemas."""

from typing import Any

import pytest

from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.schema.structural import Compiler, Node, find_type_mismatch, prune_and_default

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "names": {"type": "array", "items": {"type": "string"}},
        "ports": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "port": {"x-kubernetes-int-or-string": True, "format": "int-or-string"},
                    "protocol": {"type": "string", "default": "TCP"},
                },
            },
        },
        "limits": {
            "type": "object",
            "additionalProperties": {"x-kubernetes-int-or-string": True, "format": "quantity"},
        },
        "time": {"$ref": "v1.Time"},
        "renewed": {"$ref": "v1.MicroTime"},
    },
}
TIME = {"type": "string", "format": "date-time"}


def node(*, builtin: bool = True) -> Node:
    return Compiler({"v1.Time": TIME, "v1.MicroTime": TIME}, omit_empty=builtin).compile(SCHEMA)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param({"names": [None, "a"]}, {"names": ["", "a"]}, id="a string"),
        pytest.param({"ports": [None]}, {"ports": [{"protocol": "TCP"}]}, id="an object, with its defaults"),
        pytest.param({"limits": {"cpu": None}}, {"limits": {"cpu": "0"}}, id="a quantity"),
        pytest.param({"names": None}, {}, id="a field is dropped"),
    ],
)
def test_null_in_lists_and_maps_of_builtin_kinds_becomes_a_zero_value(sent: Json, expected: Json) -> None:
    assert prune_and_default(node(), sent, []) == expected


def test_each_null_becomes_its_own_object() -> None:
    first, second = prune_and_default(node(), {"ports": [None, None]}, [])["ports"]

    assert first is not second


def test_null_in_lists_of_custom_resources_stays_for_validation() -> None:
    assert prune_and_default(node(builtin=False), {"names": [None]}, []) == {"names": [None]}


@pytest.mark.parametrize("port", [80, "http", "", None])
def test_a_port_is_a_number_or_a_string(port: Any) -> None:
    assert find_type_mismatch(node(), {"ports": [{"port": port}]}) is None


@pytest.mark.parametrize(
    ("port", "actual"),
    [({}, "object"), ([], "array"), (True, "bool"), (1.5, "number 1.5"), (2**31, f"number {2**31}")],
)
def test_a_port_of_another_type_is_refused(port: Any, actual: str) -> None:
    found = str(find_type_mismatch(node(), {"ports": [{"port": port}]}))

    assert found == f"json: cannot unmarshal {actual} into Go struct field ports.port of type int32"


@pytest.mark.parametrize(
    "sent",
    [
        {"time": "2026-01-02T03:04:05Z"},
        {"time": "2026-01-02T03:04:05.6+01:00"},
        {"time": None},
        {"renewed": "2026-01-02T03:04:05.000006Z"},
    ],
)
def test_a_time_that_go_parses_is_accepted(sent: Json) -> None:
    assert find_type_mismatch(node(), sent) is None


@pytest.mark.parametrize(
    "sent",
    [
        {"time": ""},
        {"time": "odd value"},
        {"time": "2026-02-30T03:04:05Z"},
        {"time": "2026-01-02T03:04:60Z"},
        {"renewed": "2026-01-02T03:04:05Z"},
        {"renewed": "2026-01-02T03:04:05.6Z"},
    ],
)
def test_a_time_that_go_does_not_parse_is_refused(sent: Json) -> None:
    assert str(find_type_mismatch(node(), sent)).startswith("parsing time ")
