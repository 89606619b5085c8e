"""Why a Volcano queue does not take a PodGroup."""

from typing import Any

import pytest

from api.queues import queue_of, queue_problem

EIGHT = {"capability": {"nvidia.com/gpu": "8", "cpu": "64"}}


def queue(state: str | None = "Open", spec: Any = EIGHT, **allocated: str) -> dict[str, Any]:
    status = {"state": state} if state else {}
    return {"spec": spec, "status": {**status, "allocated": {"nvidia.com/gpu": "6", **allocated}}}


@pytest.mark.parametrize(
    ("found", "needed", "text"),
    [
        pytest.param({}, {}, "queue q does not exist", id="missing"),
        pytest.param(queue("Closed"), {}, "queue q is Closed", id="closed"),
        pytest.param(queue("Closing"), {}, "queue q is Closing", id="closing"),
        pytest.param(queue(None), {}, "queue q is not open: it has no state", id="without a state"),
        pytest.param(
            queue(),
            {"nvidia.com/gpu": "4"},
            "queue q is full (nvidia.com/gpu: needs 4, 6 of 8 are in use)",
            id="full",
        ),
        pytest.param(
            queue(cpu="63500m"),
            {"cpu": 1, "nvidia.com/gpu": 4},
            "queue q is full (cpu: needs 1, 63500m of 64 are in use; nvidia.com/gpu: needs 4, 6 of 8 are in use)",
            id="full in two resources",
        ),
        pytest.param(
            queue(),
            {"nvidia.com/gpu": "16"},
            "queue q can never take it: it needs 16 nvidia.com/gpu, and the queue has 8",
            id="too small",
        ),
        pytest.param(queue(), {"nvidia.com/gpu": "2"}, "", id="room for it"),
        pytest.param(queue(), {"memory": "1Ti"}, "", id="a resource without a limit"),
        pytest.param(queue(spec={}), {"nvidia.com/gpu": "99"}, "", id="without limits"),
        pytest.param(queue(), {"cpu": "many"}, "", id="an amount that is no quantity"),
    ],
)
def test_queue_problem(found: dict[str, Any], needed: dict[str, Any], text: str) -> None:
    assert queue_problem("q", found, needed) == text


@pytest.mark.parametrize(("spec", "name"), [({"queue": "research"}, "research"), ({}, "default")])
def test_the_queue_of_a_pod_group(spec: dict[str, str], name: str) -> None:
    assert queue_of(spec) == name
