"""Jobs with a queue label that Kueue does not act on."""

from typing import Any

import pytest

from rallypoint.diagnosis import JobSnapshot, diagnose
from rallypoint.diagnosis.kueue import management_step
from tests.support.snapshots import CREATED, NOW, Object, job, pod, true

QUEUE = {"kueue.x-k8s.io/queue-name": "research"}


def queued(
    *conditions: Object, labels: dict[str, str] | None = None, pods: Any = None, **fields: Any
) -> Object:
    found = job(CREATED, *conditions, **fields)
    found["metadata"]["labels"] = QUEUE if labels is None else labels
    if pods:
        found["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = {"metadata": {"labels": pods}}
    return found


def notes(found: Object, **known: Any) -> list[str]:
    causes = diagnose(JobSnapshot(found, NOW, **known)).causes
    return [cause.text for cause in causes if not cause.blocks and "queue" in cause.text]


def test_a_job_that_runs_outside_its_queue() -> None:
    (note,) = (cause for cause in diagnose(JobSnapshot(queued(), NOW)).causes if "queue" in cause.text)

    assert note.text == (
        "names the queue research, but Kueue does not manage PyTorchJobs here: the job runs outside any quota"
    )
    assert note.next_step == (
        "enable the kind in Kueue's configuration (integrations.frameworks: kubeflow.org/pytorchjob), "
        "or let the operator queue it (--kueue): see https://github.com/rallypoint-dev/rallypoint/blob/main/docs/how-to/kueue.md"
    )
    assert not note.blocks


def test_pods_that_kueue_queues_one_by_one() -> None:
    found = pod()
    found["metadata"]["labels"] = {"kueue.x-k8s.io/managed": "true"}

    (note,) = notes(queued(), pods=[found])

    assert "Kueue does not manage PyTorchJobs here: it queues the pods one by one" in note


def test_a_cluster_without_kueue() -> None:
    assert notes(queued(), is_kueue_served=False) == [
        "names the queue research, but this cluster has no Kueue: nothing limits the job"
    ]


@pytest.mark.parametrize(
    ("found", "known"),
    [
        pytest.param(queued(labels={}), {}, id="no queue"),
        pytest.param(queued(), {"workloads": [{"metadata": {"name": "w"}}]}, id="a Workload"),
        pytest.param(
            queued(pods={"kueue.x-k8s.io/podset": "worker"}), {"workloads_known": False}, id="admitted"
        ),
        pytest.param(queued(true("Suspended"), suspend=True), {}, id="suspended"),
        pytest.param(queued(age=5), {}, id="new"),
        pytest.param(queued(managedBy="kueue.x-k8s.io/multikueue"), {}, id="of another cluster"),
        pytest.param(queued(true("Succeeded")), {}, id="finished"),
    ],
)
def test_a_job_without_a_warning(found: Object, known: dict[str, Any]) -> None:
    assert notes(found, **known) == []


def test_forbidden_workloads_are_no_evidence_for_a_job_that_kueue_has_not_labeled() -> None:
    """The pod templates of an admitted job have a label, which the job itself shows."""
    (note,) = notes(queued(), workloads_known=False)

    assert "Kueue seems not to manage PyTorchJobs here" in note


def test_a_suspended_job_in_a_cluster_without_kueue() -> None:
    found = queued(true("Suspended"), suspend=True)

    (cause,) = diagnose(JobSnapshot(found, NOW, is_kueue_served=False)).causes

    assert cause.text == (
        "suspended by its run policy (suspend: true); this cluster has no Kueue for its queue research"
    )
    assert cause.next_step.startswith("to resume it: kubectl patch")


@pytest.mark.parametrize(("is_known", "step"), [(True, "enable the kind"), (False, "")])
def test_a_suspended_job_without_a_workload(is_known: bool, step: str) -> None:
    found = queued(true("Suspended"), suspend=True)

    (cause,) = diagnose(JobSnapshot(found, NOW, workloads_known=is_known)).causes

    assert cause.next_step[: len("enable the kind")] == step


def test_kinds_that_the_operator_cannot_queue_are_left_to_kueue() -> None:
    assert "--kueue" in management_step("JAXJob")
    assert "--kueue" not in management_step("MPIJob")


def test_the_step_for_a_kind_without_an_integration_names_none() -> None:
    assert "kubeflow.org/" not in management_step("MXJob")
    assert "integrations.frameworks: pod" in management_step("MXJob")
