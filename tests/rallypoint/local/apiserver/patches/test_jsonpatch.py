"""JSON and merge patches on plain values. The contract suite tests them in requests."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.patches import jsonpatch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=3), JSON, max_size=4)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/a/-", "value": 3}, {"a": [1, 2, 3]}),
        ({"op": "add", "path": "/a/0", "value": 3}, {"a": [3, 1, 2]}),
        ({"op": "replace", "path": "/a/1", "value": 3}, {"a": [1, 3]}),
        ({"op": "remove", "path": "/a/0"}, {"a": [2]}),
        ({"op": "remove", "path": "/a/-1"}, {"a": [1]}),
        ({"op": "copy", "from": "/a/0", "path": "/b"}, {"a": [1, 2], "b": 1}),
        ({"op": "move", "from": "/a/0", "path": "/b"}, {"a": [2], "b": 1}),
        ({"op": "replace", "path": "", "value": {"c": 1}}, {"c": 1}),
        ({"op": "test", "path": "/a", "value": [1, 2]}, {"a": [1, 2]}),
    ],
)
def test_operation(operation: dict[str, Any], expected: Any) -> None:
    assert jsonpatch.apply({"a": [1, 2]}, [operation]) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a/0", "value": True},
        {"op": "test", "path": "/a/0", "value": "1"},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "remove", "path": "/a/2"},
        {"op": "remove", "path": "/a/x"},
        {"op": "move", "from": "/none", "path": "/b"},
        {"op": "add", "path": "/a/0/b", "value": 1},
        "no operation",
    ],
)
def test_invalid_operation(operation: Any) -> None:
    with pytest.raises(StatusError) as refused:
        jsonpatch.apply({"a": [1, 2]}, [operation])
    assert refused.value.code == 422


def test_too_many_operations() -> None:
    with pytest.raises(StatusError) as refused:
        jsonpatch.apply({}, [{"op": "test", "path": "/a", "value": None}] * (jsonpatch.LIMIT + 1))
    assert refused.value.code == 413


def test_unchanged_parts_are_shared() -> None:
    document: dict[str, Any] = {"a": {"b": [1]}, "c": {"d": 1}}

    changed = jsonpatch.apply(document, [{"op": "add", "path": "/c/e", "value": 2}])

    assert changed["a"] is document["a"]
    assert document["c"] == {"d": 1}


@given(OBJECTS, OBJECTS)
def test_merging_twice_is_merging_once(target: dict[str, Any], change: dict[str, Any]) -> None:
    once = jsonpatch.merge(target, change)

    assert jsonpatch.merge(once, change) == once


@given(OBJECTS)
def test_an_empty_merge_changes_nothing(target: dict[str, Any]) -> None:
    assert jsonpatch.merge(target, {}) == target


def test_copies_beyond_the_size_limit_are_rejected() -> None:
    doubling = [{"op": "copy", "from": "", "path": f"/{i}"} for i in range(64)]

    with pytest.raises(StatusError):
        jsonpatch.apply({"a": "x"}, doubling)


def test_a_copy_within_the_size_limit_applies() -> None:
    value = "x" * (jsonpatch.MAX_COPIED_BYTES // 2)

    assert jsonpatch.apply({"a": value}, [{"op": "copy", "from": "/a", "path": "/b"}]) == {
        "a": value,
        "b": value,
    }
