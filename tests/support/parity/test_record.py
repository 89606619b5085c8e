"""The record of a case, from the operator's calls and the existing objects."""

from datetime import UTC, datetime
from typing import Any

import pytest

from api.meta import PODS, SERVICES, Resource
from rallypoint.testing.audit import Call
from tests.support.parity.case import Record
from tests.support.parity.record import record

JOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
Calls = list[Call]
NOW = datetime(2026, 5, 1, tzinfo=UTC)


def call(verb: str, name: str, code: int = 200, *, resource: str = "pods", **body: Any) -> Call:
    subresource = "status" if resource.endswith("/status") else ""
    resource = resource.removesuffix("/status")
    sent = {"metadata": {"name": name}, **body}
    return Call("operator", verb, resource, "", name, code, NOW, NOW, subresource, sent)


def create(name: str, code: int = 201, **body: Any) -> Call:
    return call("create", name, code, **body)


def recorded(calls: Calls, live: list[str] | None = None, before: list[str] | None = None) -> Record:
    pods = {name: {"metadata": {"name": name}} for name in live or ()}
    return record(
        before={"Pod": before or []},
        calls=calls,
        children={PODS: pods, SERVICES: {}},
        job={"status": {"startTime": "2026-01-02T03:04:05Z", "completionTime": None}},
        events=[],
        name="job",
        jobs=JOBS,
        words={},
    )


@pytest.mark.parametrize(
    ("calls", "before", "live", "creates", "deletes"),
    [
        pytest.param([create("a")], [], ["a"], ["a"], [], id="created"),
        pytest.param([create("a"), create("a")], [], ["a"], ["a"], [], id="equal bodies count once"),
        pytest.param(
            [create("a"), create("a", spec={"x": 1})], [], ["a"], ["a", "a#2"], [], id="another body"
        ),
        pytest.param([call("patch", "a", 201)], [], ["a"], ["a"], [], id="created by an apply"),
        pytest.param([call("patch", "a")], ["a"], ["a"], [], [], id="patched"),
        pytest.param([create("a", 409)], ["a"], ["a"], [], [], id="already exists"),
        pytest.param([call("delete", "a")], ["a"], [], [], ["a"], id="deleted"),
        pytest.param([call("delete", "a", 404)], [], [], [], [], id="already deleted"),
        pytest.param([call("deletecollection", "")], ["a"], [], [], ["<collection>"], id="all at once"),
        pytest.param([call("delete", "a"), create("a")], ["a"], ["a"], ["a"], ["a"], id="replaced"),
        pytest.param([create("a"), call("delete", "a")], [], [], [], [], id="created and deleted"),
        pytest.param(
            [call("delete", "a"), create("a"), call("delete", "a")],
            ["a"],
            [],
            [],
            ["a"],
            id="existed before",
        ),
        pytest.param([create("a", resource="pods/status")], ["a"], ["a"], [], [], id="a subresource"),
        pytest.param([create("a", resource="leases")], [], [], [], [], id="not a child"),
    ],
)
def test_created_and_deleted(
    calls: Calls, before: list[str], live: list[str], creates: list[str], deletes: list[str]
) -> None:
    actual = recorded(calls, live, before)

    assert list(actual["creates"].get("Pod", {})) == creates
    assert actual["deletes"].get("Pod", []) == deletes


def test_refused_creations_show_their_codes() -> None:
    calls = [create("a", 422), create("a", 422), create("a", 403), create("a", 409)]

    assert recorded(calls)["rejected"] == {"Pod": {"a": [422, 403]}}


def test_the_deletion_of_the_job_is_recorded() -> None:
    assert recorded([call("delete", "job", resource="pytorchjobs")])["deletes"] == {"PyTorchJob": ["job"]}


def test_existing_objects_are_recorded() -> None:
    actual = record(
        before={},
        calls=[],
        children={
            PODS: {
                "b-x1y2z": {"metadata": {"name": "b-x1y2z", "deletionTimestamp": "2026-01-02T03:04:05Z"}},
                "a": {"metadata": {"name": "a"}},
            },
            SERVICES: {"a": {"metadata": {"name": "a"}, "spec": {"selector": {"x": "y"}}}},
        },
        job=None,
        events=[
            {"type": "Normal", "reason": "Made", "message": "Created pod: b-x1y2z", "count": 3},
            {"type": "Normal", "reason": "Made", "message": "Created pod: b-x1y2z"},
            {"type": "Warning", "reason": "FailedCreate", "message": 'pods "a" already exists'},
            {"type": "Warning", "reason": "ErrResourceExists", "message": 'Service "a" already exists'},
        ],
        name="job",
        jobs=JOBS,
        words={"b-x1y2z": "b-<random>"},
    )

    assert actual["live"] == {"Pod": ["a", "b-<random> (terminating)"], "Service": ["a"]}
    assert actual["current"] == {
        "Service": {"a": {"selector": {"x": "y"}, "publishNotReadyAddresses": False}}
    }
    assert actual["status"] is None
    assert actual["events"] == [
        {"type": "Normal", "reason": "Made", "message": "Created pod: b-<random>"},
        {"type": "Warning", "reason": "ErrResourceExists", "message": 'Service "a" already exists'},
    ]


def test_times_in_the_status_are_masked() -> None:
    assert recorded([])["status"] == {"startTime": "<time>"}
