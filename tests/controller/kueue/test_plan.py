"""The next step for a job and its Workload, and the statuses that steps write."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from api.workloads import PRIORITY_CLASS, Workload
from controller.kueue import plan, pod_sets
from controller.kueue.plan import Action
from controller.kueue.pod_sets import QueuedJob
from tests.support.builders import NOON, UID
from tests.support.queued_jobs import queued_job, workload_of

ADMITTED = ("QuotaReserved", "Admitted")
LARGER = {"Worker": {"replicas": 3}}


def running(*conditions: str, **fields: Any) -> QueuedJob:
    """A job that has been started with what was admitted."""
    job = queued_job(**fields)
    change = pod_sets.admit(job, workload_of(job, *ADMITTED), {"spot": {}})
    templates = change["spec"]["pytorchReplicaSpecs"]
    roles = {
        role: {"template": {**templates[role]["template"], "spec": _template_spec(job, role)}}
        for role in templates
    }
    return queued_job(suspend=False, conditions=conditions, **{**fields, "roles": _merged(fields, roles)})


def _template_spec(job: QueuedJob, role: str) -> Any:
    return next(own.template["spec"] for own in job.roles if own.key == role)


def _merged(fields: dict[str, Any], roles: dict[str, Any]) -> dict[str, Any]:
    return {role: {**(fields.get("roles") or {}).get(role, {}), **own} for role, own in roles.items()}


SAME = queued_job()
CASES: dict[str, tuple[QueuedJob | None, list[Workload], Action | None, bool]] = {
    "a job without a queue is left alone": (queued_job(queue=""), [], None, False),
    "a new job is suspended first": (queued_job(suspend=None), [], Action.SUSPEND, False),
    "a suspended job gets a Workload when its pods are gone": (SAME, [], Action.CREATE, True),
    "a finished job gets none": (queued_job(conditions=("Failed",)), [], None, False),
    "a job waits for its admission": (SAME, [workload_of(SAME)], None, False),
    "a job waits for admission checks": (SAME, [workload_of(SAME, "QuotaReserved")], None, False),
    "an admitted job starts": (SAME, [workload_of(SAME, *ADMITTED)], Action.START, False),
    "a started job runs": (running(), [workload_of(SAME, *ADMITTED)], None, False),
    "a job that runs without an admission is suspended": (
        running(),
        [workload_of(SAME)],
        Action.SUSPEND,
        False,
    ),
    "an evicted job is suspended": (
        running(),
        [workload_of(SAME, *ADMITTED, "Evicted")],
        Action.SUSPEND,
        False,
    ),
    "a suspended one returns its quota after its pods": (
        SAME,
        [workload_of(SAME, *ADMITTED, "Evicted")],
        Action.RELEASE,
        True,
    ),
    "and then waits": (SAME, [workload_of(SAME, "Evicted")], None, False),
    "a finished job finishes its Workload after its pods": (
        running("Succeeded"),
        [workload_of(SAME, *ADMITTED)],
        Action.FINISH,
        True,
    ),
    "so does one that was evicted meanwhile": (
        running("Succeeded"),
        [workload_of(SAME, *ADMITTED, "Evicted")],
        Action.FINISH,
        True,
    ),
    "a finished Workload loses its finalizer": (
        running("Succeeded"),
        [workload_of(SAME, *ADMITTED, "Finished")],
        Action.REMOVE_FINALIZER,
        False,
    ),
    "and is then left alone": (
        running("Succeeded"),
        [workload_of(SAME, *ADMITTED, "Finished", finalizers=("other",))],
        None,
        False,
    ),
    "a job whose Workload others have finished is suspended": (
        running(),
        [workload_of(SAME, *ADMITTED, "Finished")],
        Action.SUSPEND,
        False,
    ),
    "a job that could not start is queued again once it has changed": (
        queued_job(roles=LARGER),
        [workload_of(SAME, "Finished", finalizers=())],
        Action.DELETE,
        True,
    ),
    "a job whose Workload is being deleted is suspended": (
        running(),
        [workload_of(SAME, *ADMITTED, deleting=True)],
        Action.SUSPEND,
        False,
    ),
    "and the Workload goes after the pods": (
        SAME,
        [workload_of(SAME, *ADMITTED, deleting=True)],
        Action.REMOVE_FINALIZER,
        True,
    ),
    "so does the Workload of a deleted job": (
        None,
        [workload_of(SAME, *ADMITTED, deleting=True)],
        Action.REMOVE_FINALIZER,
        True,
    ),
    "and that of an earlier job of the name": (
        SAME,
        [workload_of(SAME, *ADMITTED, deleting=True, owner_uid="earlier")],
        Action.REMOVE_FINALIZER,
        True,
    ),
    "the Workload of a deleted job stays until the garbage collector deletes it": (
        None,
        [workload_of(SAME, *ADMITTED)],
        None,
        False,
    ),
    "a pending job that changes updates its Workload": (
        queued_job(roles=LARGER),
        [workload_of(SAME)],
        Action.UPDATE,
        False,
    ),
    "a pending job that changes its queue updates its Workload": (
        queued_job(queue="other"),
        [workload_of(SAME)],
        Action.UPDATE,
        False,
    ),
    "a pending job that changes its priority class updates its Workload": (
        queued_job(labels={PRIORITY_CLASS: "high"}),
        [workload_of(SAME)],
        Action.UPDATE,
        False,
    ),
    "a pending job that gets a maximum time updates its Workload": (
        queued_job(labels={"kueue.x-k8s.io/max-exec-time-seconds": "60"}),
        [workload_of(SAME)],
        Action.UPDATE,
        False,
    ),
    "Kueue's own pending Workload becomes ours": (
        SAME,
        [workload_of(SAME, fingerprint="")],
        Action.UPDATE,
        False,
    ),
    "Kueue's own admitted Workload starts the job": (
        SAME,
        [workload_of(SAME, *ADMITTED, fingerprint="")],
        Action.START,
        False,
    ),
    "a job that changes between admission and start is queued again": (
        queued_job(roles=LARGER),
        [workload_of(SAME, *ADMITTED)],
        Action.DELETE,
        True,
    ),
    "a running job that grows is suspended": (
        running(roles=LARGER),
        [workload_of(SAME, *ADMITTED)],
        Action.SUSPEND,
        False,
    ),
    "a running job whose templates were replaced gets its admission again": (
        queued_job(suspend=False),
        [workload_of(SAME, *ADMITTED)],
        Action.START,
        False,
    ),
    "a pending job that leaves its queue has no Workload": (
        queued_job(queue=""),
        [workload_of(SAME)],
        Action.DELETE,
        True,
    ),
    "a running job that no longer names a queue keeps its quota": (
        running(queue="", labels={}),
        [workload_of(SAME, *ADMITTED)],
        None,
        False,
    ),
    "a running job reports that its pods are ready": (
        running("Running"),
        [workload_of(SAME, *ADMITTED)],
        Action.REPORT,
        False,
    ),
    "a running job that names another priority class changes its priority": (
        running(labels={PRIORITY_CLASS: "high"}),
        [
            workload_of(
                SAME,
                *ADMITTED,
                priority={
                    "priority": 1,
                    "priorityClassRef": {
                        "group": "kueue.x-k8s.io",
                        "kind": "WorkloadPriorityClass",
                        "name": "low",
                    },
                },
            )
        ],
        Action.REPRIORITIZE,
        False,
    ),
    "one that had none keeps its priority, because Kueue refuses the change": (
        running(labels={PRIORITY_CLASS: "high"}),
        [workload_of(SAME, *ADMITTED)],
        None,
        False,
    ),
}


@pytest.mark.parametrize(("job", "found", "action", "after_pods"), CASES.values(), ids=CASES)
def test_the_next_step(
    job: QueuedJob | None, found: list[Workload], action: Action | None, after_pods: bool
) -> None:
    step = plan.decide(job, found, NOON)

    assert (step and step.action) is action
    assert (step is not None and step.after_pods) is after_pods


def test_the_workload_with_quota_counts() -> None:
    pending = msgspec.structs.replace(workload_of(SAME), name="a")

    assert plan.own_workload(SAME, [pending, workload_of(SAME, *ADMITTED)]) == workload_of(SAME, *ADMITTED)


HELD: dict[str, tuple[QueuedJob, Workload | None, bool, bool]] = {
    "without a queue it may run": (queued_job(queue="", suspend=None), None, True, False),
    "without a Workload it may not": (queued_job(suspend=None), None, True, True),
    "without quota it may not": (running(), workload_of(SAME), True, True),
    "with reserved quota and pending checks it may not": (
        running(),
        workload_of(SAME, "QuotaReserved"),
        True,
        True,
    ),
    "with quota it may": (running(), workload_of(SAME, *ADMITTED), True, False),
    "with quota for fewer pods it may not": (running(roles=LARGER), workload_of(SAME, *ADMITTED), True, True),
    "with a finished Workload it may not": (running(), workload_of(SAME, *ADMITTED, "Finished"), True, True),
    "an evicted one may not": (
        running(),
        workload_of(SAME, *ADMITTED, "Evicted"),
        True,
        True,
    ),
    "one whose Workload is being deleted may not": (
        running(),
        workload_of(SAME, *ADMITTED, deleting=True),
        True,
        True,
    ),
    "a finished one is not held": (running("Succeeded"), None, True, False),
    "that of MultiKueue is not held": (
        queued_job(suspend=False, managedBy="kueue.x-k8s.io/multikueue"),
        None,
        True,
        False,
    ),
    "without knowledge a started one continues": (running(), None, False, False),
    "without knowledge a new one waits": (queued_job(suspend=None), None, False, True),
}


@pytest.mark.parametrize(("job", "workload", "is_known", "is_held"), HELD.values(), ids=HELD)
def test_a_job_is_held(job: QueuedJob, workload: Workload | None, is_known: bool, is_held: bool) -> None:
    assert plan.is_held(job, workload, is_known=is_known) is is_held


def conditions_of(status: dict[str, Any]) -> dict[str, str]:
    return {own["type"]: f"{own['status']} {own['reason']}" for own in status["conditions"]}


def evicted_by(reason: str) -> dict[str, str]:
    return {
        "type": "Evicted",
        "status": "True",
        "reason": reason,
        "message": "why",
        "lastTransitionTime": "2026-01-01T11:59:00Z",
    }


@pytest.mark.parametrize(("reason", "requeued"), [("Preempted", "True"), ("PodsReadyTimeout", "False")])
def test_a_release_takes_the_admission_away_and_says_when_the_workload_is_queued_again(
    reason: str, requeued: str
) -> None:
    reclaimable = [{"name": "worker", "count": 1}]
    fields: dict[str, Any] = {"accumulatedPastExecutionTimeSeconds": 40, "reclaimablePods": reclaimable}
    workload = workload_of(SAME, *ADMITTED, evicted_by(reason), **fields)

    status = plan.release(workload, NOON)

    assert status["admission"] is None
    assert status["reclaimablePods"] == [], "pods that had succeeded run again"
    assert status["accumulatedPastExecutionTimeSeconds"] == 40 + 3600
    assert conditions_of(status) == {
        "Evicted": f"True {reason}",
        "Requeued": f"{requeued} {reason}",
        "QuotaReserved": "False Pending",
        "Admitted": "False NoReservation",
    }
    messages = {own["type"]: own["message"] for own in status["conditions"]}
    assert messages["QuotaReserved"] == "why"


def test_a_condition_that_keeps_its_status_keeps_its_time() -> None:
    workload = workload_of(SAME, *ADMITTED)

    status = plan.finish(workload, "Succeeded", "done", NOON)
    again = plan.finish(workload_of(SAME, *status["conditions"]), "Failed", "no", NOON + timedelta(hours=1))

    (first,) = (own for own in status["conditions"] if own["type"] == "Finished")
    (second,) = (own for own in again["conditions"] if own["type"] == "Finished")
    assert first["lastTransitionTime"] == second["lastTransitionTime"] == "2026-01-01T12:00:00Z"
    assert second["reason"] == "Failed"


READY = {"type": "PodsReady", "status": "True", "reason": "Started", "message": "", "lastTransitionTime": ""}
RECOVERING = {**READY, "status": "False", "reason": "WaitForRecovery"}


@pytest.mark.parametrize(
    ("job_conditions", "before", "after"),
    [
        pytest.param((), None, None, id="pods that were never ready"),
        pytest.param(("Running",), None, "True Started", id="the first time"),
        pytest.param(("Running",), READY, None, id="no change"),
        pytest.param((), READY, "False WaitForRecovery", id="pods that fail"),
        pytest.param(("Running",), RECOVERING, "True Recovered", id="pods that run again"),
    ],
)
def test_a_report_says_whether_the_pods_are_ready(
    job_conditions: tuple[str, ...], before: dict[str, str] | None, after: str | None
) -> None:
    workload = workload_of(SAME, *ADMITTED, *([before] if before else []))

    change = plan.report(running(*job_conditions), workload, NOON)

    assert (conditions_of(change)["PodsReady"] if change else None) == after


@pytest.mark.parametrize(
    ("succeeded", "before", "policy", "expected"),
    [
        pytest.param(0, 0, {}, None, id="none has ended"),
        pytest.param(1, 0, {}, 1, id="one has ended"),
        pytest.param(5, 0, {}, 2, id="never more than there are"),
        pytest.param(1, 2, {}, None, id="never fewer than before"),
        pytest.param(
            1, 0, {"failurePolicy": {"rules": []}}, None, id="with a failure policy they may run again"
        ),
    ],
)
def test_a_report_counts_the_pods_that_need_no_quota_any_more(
    succeeded: int, before: int, policy: dict[str, Any], expected: int | None
) -> None:
    reclaimable = [{"name": "worker", "count": before}] if before else []
    workload = workload_of(SAME, *ADMITTED, reclaimablePods=reclaimable)
    job = running(replica_statuses={"Worker": {"succeeded": succeeded}}, **policy)

    change = plan.report(job, workload, NOON)

    assert change.get("reclaimablePods") == (expected and [{"name": "worker", "count": expected}])


def test_the_pods_from_before_a_suspension_are_not_reported() -> None:
    job = running("Suspended", replica_statuses={"Worker": {"succeeded": 1}})

    assert plan.report(job, workload_of(SAME, *ADMITTED), NOON) == {}


def test_a_malformed_job_is_reported() -> None:
    job = queued_job(roles={"Worker": {"template": {"spec": None}}})

    with pytest.raises(
        pod_sets.Unqueueable, match=r"spec.pytorchReplicaSpecs.Worker.template.spec: must be set"
    ):
        _ = job.pod_sets

    assert job.row.uid == UID


def test_a_workload_that_was_recovering_starts_anew_when_it_is_admitted_again() -> None:
    """Kueue 0.19, workload_controller.go, admittedNotReadyWorkload: its recoveryTimeout counts from a WaitForRecovery on."""
    job = queued_job()
    at = "2026-01-01T11:00:00Z"
    recovering = {
        "type": "PodsReady",
        "status": "False",
        "reason": "WaitForRecovery",
        "message": "",
        "lastTransitionTime": at,
    }
    evicted = {
        "type": "Evicted",
        "status": "True",
        "reason": "Preempted",
        "message": "",
        "lastTransitionTime": at,
    }
    workload = workload_of(job, "QuotaReserved", "Admitted", recovering, evicted)

    status = plan.release(workload, NOON)

    (ready,) = (own for own in status["conditions"] if own["type"] == "PodsReady")
    assert (ready["status"], ready["reason"]) == ("False", "WaitForStart")


@pytest.mark.parametrize("conditions", [(), ("PodsReady",)])
def test_other_workloads_are_released_as_before(conditions: tuple[str, ...]) -> None:
    evicted = {
        "type": "Evicted",
        "status": "True",
        "reason": "Preempted",
        "message": "",
        "lastTransitionTime": "2026-01-01T11:00:00Z",
    }
    workload = workload_of(queued_job(), "QuotaReserved", "Admitted", evicted, *conditions)

    status = plan.release(workload, NOON)

    found = [(own["status"], own["reason"]) for own in status["conditions"] if own["type"] == "PodsReady"]
    assert found == [("False", "WaitForStart")] * len(conditions)
