"""The pods that hold the resource that a waiting pod lacks."""

from typing import Any

import pytest

from rallypoint.diagnosis import Cause, JobSnapshot, diagnose
from rallypoint.diagnosis.resources import MAX_HOLDERS, holds, lacking, largest_owners, needed
from tests.support.snapshots import CREATED, NOW, Object, false, job, pod, true

GPU = "nvidia.com/gpu"
NO_GPUS = f"0/2 nodes are available: 1 Insufficient {GPU}, 2 Insufficient cpu."


def waiting(name: str = "j-worker-0", message: str = NO_GPUS) -> Object:
    return pod(name, node="", conditions=[false("PodScheduled", reason="Unschedulable", message=message)])


def holder(
    name: str,
    owner: str = "old",
    gpus: int = 8,
    *,
    namespace: str = "n",
    phase: str = "Running",
    node: str = "a",
) -> Object:
    found = pod(name, phase, node)
    metadata = {
        **found["metadata"],
        "namespace": namespace,
        "ownerReferences": [
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "name": owner,
                "uid": owner,
                "controller": True,
            }
        ],
    }
    resources = {"limits": {GPU: str(gpus)}}
    return {
        **found,
        "metadata": metadata,
        "spec": {**found["spec"], "containers": [{"resources": resources}]},
    }


def owner(name: str = "old", *conditions: Object, **policy: Any) -> dict[str, Object]:
    found = job(CREATED, *conditions, **policy)
    return {name: {**found, "metadata": {**found["metadata"], "name": name, "uid": name}}}


def causes(*holders: Object, **known: Any) -> list[Cause]:
    found = diagnose(JobSnapshot(job(CREATED), NOW, pods=[waiting()], holders=holders, **known))
    return [cause for cause in found.causes if GPU in cause.text and "Insufficient" not in cause.text]


def test_pods_of_a_finished_job_come_first_with_the_command_that_frees_the_resource() -> None:
    owners = {
        **owner("busy", true("Running")),
        **owner("old", true("Succeeded", since=90), cleanPodPolicy="None"),
    }

    found = causes(holder("busy-0", "busy", 16), holder("old-0"), holder("old-1"), owners=owners)

    assert [(cause.about, cause.text, cause.next_step) for cause in found] == [
        (
            ("old-0", "old-1"),
            (
                "hold 16 nvidia.com/gpu, which j-worker-0 needs; PyTorchJob old has Succeeded and keeps its pods "
                "(cleanPodPolicy: None)"
            ),
            """kubectl patch pytorchjob old -n n --type merge -p '{"spec":{"runPolicy":{"cleanPodPolicy":"Running"}}}'""",
        ),
        (("busy-0",), "holds 16 nvidia.com/gpu, which j-worker-0 needs; of PyTorchJob busy", ""),
    ]


def test_holders_of_another_namespace_are_named_with_it() -> None:
    found = causes(holder("old-0", namespace="m"), owners=owner("old", true("Failed")))

    assert found[0].about == ("m/old-0",)
    assert found[0].text.endswith("(cleanPodPolicy: None, the default)")
    assert "patch pytorchjob old -n m " in found[0].next_step


def test_the_policy_of_old_mpijobs_is_changed_where_it_is_read() -> None:
    owners = owner("old", true("Failed"))
    owners["old"] |= {"kind": "MPIJob", "spec": {"cleanPodPolicy": "None"}}

    (cause,) = causes(holder("old-0"), owners=owners)

    assert cause.next_step == (
        "kubectl patch mpijob old -n n --type merge "
        """-p '{"spec":{"runPolicy":{"cleanPodPolicy":"Running"},"cleanPodPolicy":"Running"}}'"""
    )


def test_the_owners_with_the_largest_share_come_first() -> None:
    pods = [holder(f"p{number}", f"owner-{number}", number) for number in (1, 3, 2)]

    assert [owner["name"] for owner, _ in largest_owners(pods, [GPU, "cpu"])] == [
        "owner-3",
        "owner-2",
        "owner-1",
    ]


def test_pods_of_other_owners_than_jobs_are_notes() -> None:
    server = holder("server-0")
    server["metadata"]["ownerReferences"][0] |= {"apiVersion": "apps/v1", "kind": "StatefulSet"}

    assert [(cause.text, cause.blocks) for cause in causes(server)] == [
        ("holds 8 nvidia.com/gpu, which j-worker-0 needs; of StatefulSet old", False)
    ]


def node(gpus: str | None) -> Object:
    return {"metadata": {"name": "a"}, "status": {"allocatable": {GPU: gpus} if gpus else {}}}


@pytest.mark.parametrize(
    ("nodes", "is_too_large"),
    [
        pytest.param([node("4"), node(None)], True, id="the largest node has fewer"),
        pytest.param([node("4"), node("8")], False, id="a node has enough"),
        pytest.param([], False, id="nodes are unknown"),
    ],
)
def test_a_request_that_no_node_can_meet(nodes: list[Object], is_too_large: bool) -> None:
    large = waiting()
    large["spec"]["containers"] = [{"resources": {"limits": {GPU: "8"}}}]
    snapshot = JobSnapshot(job(CREATED), NOW, pods=[large], holders=[holder("old-0")], all_nodes=nodes)

    first, *others = (cause for cause in diagnose(snapshot).causes if GPU in cause.text)
    texts = [cause.text for cause in others]

    assert bool(first.next_step) is not is_too_large, "freeing what other pods hold does not help"
    if is_too_large:
        assert texts == [
            "no existing node is large enough: it requests 8 nvidia.com/gpu, and the largest node has 4"
        ]
    else:
        assert texts == ["holds 8 nvidia.com/gpu, which j-worker-0 needs; of PyTorchJob old"]


def test_a_request_that_no_node_can_meet_hides_no_holders_for_the_other_pods() -> None:
    large, small = waiting(), waiting("j-worker-1")
    large["spec"]["containers"] = [{"resources": {"limits": {GPU: "8"}}}]
    small["spec"]["containers"] = [{"resources": {"limits": {GPU: "1"}}}]
    found = JobSnapshot(
        job(CREATED), NOW, pods=[large, small], holders=[holder("old-0", gpus=4)], all_nodes=[node("4")]
    )

    texts = [cause.text for cause in diagnose(found).causes if GPU in cause.text][1:]

    assert texts == [
        "no existing node is large enough: it requests 8 nvidia.com/gpu, and the largest node has 4",
        "holds 4 nvidia.com/gpu, which j-worker-1 needs; of PyTorchJob old",
    ]


def test_invisible_namespaces_are_mentioned() -> None:
    (note,) = causes(holders_known=False)

    assert (note.text, note.blocks) == (
        "pods of other namespaces may hold nvidia.com/gpu; you have no permission to list them",
        False,
    )


def test_many_holders_are_summed_up() -> None:
    found = causes(
        *(holder(f"p{number}", f"owner-{number}", number + 1) for number in range(MAX_HOLDERS + 2))
    )

    assert [cause.about[0] for cause in found[:-1]] == ["p6", "p5", "p4", "p3", "p2"]
    assert found[-1].text == "pods of 2 other owners hold 3 nvidia.com/gpu"


def test_a_pod_without_an_owner() -> None:
    found = holder("alone")
    del found["metadata"]["ownerReferences"]

    assert [cause.text for cause in causes(found)] == ["holds 8 nvidia.com/gpu, which j-worker-0 needs"]


def cpu(found: Object, amount: str, *init: str) -> Object:
    containers = [{"resources": {"requests": {"cpu": amount}}}]
    inits = [{"resources": {"requests": {"cpu": request}}} for request in init]
    return {**found, "spec": {**found["spec"], "containers": containers, "initContainers": inits}}


def test_the_pods_of_the_job_itself_come_by_what_they_hold() -> None:
    """Init containers that are done count as the scheduler counts them, and no more."""
    own = cpu(holder("j-worker-1", "job"), "1500m", "100m")
    others = [cpu(holder(f"hang-worker-{index}", "hang"), "50m", "100m") for index in range(2)]
    waits = cpu(waiting(message="0/1 nodes are available: 1 Insufficient cpu."), "500m")
    node = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "2"}}}

    found = diagnose(
        JobSnapshot(job(CREATED), NOW, pods=[waits, own], holders=[*others, own], all_nodes=[node])
    )

    assert [(cause.about, cause.text) for cause in found.causes if "holds" in cause.text] == [
        (("j-worker-1",), "holds 1500m cpu, which j-worker-0 needs; of the same job"),
    ]
    assert [(cause.about, cause.text) for cause in found.causes if "hold 200m" in cause.text] == [
        (
            ("hang-worker-0", "hang-worker-1"),
            "hold 200m cpu, which j-worker-0 needs; of PyTorchJob hang",
        ),
    ]
    texts = [cause.text for cause in found.causes if "hold" in cause.text]
    assert "1500m" in texts[0]
    assert not any("never" in cause.text for cause in found.causes)


@pytest.mark.parametrize(
    ("amounts", "nodes", "text"),
    [
        pytest.param(
            ("1500m", "1500m", "1500m", "1500m"),
            ("2",),
            "its 4 pods can never run at the same time: they request 1500m cpu each, 6 in all, and the existing node has 2",
            id="one node",
        ),
        pytest.param(
            ("1", "1500m"),
            ("1500m", "500m"),
            "its 2 pods can never run at the same time: they request 2500m cpu, and the existing nodes together have 2",
            id="two nodes",
        ),
        pytest.param(("1", "1"), ("2",), "", id="it fits an empty node"),
        pytest.param(("1", "1500m"), (), "", id="nodes are unknown"),
    ],
)
def test_a_job_that_all_nodes_together_cannot_hold(
    amounts: tuple[str, ...], nodes: tuple[str, ...], text: str
) -> None:
    message = "0/1 nodes are available: 1 Insufficient cpu."
    pods = [
        cpu(waiting(f"j-worker-{index}", message) if index else holder("j-worker-0", "job"), amount)
        for index, amount in enumerate(amounts)
    ]
    sizes = [{"metadata": {"name": size}, "status": {"allocatable": {"cpu": size}}} for size in nodes]

    found = diagnose(JobSnapshot(job(CREATED), NOW, pods=pods, holders=pods[:1], all_nodes=sizes))

    assert [cause.text for cause in found.causes if "never" in cause.text] == ([text] if text else [])
    assert any(cause.text.startswith("holds ") for cause in found.causes)


@pytest.mark.parametrize(
    ("found", "is_holder"),
    [
        pytest.param(holder("p"), True, id="a running pod"),
        pytest.param(holder("p", phase="Pending"), True, id="a pod that starts"),
        pytest.param(holder("p", phase="Succeeded"), False, id="a pod that has ended"),
        pytest.param(holder("p", node=""), False, id="a pod without a node"),
        pytest.param(holder("p", gpus=0), False, id="a pod without GPUs"),
    ],
)
def test_what_holds_a_resource(found: Object, is_holder: bool) -> None:
    assert holds(found, [GPU]) is is_holder


@pytest.mark.parametrize(
    ("message", "resources"),
    [
        (NO_GPUS, [GPU, "cpu"]),
        ("0/1 nodes are available: 1 Insufficient memory.", ["memory"]),
        (
            f"0/2 nodes are available: resource gap: map[cpu:{{{{198 -3}} {{<nil>}}  DecimalSI}} {GPU}:{{{{8 0}} {{<nil>}}  DecimalSI}}].",
            ["cpu", GPU],
        ),
        ("0/1 nodes are available: 1 node(s) had untolerated taint {a: b}.", []),
    ],
)
def test_what_a_pod_lacks(message: str, resources: list[str]) -> None:
    assert lacking([waiting("p", message)]) == {resource: ["p"] for resource in resources}


def test_several_waiting_pods_are_counted() -> None:
    pods = [waiting("j-worker-0"), waiting("j-worker-1"), waiting("j-worker-2")]

    found = diagnose(JobSnapshot(job(CREATED), NOW, pods=pods, holders=[holder("old-0")]))

    assert any(
        cause.text.startswith("holds 8 nvidia.com/gpu, which j-worker-0 and 2 more pods need;")
        for cause in found.causes
    )


def gang(gpus: str) -> Object:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "metadata": {"name": "j", "uid": "g"},
        "spec": {"minMember": 2, "minResources": {GPU: gpus}},
        "status": {"phase": "Pending"},
    }


def causes_of_gang(found: Object, **known: Any) -> list[tuple[tuple[str, ...], str, str]]:
    snapshot = JobSnapshot(job(CREATED), NOW, gangs=[found], **known)
    return [
        (cause.about, cause.text, cause.next_step) for cause in diagnose(snapshot).causes if GPU in cause.text
    ]


def test_a_waiting_gang_says_what_it_lacks_and_who_holds_it() -> None:
    assert needed([gang("6")]) == {GPU}
    assert causes_of_gang(gang("6"), holders=[holder("old-0", gpus=7)], all_nodes=[node("4"), node("8")]) == [
        (
            ("j",),
            "it needs 6 nvidia.com/gpu, and 5 of 12 are free",
            "request less, free what other pods hold, or add nodes",
        ),
        (("old-0",), "holds 7 nvidia.com/gpu, which j needs; of PyTorchJob old", ""),
    ]


def test_a_gang_that_all_nodes_together_cannot_hold() -> None:
    assert causes_of_gang(gang("16"), holders=[holder("old-0")], all_nodes=[node("4"), node("8")]) == [
        (
            ("j",),
            "the existing nodes are too small: it needs 16 nvidia.com/gpu, and together they have 12",
            "request less, or add nodes",
        )
    ]


@pytest.mark.parametrize(
    ("found", "known"),
    [
        pytest.param(gang("4"), {"all_nodes": [node("8")]}, id="enough is free"),
        pytest.param(gang("16"), {}, id="nodes are unknown"),
        pytest.param(
            gang("16"), {"all_nodes": [node("8")], "queues": {"default": {}}}, id="its queue is the cause"
        ),
        pytest.param(
            {**gang("16"), "status": {"phase": "Running"}}, {"all_nodes": [node("8")]}, id="it has started"
        ),
    ],
)
def test_a_gang_that_lacks_nothing(found: Object, known: dict[str, Any]) -> None:
    assert causes_of_gang(found, **known) == []
