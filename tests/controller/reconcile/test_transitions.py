"""Which steps of a job's life a written status contains."""

from datetime import timedelta

import pytest

from api.children import Exit
from api.job import Job, JobCondition, JobStatus
from controller.domain import Count, Event, Plan, Severity
from controller.kind.idle import IdleReason
from controller.kind.status_builder import StatusBuilder
from controller.kinds.mpi.hosts import init_failures_message
from controller.kinds.mpi.launcher_job import failure_reason
from controller.kinds.pytorch import PYTORCH
from controller.policy import limits
from controller.reconcile.transitions import Transition, transitions
from tests.support.builders import NOON, pod

KIND = PYTORCH.resource.kind


def builder(status: JobStatus | None = None) -> StatusBuilder:
    job = Job.model_validate({"metadata": {"name": "train"}})
    return StatusBuilder(PYTORCH, job.model_copy(update={"status": status}), NOON + timedelta(minutes=1))


def steps(before: JobStatus | None, plan: Plan) -> list[str]:
    return [transition.step for transition in transitions(KIND, before, plan)]


def after(*steps: str) -> JobStatus:
    """The status of a job after these steps."""
    made = builder()
    made.created()
    for step in steps:
        method = getattr(made, step)
        method() if step in {"suspended", "resumed"} else method("because")
    return made.status


@pytest.mark.parametrize(
    ("before", "step", "logged"),
    [
        pytest.param(after(), "running", "job running", id="running"),
        pytest.param(after("running"), "restarting", "job restarting", id="restarting"),
        pytest.param(after("running", "restarting"), "running", "job running", id="running again"),
        pytest.param(after("running"), "suspended", "job suspended", id="suspended"),
        pytest.param(after("suspended"), "resumed", "job resumed", id="resumed"),
        pytest.param(after("running"), "succeeded", "job succeeded", id="succeeded"),
        pytest.param(after("running"), "failed", "job failed", id="failed"),
        pytest.param(after(), "blocked", "job blocked", id="blocked"),
        pytest.param(after("running", "suspended", "resumed"), "blocked", "job blocked", id="blocked later"),
        pytest.param(after(), "waits_for", "job waiting for pods", id="waiting for pods"),
        pytest.param(after(), "waits_for_start", "job waiting for gang", id="waiting for the gang"),
        pytest.param(after(), "unreadable", "job blocked", id="unreadable"),
        pytest.param(after("running"), "unreadable", "job blocked", id="unreadable while running"),
        pytest.param(
            after("running", "restarting"), "unreadable", "job blocked", id="unreadable while restarting"
        ),
        pytest.param(after("suspended"), "unreadable", "job blocked", id="unreadable while suspended"),
    ],
)
def test_each_condition_is_one_step(before: JobStatus, step: str, logged: str) -> None:
    made = builder(before)
    method = getattr(made, step)
    method() if step in {"suspended", "resumed"} else method("because")

    assert steps(before, made.plan()) == [logged]
    assert steps(made.status, builder(made.status).plan()) == []


@pytest.mark.parametrize("reason", IdleReason)
@pytest.mark.parametrize("after_resume", [False, True], ids=["before it ran", "after it ran"])
def test_each_reason_not_to_run_is_a_step(reason: IdleReason, after_resume: bool) -> None:
    suffix = reason.after_resume if after_resume else reason.value
    condition = JobCondition(type="Running", status="False", reason=f"{KIND}{suffix}")

    assert len(steps(None, Plan(status=JobStatus(conditions=[condition])))) == 1


END = Exit("main", 137, "OOMKilled", "loading\ntoken: hunter2")


@pytest.mark.parametrize(
    ("message", "logged"),
    [
        pytest.param(
            f"Job train has failed; last failure: {limits.last_failure([pod(exits=(END,))])}",
            "Job train has failed; last failure: train-worker-0: container main ended with exit code 137, killed by SIGKILL (OOMKilled)",
            id="a limit",
        ),
        pytest.param(
            failure_reason("BackoffLimitExceeded", "Job has reached it", [pod(phase="Failed", exits=(END,))])[
                1
            ],
            "Job has reached it: container main ended with exit code 137, killed by SIGKILL (OOMKilled)",
            id="a launcher",
        ),
        pytest.param(
            init_failures_message(
                [pod(phase="Pending", exits=(Exit("get", 1, message="hunter2", init=True),))]
            ),
            "Pods do not start: init container get of train-worker-0 exited with code 1",
            id="an init container",
        ),
    ],
)
def test_the_output_of_containers_is_not_logged(message: str, logged: str) -> None:
    made = builder(after("running"))
    made.failed(message)
    text = "Error pod train-worker-0 container main exitCode: 137 terminated message: hunter2"
    made.record_event(Severity.WARNING, "OOMKilled", text, similar="main")

    (failed,) = transitions(KIND, after("running"), made.plan())

    assert failed.message == logged
    assert failed.pods == "Error pod train-worker-0 container main exitCode: 137 terminated message"


def test_the_first_status_can_contain_several_steps() -> None:
    made = builder()
    made.created()
    made.running("PyTorchJob train is running.")
    made.succeeded("PyTorchJob train successfully completed.")

    assert transitions(KIND, None, made.plan()) == (
        Transition("job created", "PyTorchJobCreated", "PyTorchJob train is created."),
        Transition("job succeeded", "PyTorchJobSucceeded", "PyTorchJob train successfully completed."),
    )


def test_a_restart_names_the_pods_that_caused_it() -> None:
    made = builder(after("running"))
    made.restarting("job train is restarting because Worker replica(s) failed.")
    made.record_event(Severity.NORMAL, "Other", "about the job")
    for name, code in (("train-worker-0", 137), ("train-worker-1", 1)):
        text = f"Pod: default.{name} exited with code {code}"
        made.record_event(Severity.NORMAL, "ExitedWithCode", text, similar="pytorch")

    (restart,) = transitions(KIND, after("running"), made.plan())

    assert restart.pods == "Pod: default.train-worker-0 exited with code 137 (and 1 more)"


def test_another_restart_while_the_job_is_restarting_is_a_step() -> None:
    before = after("running", "restarting")
    again = Plan(status=before, counts=(Count.RESTARTED,))

    assert steps(before, again) == ["job restarting"]
    assert steps(before, Plan(status=before)) == []


def test_another_message_is_no_step() -> None:
    before = after("blocked")
    made = builder(before)
    made.blocked("because of something else")

    assert made.status != before
    assert steps(before, made.plan()) == []


def test_a_plan_without_a_status_has_no_steps() -> None:
    assert steps(after(), Plan(events=(Event(Severity.NORMAL, "A", "b"),))) == []


def test_conditions_of_other_controllers_are_no_steps() -> None:
    status = JobStatus.model_validate({"conditions": [{"type": "Admitted", "status": "True"}]})

    assert steps(None, Plan(status=status)) == []
