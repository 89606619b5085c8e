"""Why a PodGroup does not start: its queue, and what its scheduler reports."""

from typing import Any

import pytest

from rallypoint.diagnosis import JobSnapshot, diagnose
from tests.support.snapshots import CREATED, NOW, Object, at, event, false, job, pod, true

WAITS = false(
    "Running", reason="PyTorchJobWaitingForGang", message="queue research is full, says the operator"
)


def gang(phase: str = "Pending", queue: str = "research", **status: Any) -> Object:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "metadata": {"name": "j", "uid": "g", "creationTimestamp": at(60)},
        "spec": {
            "minMember": 2,
            "minResources": {"nvidia.com/gpu": "4"},
            **({"queue": queue} if queue else {}),
        },
        "status": {"phase": phase, **status},
    }


FULL = {
    "spec": {"capability": {"nvidia.com/gpu": "8"}},
    "status": {"state": "Open", "allocated": {"nvidia.com/gpu": "6"}},
}
OPEN = {"status": {"state": "Open"}}


def causes(*conditions: Object, gangs: Any = None, **known: Any) -> list[tuple[tuple[str, ...], str]]:
    found = diagnose(
        JobSnapshot(job(CREATED, *conditions), NOW, gangs=[gang()] if gangs is None else gangs, **known)
    )
    return [(cause.about, cause.text) for cause in found.causes if cause.blocks]


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        pytest.param({}, "queue research does not exist", id="missing"),
        pytest.param({"status": {"state": "Closed"}}, "queue research is Closed", id="closed"),
        pytest.param(FULL, "queue research is full (nvidia.com/gpu: needs 4, 6 of 8 are in use)", id="full"),
    ],
)
def test_the_queue_of_a_waiting_gang(queue: Object, text: str) -> None:
    assert causes(WAITS, queues={"research": queue})[0] == (
        ("j",),
        f"PodGroup Pending in queue research: {text}",
    )


def test_an_event_says_why_volcano_does_not_admit_a_group_to_an_open_queue() -> None:
    """Volcano writes no condition for a group without pods."""
    said = event(
        gang(), "Unschedulable", "resource in cluster is overused: overused cpu", "Normal", kind="PodGroup"
    )

    assert causes(queues={"research": OPEN}, events=[said])[0][1] == (
        "PodGroup Pending in queue research: resource in cluster is overused: overused cpu"
    )


def test_the_operator_knows_a_queue_that_the_user_may_not_read() -> None:
    assert causes(WAITS)[:2] == [
        (("j",), "PodGroup Pending in queue research"),
        ((), "queue research is full, says the operator"),
    ]


def test_the_operator_knows_a_group_that_the_user_may_not_read() -> None:
    assert causes(WAITS, gangs=[])[0] == ((), "queue research is full, says the operator")


def test_the_operator_knows_what_the_gang_of_a_restarting_job_waits_for() -> None:
    text = "queue research is full, says the operator"
    restarting = true("Restarting", reason="PyTorchJobWaitingForGangAfterResume", message=text)

    assert ((), text) in causes(restarting, gangs=[])


def test_a_coscheduled_group_has_no_queue() -> None:
    assert causes(gangs=[gang("Scheduling", queue="")])[0] == (("j",), "PodGroup Scheduling")


@pytest.mark.parametrize("phase", ["Failed", "Finished"])
@pytest.mark.parametrize(
    ("pod_phase", "expected"),
    [("Running", []), ("Pending", [(("j",), "PodGroup is starting again")])],
)
def test_the_last_phase_of_a_coscheduled_group_says_nothing_of_its_new_pods(
    phase: str, pod_phase: str, expected: list[Any]
) -> None:
    """The controller of scheduler-plugins leaves these phases as they are."""
    pods = [pod(f"j-worker-{index}", pod_phase) for index in range(2)]

    found = causes(gangs=[gang(phase, queue="")], pods=pods)

    assert [cause for cause in found if cause[0] == ("j",)] == expected


def native_gang(**status: Any) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "metadata": {"name": "j", "uid": "g", "creationTimestamp": at(60)},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        "status": status,
    }


def scheduled(status: str, message: str = "") -> Object:
    return {"type": "PodGroupInitiallyScheduled", "status": status, "message": message}


def test_a_group_of_kubernetes_says_why_it_is_not_scheduled() -> None:
    group = native_gang(conditions=[scheduled("False", "0/4 nodes are available")])

    assert causes(gangs=[group], pods=[])[0] == (("j",), "PodGroup is not scheduled: 0/4 nodes are available")


def test_a_scheduled_group_of_kubernetes_blocks_nothing() -> None:
    assert causes(gangs=[native_gang(conditions=[scheduled("True")])]) == causes(gangs=[])


def test_a_group_of_kubernetes_that_is_being_deleted_is_named() -> None:
    group = native_gang()
    group["metadata"]["deletionTimestamp"] = at(1)

    assert causes(gangs=[group])[0] == (("j",), "PodGroup is being deleted")
