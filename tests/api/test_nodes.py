"""Rows of nodes, read from what the API server sends."""

import msgspec
import pytest

from api.nodes import NodeDomain, node_domain_from_json


@pytest.mark.parametrize(
    ("labels", "domain"),
    [
        pytest.param({"rack": "a", "zone": "z"}, "a", id="with the label"),
        pytest.param({"zone": "z"}, "", id="with another label"),
        pytest.param(None, "", id="without labels"),
    ],
)
def test_the_domain_of_a_node_is_its_topology_label(labels: dict[str, str] | None, domain: str) -> None:
    raw = msgspec.json.encode(
        {"metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": labels}}
    )

    assert node_domain_from_json("rack", raw) == NodeDomain("n", "u", 7, domain)
