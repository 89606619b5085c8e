"""Pods that set ``nodeName`` themselves and do not fit."""

from fractions import Fraction
from typing import Any

import pytest

from rallypoint.local.node.resources import rejection

CAPACITY = {"cpu": Fraction(2), "memory": Fraction(2**30), "pods": Fraction(2)}


def pod(**requests: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}


@pytest.mark.parametrize(
    ("requests", "others", "reason", "message"),
    [
        pytest.param(
            {"cpu": "1500m"},
            [pod(cpu="1")],
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000",
            id="cpu",
        ),
        pytest.param(
            {"memory": "2Gi", "cpu": "3"},
            [],
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000",
            id="one of several",
        ),
        pytest.param(
            {},
            [pod(), pod()],
            "OutOfpods",
            "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2",
            id="pods",
        ),
    ],
)
def test_a_rejected_pod_gets_the_message_of_the_kubelet(
    requests: dict[str, str], others: list[dict[str, Any]], reason: str, message: str
) -> None:
    refused = rejection(pod(**requests), others, CAPACITY)

    assert refused is not None
    assert refused.reason == reason
    assert refused.message == message
    assert refused.status == {
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {message}",
    }


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param({"cpu": "1"}, id="what fits"),
        pytest.param({"a/b": "1"}, id="what the node knows nothing of"),
    ],
)
def test_accepted_pods(requests: dict[str, str]) -> None:
    assert rejection(pod(**requests), [pod(cpu="1")], CAPACITY) is None
