"""Reconciles on the embedded API server: log lines name their job and tell its life."""

from collections.abc import Mapping, Sequence
from typing import Any

from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from api.v1.pytorchjob import RESOURCE
from controller.kinds.pytorch import PYTORCH
from tests.support.builders import template
from tests.support.faults import Refuse, Reset, Rule
from tests.support.harness import NAMESPACE, fake_clock, running_controller, start_harness


async def test_log_lines_of_a_reconcile_name_the_job() -> None:
    rule = Rule(Refuse(500, "InternalError"), verb="create", plural="pods", containing=b"broken-", times=2)
    with capture_logs([merge_contextvars]) as logs:
        async with start_harness(rule) as harness, running_controller(harness):
            await harness.submit("sound")
            await harness.submit("broken")
            await harness.settle(10)
            broken = await harness.job("broken")

    failed = [line for line in logs if line["event"] == "reconcile failed"]
    assert failed
    assert all(fields(line) == fields_of(broken) for line in failed)
    others = [line for line in logs if line["event"] != "reconcile failed" and "controller" not in line]
    assert others
    assert not [line for line in others if "uid" in line], "lines outside of a reconcile name no job"


def fields_of(job: dict[str, Any]) -> dict[str, str]:
    """The fields by which a line names a job."""
    metadata = job["metadata"]
    return {
        "controller": PYTORCH.controller_name,
        "kind": RESOURCE.kind,
        "namespace": NAMESPACE,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def fields(line: Mapping[str, Any]) -> dict[str, Any]:
    return {field: line[field] for field in ("controller", "kind", "namespace", "name", "uid")}


def life(logs: Sequence[Mapping[str, Any]], name: str = "train") -> list[tuple[str, str]]:
    """The lines at info about the life of a job: message and reason."""
    return [
        (line["event"], line.get("reason", "").removeprefix(RESOURCE.kind))
        for line in logs
        if line["log_level"] == "info" and line.get("name") == name and line["event"].startswith("job ")
    ]


async def test_the_log_tells_the_whole_life_of_a_job() -> None:
    """Each step is one line at info, whatever becomes of the events."""
    with capture_logs([merge_contextvars]) as logs, fake_clock():
        async with start_harness() as harness, running_controller(harness):
            job = await harness.submit(runPolicy={"suspend": True, "ttlSecondsAfterFinished": 100})
            await harness.settle()
            await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": False}}})
            await harness.settle()
            await harness.set_phase("Running")
            await harness.settle()
            await harness.set_phase("Failed", "train-worker-0", code=137)
            await harness.settle(10)
            await harness.set_phase("Running", "train-worker-0")
            await harness.settle()
            await harness.set_phase("Succeeded", code=0)
            await harness.settle(200)

    assert life(logs) == [
        ("job created", "Created"),
        ("job suspended", "Suspended"),
        ("job resumed", "Resumed"),
        ("job running", "Running"),
        ("job restarting", "Restarting"),
        ("job running", "Running"),
        ("job succeeded", "Succeeded"),
        ("job expired", ""),
        ("job deleted", ""),
    ]
    (restart,) = (line for line in logs if line["event"] == "job restarting")
    assert restart["pods"] == "Pod: default.train-worker-0 exited with code 137"
    assert all(fields(line) == fields_of(job) for line in logs if line["event"].startswith("job "))


async def test_an_invalid_change_of_a_running_job_is_a_line_once() -> None:
    with capture_logs([merge_contextvars]) as logs:
        async with start_harness() as harness, running_controller(harness):
            await harness.submit()
            await harness.settle()
            await harness.set_phase("Running")
            await harness.settle()
            worker = {"replicas": 1, "template": template("main")}
            await harness.change(RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": {"Worker": worker}}})
            await harness.settle(10)
            await harness.change(RESOURCE, "train", {"metadata": {"labels": {"a": "b"}}})
            await harness.settle(10)

    assert life(logs) == [
        ("job created", "Created"),
        ("job running", "Running"),
        ("job warning", "FailedValidation"),
    ]
    (warning,) = (line for line in logs if line["event"] == "job warning")
    assert warning["message"].startswith("the changed spec has no effect because it is invalid")


async def test_a_warning_in_the_reconcile_of_a_step_is_a_line() -> None:
    """Its event is recorded only once, so no later reconcile can log it."""
    pod_template = template()
    pod_template["spec"]["restartPolicy"] = "Always"
    with capture_logs([merge_contextvars]) as logs:
        async with start_harness() as harness, running_controller(harness):
            await harness.submit(pytorchReplicaSpecs={"Master": {"replicas": 1, "template": pod_template}})
            await harness.settle()

    assert [line["event"] for line in logs if line.get("name") == "train"] == ["job created", "job warning"]


async def test_a_lost_response_of_a_status_loses_no_line() -> None:
    rule = Rule(Reset(committed=True), verb="patch", plural=RESOURCE.plural, subresource="status", times=1)
    with capture_logs([merge_contextvars]) as logs:
        async with start_harness(rule) as harness, running_controller(harness):
            await harness.submit()
            await harness.settle(10)

    assert rule.met == 1
    assert life(logs) == [("job created", "Created")]


async def test_the_deletion_of_a_job_of_another_manager_is_no_line() -> None:
    with capture_logs([merge_contextvars]) as logs:
        async with start_harness() as harness, running_controller(harness):
            await harness.submit(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
            await harness.settle()
            await harness.delete(RESOURCE, "train")
            await harness.settle()

    assert life(logs) == []


async def test_the_start_of_a_controller_repeats_no_line() -> None:
    async with start_harness() as harness:
        async with running_controller(harness):
            await harness.submit()
            await harness.settle()
            await harness.set_phase("Running")
            await harness.settle()
        with capture_logs([merge_contextvars]) as logs:
            async with running_controller(harness):
                await harness.settle()

    assert life(logs) == []


async def test_a_refused_call_is_a_line_for_each_step_of_the_back_off() -> None:
    rule = Rule(Refuse(403, "Forbidden", "exceeded quota"), verb="create", plural="pods")
    with capture_logs([merge_contextvars]) as logs:
        async with start_harness(rule) as harness, running_controller(harness):
            await harness.submit()
            await harness.settle(10)
            tries = rule.met

    failed = [line for line in logs if line["event"] == "reconcile failed"]
    lines = [(round(line["pause_seconds"], 3), line.get("repeats", 0)) for line in failed]
    assert (tries, lines) == (12, [(0.005, 0), (1.28, 7), (2.56, 0), (5.12, 0)])
    assert life(logs) == [("job created", "Created"), ("job blocked", "Blocked")]
