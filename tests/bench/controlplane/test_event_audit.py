"""Conditions and events of stored objects."""

from typing import Any

import pytest

from api.services import ServiceMode
from bench.controlplane.event_audit import audit, created_children
from bench.controlplane.scenario import Jobs

QUICK = Jobs(jobs=2, replicas=2, quick=True)


def job(*conditions: str, name: str = "a") -> dict[str, Any]:
    shown = [{"type": condition, "status": "False"} for condition in conditions]
    return {"metadata": {"name": name}, "status": {"conditions": shown}}


def event(reason: str, message: str = "", job: str = "a") -> dict[str, Any]:
    return {"reason": reason, "message": message, "involvedObject": {"name": job}}


DONE = job("Created", "Running", "Succeeded")
PODS = event("SuccessfulCreatePod", "Created 2 pods: a, b")
SERVICES = [event("SuccessfulCreateService", f"Created service: {name}") for name in "ab"]
END = event("PyTorchJobSucceeded", "PyTorchJob bench/a successfully completed.")


def test_nothing_is_missing() -> None:
    events = audit(QUICK, [DONE, DONE], [PODS, *SERVICES, END] * 2, running_jobs=2)

    assert (events.jobs_without_all_conditions, events.jobs_never_observed_running) == (0, 0)
    assert (events.children_with_event, events.ends_with_event, events.events_missing) == (8, 2, 0)
    assert events.events == 8


def test_a_job_that_was_never_running_is_counted() -> None:
    events = audit(QUICK, [DONE, job("Created", "Succeeded")], [], running_jobs=1)

    assert (events.jobs_without_all_conditions, events.jobs_never_observed_running) == (1, 1)


def test_a_missing_job_and_a_job_without_status_have_missing_conditions() -> None:
    assert audit(QUICK, [DONE], [], running_jobs=0).jobs_without_all_conditions == 1
    assert audit(QUICK, [DONE, job()], [], running_jobs=0).jobs_without_all_conditions == 1


def test_events_of_an_earlier_job_do_not_count() -> None:
    late = event("SuccessfulCreatePod", "Created pod: warm-0000-master-0", job="warm-0000")

    events = audit(QUICK, [DONE, DONE], [late], running_jobs=2)

    assert (events.children_with_event, events.events) == (0, 0)


@pytest.mark.parametrize(
    ("events", "missing"),
    [
        pytest.param([PODS, *SERVICES, END, PODS, *SERVICES], 1, id="the end of a job"),
        pytest.param([PODS, *SERVICES, END, PODS, SERVICES[0], END], 1, id="a child"),
        pytest.param([PODS, *SERVICES, END, *SERVICES, END], 2, id="children of a summary event"),
        pytest.param([], 10, id="all"),
    ],
)
def test_children_and_ends_without_an_event_are_missing(events: list[dict[str, Any]], missing: int) -> None:
    assert audit(QUICK, [DONE, DONE], events, running_jobs=2).events_missing == missing


def test_with_fewer_services_fewer_children_need_an_event() -> None:
    scenario = Jobs(jobs=1, replicas=2, service_mode=ServiceMode.PER_JOB)

    assert audit(scenario, [DONE], [PODS, SERVICES[0], END], running_jobs=1).events_missing == 0
    assert audit(scenario, [DONE], [PODS, END], running_jobs=1).events_missing == 1


@pytest.mark.parametrize(
    ("message", "children"),
    [
        ("Created pod: train-master-0", 1),
        ("Created service: train-master-0", 1),
        ("Created pod and service: train-master-0", 2),
        ("Created 139 services and 138 pods: train-worker-10, train-worker-11", 277),
        ("Created 138 pods: train-worker-11, train-worker-12", 138),
        ("Error creating: forbidden", 0),
    ],
)
def test_an_event_names_a_single_child_or_several(message: str, children: int) -> None:
    assert created_children(message) == children
