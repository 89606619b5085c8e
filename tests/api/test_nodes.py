"""Rows of nodes, read from what the API server sends."""

import msgspec
import pytest

from api.nodes import NodeDomain, node_domain_from_json


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        pytest.param({"rack": "a", "zone": "z"}, "a", id="by the label that is asked for"),
        pytest.param({"zone": "z"}, "", id="without it"),
        pytest.param(None, "", id="without labels"),
    ],
)
def test_where_a_node_is(labels: dict[str, str] | None, place: str) -> None:
    raw = msgspec.json.encode(
        {"metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": labels}}
    )

    assert node_domain_from_json("rack", raw) == NodeDomain("n", "u", 7, place)
