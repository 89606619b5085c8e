"""Whether a pod fits on the node, and the message if not."""

from typing import Any

import pytest

from rallypoint.local.node.resources import requests
from rallypoint.local.node.scheduler.fit import FreeResources, is_waiting, reserve

ALLOCATABLE = {"cpu": "2", "memory": "1Gi", "pods": "3"}


def pod(name: str = "p", *, resources: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "c", "resources": resources or {}}], **spec},
    }


def asks(name: str = "p", **amounts: str) -> dict[str, Any]:
    return pod(name, resources={"requests": amounts})


def free(*taken: dict[str, Any], **spec: Any) -> FreeResources:
    node = {"metadata": {"name": "local"}, "spec": spec, "status": {"allocatable": ALLOCATABLE}}
    return FreeResources.after(taken, node)


def test_a_pod_without_requests_fits() -> None:
    assert reserve(pod(), free(asks("other", cpu="2"))) is None


@pytest.mark.parametrize(
    ("wanted", "reasons"),
    [
        pytest.param(asks(cpu="2500m"), "1 Insufficient cpu", id="cpu"),
        pytest.param(asks(memory="2Gi"), "1 Insufficient memory", id="memory"),
        pytest.param(asks(memory="2Gi", cpu="3"), "1 Insufficient cpu, 1 Insufficient memory", id="both"),
        pytest.param(
            pod(resources={"limits": {"nvidia.com/gpu": 1}}),
            "1 Insufficient nvidia.com/gpu",
            id="unknown resource",
        ),
        pytest.param(
            asks(cpu="3", **{"rdma/hca": "1"}),
            "1 Insufficient cpu, 1 Insufficient rdma/hca",
            id="in the order of the alphabet",
        ),
        pytest.param(
            {**asks(cpu="3"), "spec": {**asks(cpu="3")["spec"], "nodeSelector": {"a": "b"}}},
            "1 node(s) didn't match Pod's node affinity/selector",
            id="resources are not checked on a node that is filtered out",
        ),
    ],
)
def test_a_pod_that_does_not_fit_gets_the_message_of_kube_scheduler(
    wanted: dict[str, Any], reasons: str
) -> None:
    unschedulable = reserve(wanted, free())

    assert unschedulable is not None
    assert (unschedulable.reason, unschedulable.message) == (
        "Unschedulable",
        f"0/1 nodes are available: {reasons}.",
    )


def test_too_many_pods() -> None:
    unschedulable = reserve(asks(cpu="1"), free(pod("a"), pod("b"), asks("c", cpu="2")))

    assert unschedulable is not None
    assert unschedulable.message == "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods."


def test_resources_are_assigned_once() -> None:
    left = free()

    assert reserve(asks("a", cpu="1500m"), left) is None
    assert reserve(asks("b", cpu="1500m"), left) is not None


def test_the_largest_init_container_counts() -> None:
    manifest = asks(cpu="1") | {
        "spec": {
            **asks(cpu="1")["spec"],
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3"}}}],
        }
    }

    assert requests(manifest) == {"cpu": 3, "pods": 1}


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
