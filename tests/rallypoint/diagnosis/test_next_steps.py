"""What a diagnosis tells the user to do."""

from typing import Any

import pytest

from rallypoint.diagnosis import JobSnapshot, diagnose
from tests.support.snapshots import (
    CREATED,
    NOW,
    Object,
    at,
    container,
    ended,
    event,
    false,
    job,
    node,
    pod,
    true,
)


def first_step(*pods: Object, of: Object | None = None, **known: Any) -> str:
    return diagnose(JobSnapshot(of or job(CREATED), NOW, pods=pods, **known)).causes[0].next_step


def waiting(reason: str) -> Object:
    return pod(containerStatuses=[container(waiting={"reason": reason, "message": "why"})])


def unscheduled(message: str) -> Object:
    return pod(node="", conditions=[false("PodScheduled", reason="Unschedulable", message=message)])


@pytest.mark.parametrize(
    ("found", "step"),
    [
        pytest.param(waiting("ErrImagePull"), "correct the image or its imagePullSecrets", id="no image"),
        pytest.param(
            waiting("CreateContainerConfigError"), "create the ConfigMap or Secret", id="no configuration"
        ),
        pytest.param(waiting("Refused"), "correct the pod template, delete the job", id="local mode refuses"),
        pytest.param(waiting("RunContainerError"), "correct the pod template", id="no program"),
        pytest.param(
            unscheduled("1 node(s) had untolerated taint {a: b}"),
            "tolerations so that they match existing nodes",
            id="a taint",
        ),
        pytest.param(
            unscheduled("1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {a: b}"),
            "request less",
            id="too few GPUs beside a taint",
        ),
        pytest.param(
            unscheduled('persistentvolumeclaim "data" not found'),
            "create the PersistentVolumeClaim",
            id="no claim",
        ),
        pytest.param(
            unscheduled("pod has unbound immediate PersistentVolumeClaims"),
            "needs a StorageClass",
            id="an unbound claim",
        ),
        pytest.param(
            pod(node="", conditions=[]), "check that a scheduler with this name is running", id="no scheduler"
        ),
        pytest.param(
            pod("j-worker-0", "Failed", containerStatuses=[container(terminated=ended(3))]),
            "rallypoint logs j-worker-0 -c pytorch -n n",
            id="a failed pod",
        ),
        pytest.param(
            pod(
                "j-worker-0",
                "Running",
                containerStatuses=[
                    container(waiting={"reason": "CrashLoopBackOff"}, last=ended(3), restarts=1)
                ],
            ),
            "rallypoint logs j-worker-0 -c pytorch -n n --previous",
            id="a crash loop",
        ),
        pytest.param(
            pod(
                "j-worker-0",
                "Running",
                containerStatuses=[
                    container(
                        waiting={"reason": "CrashLoopBackOff"},
                        last=ended(128, reason="StartError"),
                        restarts=1,
                    )
                ],
            ),
            "correct the command of the container",
            id="a missing program",
        ),
        pytest.param(
            pod(
                "j-worker-0",
                "Failed",
                containerStatuses=[container(terminated=ended(137, reason="OOMKilled"))],
            ),
            "raise the container's memory limit",
            id="out of memory",
        ),
    ],
)
def test_the_next_step_for_a_pod(found: Object, step: str) -> None:
    assert step in first_step(found)


def test_the_next_step_for_a_lost_node() -> None:
    found = pod("j-worker-0", "Running", containerStatuses=[container(running={"startedAt": at(40)})])

    step = first_step(found, nodes=node("a", false("Ready", message="silent")))

    assert step == "wait for the node, or, if it is gone for good: kubectl delete node a"


@pytest.mark.parametrize(
    ("found", "step"),
    [
        pytest.param(
            job(CREATED, true("Suspended"), suspend=True),
            """to resume it: kubectl patch pytorchjob j -n n --type merge -p '{"spec":{"runPolicy":{"suspend":false}}}'""",
            id="suspended by a user",
        ),
        pytest.param(
            job(CREATED, true("Failed", message="no luck")),
            (
                "fix the cause, delete the job (kubectl delete pytorchjob j -n n) and create it again; "
                "a failed job is never restarted"
            ),
            id="failed",
        ),
        pytest.param(
            job(CREATED, managedBy="example.com/other"),
            "to run it here, create it again without managedBy",
            id="of another manager",
        ),
    ],
)
def test_the_next_step_for_a_job(found: Object, step: str) -> None:
    assert first_step(of=found) == step


@pytest.mark.parametrize(
    ("message", "step"),
    [
        pytest.param(
            'Error creating: pods "j-worker-0" already exists',
            "delete the object with that name, or create the job under another name",
            id="the name is taken",
        ),
        pytest.param("exceeded quota", "fix what the message names", id="a quota"),
    ],
)
def test_the_next_step_for_a_pod_that_cannot_be_created(message: str, step: str) -> None:
    refused = event(job(), "FailedCreatePod", message, kind="PyTorchJob")

    assert first_step(events=[refused]).startswith(step)


def test_waiting_needs_no_step() -> None:
    assert first_step(pod(containerStatuses=[])) == ""


@pytest.mark.parametrize(
    ("of", "pods", "step"),
    [
        pytest.param(
            job(CREATED, true("Failed", message="no luck")),
            (),
            "fix the cause and create the job again",
            id="failed",
        ),
        pytest.param(job(CREATED, true("Suspended"), suspend=True), (), "", id="suspended"),
        pytest.param(
            job(CREATED),
            (waiting("ErrImagePull"),),
            "correct the image or its imagePullSecrets and create the job again",
            id="no image",
        ),
        pytest.param(
            job(CREATED),
            (unscheduled("1 Insufficient nvidia.com/gpu"),),
            "request less, free what other pods hold, or add nodes",
            id="a step that does not need the job",
        ),
    ],
)
def test_the_next_step_for_a_job_that_has_been_deleted(
    of: Object, pods: tuple[Object, ...], step: str
) -> None:
    assert first_step(*pods, of=of, is_deleted=True) == step
