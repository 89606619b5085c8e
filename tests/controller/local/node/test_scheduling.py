"""Which pods the node takes."""

from fractions import Fraction
from typing import Any

import pytest

from controller.local.node.capacity import requests
from controller.local.node.scheduling import is_waiting, schedule

CAPACITY = {"cpu": Fraction(2), "memory": Fraction(2**30), "pods": Fraction(10)}


def pod(name: str = "p", *, cpu: str = "", memory: str = "", age: str = "1", **spec: Any) -> dict[str, Any]:
    wanted = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": age},
        "spec": {"containers": [{"name": "c", "resources": {"requests": wanted}}], **spec},
    }


def test_a_pod_without_requests_fits() -> None:
    assert schedule([pod()], CAPACITY, [pod("other", cpu="2")]).bind == [pod()]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        pytest.param({"cpu": "2500m"}, "0/1 nodes are available: 1 Insufficient cpu.", id="cpu"),
        pytest.param({"memory": "2Gi"}, "0/1 nodes are available: 1 Insufficient memory.", id="memory"),
        pytest.param(
            {"cpu": "3", "memory": "2Gi"},
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
            id="both",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_the_schedulers_words(wanted: dict[str, str], message: str) -> None:
    big = pod(**wanted)

    assert schedule([big], CAPACITY, []).refused == [(big, message)]


def test_a_resource_that_the_node_does_not_have() -> None:
    gpu = pod()
    gpu["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}

    assert (
        schedule([gpu], CAPACITY, []).refused[0][1]
        == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    )


def test_too_many_pods() -> None:
    full = [pod(str(i)) for i in range(10)]

    assert schedule([pod()], CAPACITY, full).refused[0][1] == "0/1 nodes are available: 1 Too many pods."


def test_room_is_given_away_once() -> None:
    first, second = pod("a", cpu="1500m"), pod("b", cpu="1500m")
    plan = schedule([second, first], CAPACITY, [])

    assert (plan.bind, [refused for refused, _ in plan.refused]) == ([first], [second])


def test_a_large_pod_does_not_hold_up_a_small_one() -> None:
    large, small = pod("a", cpu="3", age="1"), pod("b", cpu="1", age="2")

    assert schedule([large, small], CAPACITY, []).bind == [small]


def test_priority_goes_before_age() -> None:
    old, important = pod("a", age="1"), pod("b", age="2", priority=10)

    assert schedule([old, important], CAPACITY, []).bind == [important, old]


def test_the_largest_init_container_counts() -> None:
    manifest = pod(cpu="1", initContainers=[{"name": "i", "resources": {"requests": {"cpu": "3"}}}])

    assert requests(manifest)["cpu"] == 3


def test_a_sidecar_counts_beside_the_others() -> None:
    side = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}

    assert requests(pod(cpu="1", initContainers=[side]))["cpu"] == Fraction(3, 2)


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        pytest.param({}, True, id="a new pod"),
        pytest.param({"nodeName": "local"}, False, id="bound"),
        pytest.param({"schedulingGates": [{"name": "g"}]}, False, id="gated"),
    ],
)
def test_is_waiting(change: dict[str, Any], waits: bool) -> None:
    assert is_waiting(pod(**change)) is waits
