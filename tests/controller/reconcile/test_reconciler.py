"""Reconciles on the embedded API server: failing calls, taken names and concurrent writers."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from api.meta import EVENTS, HORIZONTAL_POD_AUTOSCALERS, PODS, SERVICES
from api.v1.pytorchjob import RESOURCE
from controller.domain import Event, Key, Severity
from controller.kind import KindDefaults
from controller.kube.namespaces import RETRY_SECONDS
from controller.reconcile import plan as planning
from controller.reconcile.debounce import CREATED_SECONDS
from controller.reconcile.memory import JobMemories
from tests.support.builders import template
from tests.support.definitions import open_definition
from tests.support.faults import Cut, Delay, Drop, Fault, Refuse, Reset, Rule
from tests.support.harness import (
    NAMESPACE,
    TEST_SETTINGS,
    Harness,
    is_owned_by,
    running_controller,
    start_harness,
)

JOBS = RESOURCE.plural
RUNNING = "Created T, Running T"
SUCCEEDED = "Created T, Running F, Succeeded T"


async def train(harness: Harness, name: str = "train") -> None:
    """Play the kubelet of a job that runs and succeeds."""
    await harness.settle()
    pods = [pod for pod in await harness.names(PODS) if pod.startswith(f"{name}-")]
    await harness.set_phase("Running", *pods)
    await harness.settle()
    await harness.set_phase("Succeeded", *pods, code=0)
    await harness.settle()


def made(harness: Harness, plural: str = "pods") -> list[str]:
    """Names in the requests to create objects, those that failed included."""
    bodies = [
        orjson.loads(call.body) for call in harness.calls if (call.verb, call.plural) == ("create", plural)
    ]
    return [body["metadata"]["name"] for body in bodies]


@pytest.mark.parametrize(
    ("events", "replicas", "calls"),
    [
        pytest.param("full", 2, 12, id="full, 2"),
        pytest.param("full", 8, 36, id="full, 8"),
        pytest.param("full", 64, 156, id="full, 64"),
        pytest.param("full", 256, 540, id="full, 256"),
        pytest.param("compact", 8, 21, id="compact, 8"),
        pytest.param("compact", 64, 133, id="compact, 64"),
        pytest.param("compact", 256, 517, id="compact, 256"),
    ],
)
async def test_a_successful_job_takes_a_fixed_number_of_calls(events: str, replicas: int, calls: int) -> None:
    """Creates, events, and one status for each thing that is news: created, running, succeeded; no reads.

    The pods come up one after the other, within half a second each of the one before.
    """
    async with start_harness() as harness, running_controller(harness, replace(TEST_SETTINGS, events=events)):
        harness.faults.calls.clear()
        await harness.submit(workers=replicas - 1)
        await harness.settle(2 * CREATED_SECONDS)
        for number, pod in enumerate(names := await harness.names(PODS)):
            await harness.set_phase("Running", pod)
            await harness.settle(0.8 / replicas)
            if number % 8 == 0:
                assert await harness.conditions() == RUNNING
        await harness.set_phase("Succeeded", *names, code=0)
        await harness.settle(10)

        counts = Counter((call.verb, call.plural) for call in harness.calls if call.verb != "watch")
        assert counts.total() == calls
        assert counts["patch", JOBS] == 3
        assert await harness.conditions() == SUCCEEDED


async def test_counters_are_written_once_they_stop_changing() -> None:
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(workers=3)
        await harness.settle()
        await harness.set_phase("Running", "train-master-0")
        await harness.settle()
        harness.faults.calls.clear()
        for pod in ("train-worker-0", "train-worker-1", "train-worker-2"):
            await harness.set_phase("Running", pod)
            await harness.settle(0.3)
        assert [call for call in harness.calls if call.verb == "patch"] == []
        await harness.settle(2)

        assert len([call for call in harness.calls if call.verb == "patch"]) == 1
        assert (await harness.job())["status"]["replicaStatuses"]["Worker"]["active"] == 3


async def test_a_pod_that_vanishes_before_its_counter_is_written_counts_as_vanished() -> None:
    """Decisions count on what waits to be written."""
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(workers=2, masters=0)
        await harness.settle()
        await harness.set_phase("Running", "train-worker-0")
        await harness.settle(0.5)
        await harness.set_phase("Running", "train-worker-1")
        await harness.settle(0.1)
        await harness.delete(PODS, "train-worker-1", grace_period_seconds=0)
        await harness.settle(0.1)

        assert "PyTorchJobRestarting" in [event["reason"] for event in await harness.items(EVENTS)]


async def test_an_unchanged_job_causes_no_calls() -> None:
    async with start_harness() as harness, running_controller(harness):
        await harness.submit()
        await train(harness)
        harness.faults.calls.clear()
        await harness.settle(600)

        relists = {("list", plural) for plural in ("pods", "services", RESOURCE.plural)}
        assert {(call.verb, call.plural) for call in harness.calls if call.verb != "watch"} <= relists


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Reset(committed=True), id="the connection breaks after the write"),
        pytest.param(Reset(), id="the connection breaks before the write"),
        pytest.param(Delay(40, committed=True), id="the answer comes too late"),
        pytest.param(Refuse(500, "InternalError"), id="500"),
        pytest.param(Refuse(504, "Timeout"), id="504"),
        pytest.param(Refuse(429, "TooManyRequests", retry_after_seconds=2), id="429 with Retry-After"),
    ],
)
@pytest.mark.parametrize("plural", ["pods", "services"])
async def test_a_failed_create_is_retried(fault: Fault, plural: str) -> None:
    """In the end each child exists once and the job continues; a lost response is no error to report."""
    async with (
        start_harness(Rule(fault, verb="create", plural=plural, times=1)) as harness,
        running_controller(harness),
    ):
        job = await harness.submit()
        await harness.settle(60)

        for resource in (PODS, SERVICES):
            assert await harness.names(resource) == ["train-master-0", "train-worker-0"]
            assert all(map(is_owned_by(job), await harness.items(resource)))
        if not isinstance(fault, Refuse):
            assert [event for event in await harness.items(EVENTS) if event["type"] == "Warning"] == []
        await train(harness)
        assert await harness.conditions() == SUCCEEDED


@pytest.mark.parametrize("cut", [True, False], ids=["with a broken watch", "with a whole watch"])
async def test_a_lost_response_creates_no_second_pod(cut: bool) -> None:
    """The next reconcile reads from the server before it plans, so no pod is created twice."""
    rules = [Rule(Reset(committed=True), verb="create", plural="pods", times=1)]
    if cut:
        rules.append(Rule(Cut(), verb="watch", containing=b'"train-', times=3))
    async with start_harness(*rules) as harness, running_controller(harness):
        await harness.submit()
        await harness.settle(60)

        assert sorted(made(harness)) == ["train-master-0", "train-worker-0"]


async def test_a_pod_that_is_deleted_before_its_create_returns_is_created_again() -> None:
    rule = Rule(Delay(5, committed=True), verb="create", plural="pods", containing=b"train-worker-0", times=1)
    async with start_harness(rule) as harness, running_controller(harness):
        await harness.submit()
        await harness.settle()
        first = await harness.get(PODS, "train-worker-0")
        await harness.delete(PODS, "train-worker-0")
        await harness.settle(60)

        assert (await harness.get(PODS, "train-worker-0"))["metadata"]["uid"] != first["metadata"]["uid"]


@pytest.mark.parametrize("verb", ["running", "succeeded"])
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Reset(committed=True), id="the connection breaks after the write"),
        pytest.param(Reset(), id="the connection breaks before the write"),
        pytest.param(Delay(40, committed=True), id="the answer comes too late"),
        pytest.param(Refuse(500, "InternalError"), id="500"),
        pytest.param(Refuse(409, "Conflict"), id="409"),
    ],
)
async def test_a_failed_status_write_is_retried_and_its_event_is_recorded_once(
    fault: Fault, verb: str
) -> None:
    containing = b'"Succeeded"' if verb == "succeeded" else b'"Running"'
    rule = Rule(fault, verb="patch", subresource="status", containing=containing, times=1)
    async with start_harness() as harness, running_controller(harness):
        await harness.submit()
        await harness.settle()
        harness.faults.rules.append(rule)
        await train(harness)
        await harness.settle(60)

        assert rule.met == 1
        assert await harness.conditions() == SUCCEEDED
        (event,) = [
            event for event in await harness.items(EVENTS) if event["reason"] == "PyTorchJobSucceeded"
        ]
        assert event["count"] == 1


async def test_a_job_succeeds_though_every_call_fails_for_a_while() -> None:
    """Every third write of any kind; the end is the same, and no pod is made twice."""
    rules = [
        Rule(Refuse(500, "InternalError"), verb="create", times=3),
        Rule(Reset(committed=True), verb="create", times=3),
        Rule(Reset(committed=True), verb="patch", plural=JOBS, times=2),
        Rule(Cut(), verb="watch", times=4),
    ]
    async with start_harness(*rules) as harness, running_controller(harness):
        job = await harness.submit(workers=3)
        await harness.settle(120)
        await train(harness)
        await harness.settle(60)

        assert await harness.conditions() == SUCCEEDED
        pods = await harness.items(PODS)
        assert len(pods) == 4
        assert all(map(is_owned_by(job), pods))


async def test_a_foreign_pod_with_a_needed_name_is_left_alone_and_reported() -> None:
    async with start_harness() as harness, running_controller(harness):
        foreign = {"metadata": {"name": "train-worker-0"}, **template()}
        before = await harness.create(PODS, foreign)
        await harness.submit()
        await harness.settle(10)

        assert await harness.get(PODS, "train-worker-0") == before
        assert any(
            "belongs to" not in message and "already exists" in message
            for message in await harness.events("FailedCreatePod")
        )
        await harness.delete(PODS, "train-worker-0")
        await harness.settle(60)
        assert is_owned_by(await harness.job())(await harness.get(PODS, "train-worker-0"))


async def test_a_job_waits_for_remains_of_an_earlier_job() -> None:
    """Its pod takes a minute to go; the new job starts when it is gone, and has nothing to complain about."""
    async with start_harness() as harness, running_controller(harness):
        await harness.submit()
        await harness.settle()
        await harness.change(PODS, "train-worker-0", {"metadata": {"finalizers": ["example.com/slow"]}})
        await harness.delete(RESOURCE, "train")
        job = await harness.submit()
        await harness.settle(60)
        assert (await harness.get(PODS, "train-worker-0"))["metadata"]["deletionTimestamp"]
        assert await harness.events("FailedCreatePod") == []

        await harness.change(PODS, "train-worker-0", {"metadata": {"finalizers": None}})
        await harness.settle(60)
        assert all(map(is_owned_by(job), await harness.items(PODS)))
        assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]


@pytest.mark.parametrize(("policy", "left"), [("None", 2), ("Running", 0)])
async def test_a_job_that_another_writer_finished_stays_finished(policy: str, left: int) -> None:
    """As one that a Go operator has ended; see docs/decisions/0023-status-writers.md."""
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(runPolicy={"cleanPodPolicy": policy})
        await harness.settle()
        await harness.set_phase("Running")
        await harness.settle()
        ended = {"conditions": [{"type": "Succeeded", "status": "True"}]}
        await harness.change(RESOURCE, "train", {"status": ended}, "status")
        await harness.settle(60)

        assert await harness.conditions() == "Succeeded T"
        assert len(await harness.names(PODS)) == left


async def test_a_job_that_is_recreated_at_once_is_another_job() -> None:
    """The pods of the first do not count for the second, whatever they have come to."""
    async with start_harness() as harness, running_controller(harness):
        await harness.submit()
        await train(harness)
        assert await harness.conditions() == SUCCEEDED
        await harness.delete(RESOURCE, "train")
        job = await harness.submit()
        await harness.settle(60)

        assert await harness.conditions() == "Created T"
        assert all(map(is_owned_by(job), await harness.items(PODS)))
        await train(harness)
        assert await harness.conditions() == SUCCEEDED


async def test_a_job_whose_deletion_the_watch_missed_gets_no_children_again() -> None:
    """The watch of jobs breaks at the deletion; the watch of children reports each garbage-collected child."""
    async with start_harness() as harness, running_controller(harness):
        await harness.submit()
        await harness.settle()
        harness.faults.rules += [
            Rule(Cut(), verb="watch", plural=JOBS, times=1),
            Rule(Refuse(503), verb="watch", plural=JOBS, times=3),
        ]
        harness.faults.calls.clear()
        await harness.delete(RESOURCE, "train")
        await harness.settle(60)

        assert [await harness.names(resource) for resource in (PODS, SERVICES)] == [[], []]
        assert harness.faults.count("create", "pods") + harness.faults.count("create", "services") <= 4


async def test_children_that_others_delete_are_created_again_at_once() -> None:
    """Before children of an unchanged job are created again, the controller checks that the job still exists."""
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(masters=0)
        await harness.settle()
        for reads in (0, 1, 1):
            harness.faults.calls.clear()
            await harness.delete(SERVICES, "train-worker-0")
            await harness.settle(0.1)

            assert await harness.names(SERVICES) == ["train-worker-0"]
            assert harness.faults.count("get", JOBS) == reads


async def test_the_memory_of_a_job_is_discarded_though_its_deletion_was_not_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job is deleted and created again during a reconcile."""
    discarded: list[str] = []
    discard = JobMemories.discard

    def record(memories: JobMemories, key: Key) -> None:
        memory = memories.current(key)
        discarded.append(memory.uid if memory else "")
        discard(memories, key)

    monkeypatch.setattr(JobMemories, "discard", record)
    async with (
        start_harness(Rule(Delay(5), verb="create", plural="pods", times=1)) as harness,
        running_controller(harness),
    ):
        job = await harness.submit()
        await harness.settle()
        await harness.delete(RESOURCE, "train")
        await harness.submit()
        await harness.settle(60)

        assert discarded == [job["metadata"]["uid"]]


async def test_a_delayed_status_write_does_not_change_the_next_job_of_that_name() -> None:
    rule = Rule(Delay(5), verb="patch", subresource="status", containing=b'"Succeeded"', times=1)
    async with start_harness(rule) as harness, running_controller(harness):
        await harness.submit()
        await train(harness)
        await harness.delete(RESOURCE, "train")
        await harness.submit()
        await harness.settle(60)

        assert rule.met == 1
        assert await harness.conditions() == "Created T"
        assert await harness.events("PyTorchJobSucceeded") == []


async def test_a_job_whose_children_are_rejected_fails_names_the_field_and_leaves_nothing() -> None:
    roles = {
        "Master": {"template": template()},
        "Worker": {
            "template": {"spec": {**template()["spec"], "restartPolicy": "Never", "schedulerName": "x" * 70}}
        },
    }
    refused = Refuse(422, "Invalid", "invalid", fields=(("spec.schedulerName", "too long"),))
    rule = Rule(refused, verb="create", plural="pods", containing=b"x" * 70)
    with capture_logs() as logs:
        async with start_harness(rule) as harness, running_controller(harness):
            await harness.submit(pytorchReplicaSpecs=roles)
            await harness.submit("other")
            await harness.settle(10)

            job = await harness.job()
            failed = next(
                condition for condition in job["status"]["conditions"] if condition["type"] == "Failed"
            )
            assert failed["reason"] == "PyTorchJobFailedValidation"
            assert "Pod train-worker-0: spec.schedulerName: too long" in failed["message"]
            assert await harness.names(PODS) == ["other-master-0", "other-worker-0"]
            assert await harness.events("PyTorchJobFailedValidation") == [failed["message"]]
    assert [line["error"] for line in logs if line["event"] == "reconcile failed"] == [
        "Pod train-worker-0: spec.schedulerName: too long"
    ]


async def test_a_running_job_whose_new_children_are_rejected_continues_with_its_pods() -> None:
    """The job is scaled up with an invalid template: running pods stay, and the rejection is recorded."""
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(workers=1)
        await harness.settle()
        await harness.set_phase("Running", "train-master-0", "train-worker-0")
        harness.faults.rules.append(Rule(Refuse(422, "Invalid", "too long"), verb="create", plural="pods"))
        await harness.change(
            RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}
        )
        await harness.settle(60)

        assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]
        assert await harness.conditions() == "Created T, Running T"
        assert await harness.events("FailedCreatePod") == ["Error creating: too long"]


async def test_an_exceeded_quota_delays_only_its_job() -> None:
    """In the full namespace a single create is tried with growing pauses; the job continues when the quota allows it."""
    rule = Rule(Refuse(403, "Forbidden", "exceeded quota"), verb="create", plural="pods", namespace="full")
    async with start_harness(rule, auto_namespaces=True) as harness, running_controller(harness):
        await harness.submit("stuck", workers=8, namespace="full")
        await harness.settle(0.001)
        await harness.submit("free")
        await harness.settle(60)
        assert await harness.names(PODS) == ["free-master-0", "free-worker-0"]
        tries = len([call for call in harness.calls if call.verb == "create" and call.namespace == "full"])
        await harness.settle(600)
        later = len([call for call in harness.calls if call.verb == "create" and call.namespace == "full"])
        assert later - tries < 10

        harness.faults.rules.clear()
        await harness.settle(1000)
        assert len(await harness.names(PODS, "full")) == 9


DENIALS = [
    pytest.param(Refuse(422, "Invalid", "denied request: maintenance window"), id="422 of a policy"),
    pytest.param(Refuse(413, "RequestEntityTooLarge", "denied request: maintenance window"), id="413"),
    pytest.param(Refuse(400, "", "denied the request: maintenance window"), id="400 of a webhook"),
    pytest.param(Refuse(403, "Forbidden", "denied the request: maintenance window"), id="403"),
]


@pytest.mark.parametrize("denial", DENIALS)
async def test_a_denial_blocks_a_job_until_it_ends(denial: Refuse) -> None:
    rule = Rule(denial, verb="create", plural="pods")
    async with start_harness(rule) as harness, running_controller(harness):
        await harness.submit(workers=8)
        await harness.settle(600)
        held = next(
            condition
            for condition in (await harness.job())["status"]["conditions"]
            if condition["type"] == "Running"
        )
        assert (held["status"], held["reason"]) == ("False", "PyTorchJobBlocked")
        assert held["message"] == denial.message
        assert await harness.conditions() == "Running F, Created T"
        assert f"Error creating: {denial.message}" in await harness.events("FailedCreatePod")
        tries = rule.met
        await harness.settle(600)
        assert rule.met - tries < 10, "with a back-off"

        harness.faults.rules.clear()
        await harness.settle(150)
        assert len(await harness.names(PODS)) == 9
        waits = next(
            condition
            for condition in (await harness.job())["status"]["conditions"]
            if condition["type"] == "Running"
        )
        assert waits["reason"] == "PyTorchJobWaitingForPods"
        await train(harness)
        assert await harness.conditions() == SUCCEEDED


async def test_the_condition_quotes_the_current_denial() -> None:
    rule = Rule(Refuse(400, "", "first words"), verb="create", plural="pods")
    async with start_harness(rule) as harness, running_controller(harness):
        await harness.submit()
        await harness.settle(60)
        rule.fault = Refuse(400, "", "other words")
        await harness.settle(300)

        held = next(
            condition
            for condition in (await harness.job())["status"]["conditions"]
            if condition["type"] == "Running"
        )
        assert held["message"] == "other words"


async def test_a_denied_replacement_does_not_fail_the_job() -> None:
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(pytorchReplicaSpecs=restarting_roles())
        await harness.settle()
        await harness.set_phase("Running")
        await harness.settle()
        harness.faults.rules.append(
            Rule(Refuse(422, "Invalid", "denied request"), verb="create", plural="pods")
        )
        await harness.set_phase("Failed", "train-worker-0", code=137)
        await harness.settle(600)
        assert await harness.conditions() == "Created T, Running T"

        harness.faults.rules.clear()
        await harness.settle(150)
        assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]


def restarting_roles() -> dict[str, Any]:
    """A master and a worker that are replaced when they fail."""
    return {
        role: {"replicas": 1, "restartPolicy": "OnFailure", "template": template()}
        for role in ("Master", "Worker")
    }


async def test_a_change_of_the_spec_ends_the_backoff() -> None:
    rule = Rule(Refuse(403, "Forbidden", "exceeded quota"), verb="create", plural="pods")
    async with start_harness(rule) as harness, running_controller(harness):
        await harness.submit(workers=3)
        await harness.settle(600)
        harness.faults.rules.clear()
        await harness.change(
            RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}}
        )
        await harness.settle()

        assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]


async def test_deletes_name_the_uid_of_the_object() -> None:
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(runPolicy={"cleanPodPolicy": "All"})
        await train(harness)

        uids = [
            orjson.loads(call.body)["preconditions"]["uid"] for call in harness.calls if call.verb == "delete"
        ]
        assert (len(uids), len(set(uids))) == (4, 4)
        assert await harness.names(PODS) == await harness.names(SERVICES) == []


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def finished(seconds_ago: float) -> dict[str, Any]:
    at = ago(seconds_ago)
    condition = {"type": "Succeeded", "status": "True", "reason": "PyTorchJobSucceeded", "message": "done"}
    times = {"lastUpdateTime": at, "lastTransitionTime": at}
    return {"conditions": [{**condition, **times}], "startTime": at, "completionTime": at}


async def test_an_expired_job_is_deleted_with_its_uid_and_resource_version() -> None:
    async with start_harness() as harness:
        await harness.submit(runPolicy={"ttlSecondsAfterFinished": 100})
        ended = await harness.change(RESOURCE, "train", {"status": finished(200)}, "status")
        async with running_controller(harness):
            await harness.settle()

            assert await harness.names(RESOURCE) == []
            (call,) = [call for call in harness.calls if call.verb == "delete"]
            preconditions = {key: ended["metadata"][key] for key in ("uid", "resourceVersion")}
            assert orjson.loads(call.body)["preconditions"] == preconditions
            assert await harness.events("SuccessfulDeletePod") == ["Deleted job: train"]


async def test_a_job_whose_ttl_has_not_expired_stays() -> None:
    async with start_harness() as harness:
        await harness.submit(runPolicy={"ttlSecondsAfterFinished": 100_000})
        await harness.change(RESOURCE, "train", {"status": finished(5)}, "status")
        async with running_controller(harness):
            await harness.settle(60)

            assert await harness.names(RESOURCE) == ["train"]


async def test_a_failed_deletion_of_a_job_is_reported_and_retried() -> None:
    rule = Rule(Refuse(403, "Forbidden", "not you"), verb="delete", plural=JOBS, times=2)
    async with start_harness(rule) as harness:
        await harness.submit(runPolicy={"ttlSecondsAfterFinished": 1})
        await harness.change(RESOURCE, "train", {"status": finished(200)}, "status")
        async with running_controller(harness):
            await harness.settle()

            assert await harness.names(RESOURCE) == []
            assert await harness.events("FailedDeletePod") == ["Error deleting: not you"]


METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
ELASTIC = {"minReplicas": 1, "maxReplicas": 3, "metrics": [METRIC]}


async def test_an_autoscaler_follows_its_job() -> None:
    """Made, changed with the spec, gone while suspended, there again afterwards."""
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(masters=0, elasticPolicy=ELASTIC)
        await harness.settle()
        assert (await harness.get(HORIZONTAL_POD_AUTOSCALERS, "train"))["spec"]["maxReplicas"] == 3

        await harness.change(RESOURCE, "train", {"spec": {"elasticPolicy": {"maxReplicas": 5}}})
        await harness.settle()
        assert (await harness.get(HORIZONTAL_POD_AUTOSCALERS, "train"))["spec"]["maxReplicas"] == 5

        await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": True}}})
        await harness.settle()
        assert await harness.names(HORIZONTAL_POD_AUTOSCALERS) == await harness.names(PODS) == []

        await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": False}}})
        await harness.settle()
        assert await harness.names(HORIZONTAL_POD_AUTOSCALERS) == ["train"]
        assert await harness.names(PODS) == ["train-worker-0"]


async def test_a_foreign_autoscaler_does_not_block_a_job() -> None:
    async with start_harness() as harness, running_controller(harness):
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9, "metrics": [METRIC]}
        before = await harness.create(
            HORIZONTAL_POD_AUTOSCALERS, {"metadata": {"name": "train"}, "spec": spec}
        )
        await harness.submit(masters=0, elasticPolicy=ELASTIC)
        await harness.settle(30)
        await harness.set_phase("Running")
        await harness.settle(30)

        assert await harness.conditions() == RUNNING
        assert await harness.get(HORIZONTAL_POD_AUTOSCALERS, "train") == before
        (message,) = await harness.events("FailedCreateHorizontalPodAutoscaler")
        assert "belongs to nobody" in message


async def test_events_of_a_large_job_are_summarized() -> None:
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(workers=149)
        await harness.settle(10)

        assert len(await harness.names(PODS)) == len(await harness.names(SERVICES)) == 150
        messages = await harness.events()
        assert len(messages) == 24
        (rest,) = [
            found
            for message in messages
            if (found := re.match(r"Created (\d+) \w+ and (\d+) \w+: ", message))
        ]
        assert int(rest[1]) + int(rest[2]) == 300 - 23


@pytest.mark.parametrize(("events", "count"), [("full", 5), ("compact", 2), ("off", 0)])
async def test_events_can_be_compact_or_off(events: str, count: int) -> None:
    settings = replace(TEST_SETTINGS, events=events)
    async with start_harness() as harness, running_controller(harness, settings):
        await harness.submit()
        await train(harness)

        assert len(await harness.events()) == count
        assert await harness.conditions() == SUCCEEDED


async def test_failed_event_writes_do_not_delay_a_job() -> None:
    async with (
        start_harness(Rule(Refuse(500), verb="create", plural="events")) as harness,
        running_controller(harness),
    ):
        await harness.submit()
        await train(harness)

        assert await harness.conditions() == SUCCEEDED


async def write_status(harness: Harness) -> None:
    await harness.change(RESOURCE, "train", {"status": {"conditions": [], "replicaStatuses": {}}}, "status")


async def write_labels(harness: Harness) -> None:
    await harness.change(RESOURCE, "train", {"metadata": {"labels": {"a": "b"}}})


@pytest.mark.parametrize("write", [write_status, write_labels])
async def test_status_writes_of_others_are_overwritten_or_ignored(
    write: Callable[[Harness], Awaitable[None]],
) -> None:
    async with start_harness() as harness, running_controller(harness):
        await harness.submit()
        await harness.settle()
        await harness.set_phase("Running")
        await harness.settle()
        await write(harness)
        await harness.settle()

        assert await harness.conditions() == RUNNING
        assert (await harness.job())["status"]["replicaStatuses"]["Worker"]["active"] == 1


async def test_a_busy_writer_of_labels_does_not_keep_a_job_from_finishing() -> None:
    async with start_harness() as harness, running_controller(harness):
        await harness.submit()

        async def scribble() -> None:
            number = 0
            while True:
                number += 1
                await harness.change(RESOURCE, "train", {"metadata": {"labels": {"n": str(number)}}})
                await asyncio.sleep(0.05)

        scribbling = asyncio.create_task(scribble())
        await train(harness)
        scribbling.cancel()
        await asyncio.gather(scribbling, return_exceptions=True)

        assert await harness.conditions() == SUCCEEDED


async def test_a_job_of_another_manager_is_not_touched() -> None:
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
        harness.faults.calls.clear()
        await harness.settle(60)

        assert harness.calls == []


async def test_a_job_of_another_manager_gets_its_required_annotations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The annotation is written once, and no other annotation changes."""
    monkeypatch.setattr(KindDefaults, "required_annotations", lambda *_: {"mark": "x"})
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
        await harness.settle(60)
        await harness.change(RESOURCE, "train", {"metadata": {"annotations": {"mine": "y"}}})
        await harness.settle(60)

        assert (await harness.job())["metadata"]["annotations"] == {"mark": "x", "mine": "y"}
        assert [call.verb for call in harness.calls if call.plural == JOBS and call.name] == ["patch"]


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(Refuse(403, "Forbidden", "may not"), id="for lack of rights"),
        pytest.param(Refuse(422, "Invalid", "may not"), id="by a rule of the definition"),
    ],
)
async def test_a_job_whose_annotations_cannot_be_written_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, refusal: Refuse
) -> None:
    monkeypatch.setattr(KindDefaults, "required_annotations", lambda *_: {"mark": "x"})
    refused = Rule(refusal, verb="patch", plural=JOBS)
    with capture_logs() as lines:
        async with start_harness(refused) as harness, running_controller(harness):
            await harness.submit(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
            await harness.settle(600)

    assert refused.met == 1
    assert [line["error"] for line in lines if line["event"] == "reconcile failed"] == [
        "annotations cannot be written: may not"
    ]


async def test_warnings_of_a_kind_are_recorded_until_the_job_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warning = Event(Severity.WARNING, "Odd", "this is odd", once="odd")
    monkeypatch.setattr(KindDefaults, "warnings", lambda *_: [warning])
    async with start_harness() as harness:
        async with running_controller(harness):
            await harness.submit()
            await train(harness)
        ended = await harness.conditions()
        async with running_controller(harness):
            await harness.settle(60)
        events = [event for event in await harness.items(EVENTS) if event["reason"] == "Odd"]

        assert ended == SUCCEEDED
        assert [(event["type"], event["message"], event.get("count", 1)) for event in events] == [
            ("Warning", "this is odd", 1)
        ]


async def test_only_the_configured_namespace_is_watched() -> None:
    settings = replace(TEST_SETTINGS, namespace="mine")
    async with start_harness(auto_namespaces=True) as harness, running_controller(harness, settings):
        await harness.submit(namespace="mine")
        await harness.submit(namespace="theirs")
        await harness.settle()

        assert len(await harness.names(PODS, "mine")) == 2
        assert await harness.names(PODS, "theirs") == []
        reads = [
            call
            for call in harness.faults.calls
            if call.user_agent == "rallypoint" and call.verb in {"list", "watch"}
        ]
        assert {call.namespace for call in reads} == {"mine"}


async def test_secrets_are_never_read() -> None:
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(elasticPolicy=ELASTIC, masters=0)
        await train(harness)

        assert {call.plural for call in harness.calls} <= {
            "events",
            "horizontalpodautoscalers",
            "pods",
            JOBS,
            "services",
        }


async def test_a_restarted_controller_continues_where_the_last_process_stopped() -> None:
    """The last process died between a pod and its Service and before the status write; nothing is created twice."""
    rules = [
        Rule(Delay(1000), verb="create", plural="services"),
        Rule(Delay(1000), verb="create", plural="pods", containing=b"train-worker-0"),
    ]
    async with start_harness(*rules) as harness:
        async with running_controller(harness):
            job = await harness.submit()
            await harness.settle()
            assert await harness.names(PODS) == ["train-master-0"]
        harness.faults.rules.clear()
        first = await harness.get(PODS, "train-master-0")
        async with running_controller(harness):
            await train(harness)

        assert await harness.conditions() == SUCCEEDED
        assert (await harness.get(PODS, "train-master-0"))["metadata"]["uid"] == first["metadata"]["uid"]
        assert all(map(is_owned_by(job), await harness.items(PODS)))


async def test_the_next_event_of_a_pod_repairs_a_lost_event() -> None:
    rule = Rule(Drop(), verb="watch", plural="pods", containing=b'"MODIFIED"', times=1)
    async with start_harness(rule) as harness, running_controller(harness):
        await harness.submit()
        await train(harness)

        assert rule.met == 1
        assert await harness.conditions() == "Created T, Succeeded T"


async def test_an_invalid_job_does_not_delay_other_jobs() -> None:
    async with start_harness() as harness, running_controller(harness, TEST_SETTINGS):
        await harness.submit("wrong", pytorchReplicaSpecs={"Master": {"template": template("tensorflow")}})
        await harness.submit("right")
        await harness.settle()

        assert await harness.conditions("wrong") == "Created T, Failed T"
        assert await harness.names(PODS, NAMESPACE) == ["right-master-0", "right-worker-0"]


def waiting(reason: str, message: str) -> dict[str, Any]:
    """Build the status of a pod with a waiting container."""
    return {
        "containerStatuses": [
            {"name": "pytorch", "state": {"waiting": {"reason": reason, "message": message}}}
        ]
    }


async def test_a_large_failing_job_writes_a_few_events_and_its_end_is_among_them() -> None:
    async with start_harness() as harness, running_controller(harness, TEST_SETTINGS):
        await harness.submit(workers=99)
        await harness.settle(5)
        pods = await harness.names(PODS)
        before = len([call for call in harness.calls if call.plural == "events"])
        for reason in ("ErrImagePull", "ImagePullBackOff"):
            for index, name in enumerate(pods):
                message = f"image of {name}: dial tcp 10.0.0.{index}:443: i/o timeout"
                await harness.change(PODS, name, {"status": waiting(reason, message)}, "status")
            await harness.settle()
        await harness.set_phase("Running")
        await harness.set_phase("Succeeded", "train-master-0", code=0)
        await harness.settle(5)

        assert len(pods) == 100
        assert len([call for call in harness.calls if call.plural == "events"]) - before <= 26
        shared = [
            message
            for message in await harness.events()
            if message.startswith("(combined from similar events): ")
        ]
        assert len(shared) == 2
        assert len(await harness.events("PyTorchJobSucceeded")) == 1


async def test_a_changed_scheduling_message_starts_no_reconcile(monkeypatch: pytest.MonkeyPatch) -> None:
    reconciles: list[object] = []
    decide = planning.decide

    def counted(*given: Any) -> Any:
        reconciles.append(given)
        return decide(*given)

    monkeypatch.setattr(planning, "decide", counted)
    async with start_harness() as harness, running_controller(harness, TEST_SETTINGS):
        await harness.submit(workers=0)
        await harness.settle(CREATED_SECONDS + 1)

        async def unschedulable(message: str) -> int:
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
                "lastTransitionTime": "2026-01-01T12:00:00Z",
            }
            before = len(reconciles)
            await harness.change(PODS, "train-master-0", {"status": {"conditions": [condition]}}, "status")
            await harness.settle()
            return len(reconciles) - before

        assert await unschedulable("0/5 nodes are available: 5 Insufficient cpu.") == 1
        assert await unschedulable("0/6 nodes are available: 1 node(s) had a taint.") == 0
        assert await harness.events("Unschedulable") == [
            "Error pod train-master-0 condition message: 0/5 nodes are available: 5 Insufficient cpu."
        ]


async def terminate(harness: Harness) -> Rule:
    """Begin to delete the namespace: nothing can be created in it, and pods go before their jobs."""
    text = "namespace default is being terminated"
    terminating = Refuse(
        403, "Forbidden", text, fields=(("metadata.namespace", text),), cause="NamespaceTerminating"
    )
    rule = Rule(terminating, verb="create", namespace=NAMESPACE)
    harness.faults.rules.append(rule)
    for pod in await harness.names(PODS):
        await harness.delete(PODS, pod, grace_period_seconds=0)
    return rule


async def test_a_terminating_namespace_gets_a_single_create() -> None:
    async with start_harness() as harness:
        with capture_logs() as logs:
            async with running_controller(harness, TEST_SETTINGS):
                for number in range(15):
                    await harness.submit(f"train-{number:02}")
                await harness.settle(5)
                before = len(harness.calls)
                await terminate(harness)
                await harness.settle(35)

        creates = [call for call in harness.calls[before:] if call.verb == "create"]
        assert 1 <= len(creates) <= 32, "one, and those that were under way with it"
        assert [line["event"] for line in logs if "terminating" in line["event"]] == [
            "namespace is terminating, creates are skipped"
        ]
        assert not [line for line in logs if line["log_level"] in {"warning", "error"}]


async def test_a_recreated_namespace_gets_creates_at_once() -> None:
    async with start_harness() as harness, running_controller(harness, TEST_SETTINGS):
        await harness.submit()
        await harness.settle()
        terminating = await terminate(harness)
        await harness.settle()
        await harness.delete(RESOURCE, "train")
        harness.faults.rules.remove(terminating)
        await harness.submit("again")
        await harness.settle(5)

        pods = [name for name in await harness.names(PODS) if name.startswith("again")]
        assert pods == ["again-master-0", "again-worker-0"]
        assert (
            len([message for message in await harness.events("SuccessfulCreatePod") if "again" in message])
            == 2
        )


async def test_a_job_continues_if_its_namespace_is_not_terminated_after_all() -> None:
    async with start_harness() as harness, running_controller(harness, TEST_SETTINGS):
        await harness.submit()
        await harness.settle()
        terminating = await terminate(harness)
        await harness.settle()
        harness.faults.rules.remove(terminating)
        await harness.settle(RETRY_SECONDS + 1)

        assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]


async def test_an_unreadable_job_names_the_field_and_is_left_alone_until_it_changes() -> None:
    """As under a CustomResourceDefinition without a schema of the status."""
    with capture_logs() as logs:
        async with start_harness(crds=()) as harness:
            await harness.define([open_definition(RESOURCE)])
            async with running_controller(harness):
                await harness.submit()
                await harness.settle()
                await harness.change(RESOURCE, "train", {"status": {"startTime": 5}}, "status")
                await harness.settle()
                harness.faults.calls.clear()
                await harness.settle(600)
                # The caches are compared with the server now and then, whatever becomes of the job.
                assert {call.verb for call in harness.calls} <= {"watch", "list"}
                held = next(
                    condition
                    for condition in (await harness.job())["status"]["conditions"]
                    if condition["type"] == "Running"
                )
                assert (held["status"], held["reason"]) == ("False", "PyTorchJobBlocked")
                assert held["message"].startswith("PyTorchJob cannot be read: status.startTime: ")
                assert await harness.events("PyTorchJobBlocked") == [held["message"]]

                await harness.change(RESOURCE, "train", {"status": {"startTime": None}}, "status")
                await train(harness)
                assert await harness.conditions() == SUCCEEDED
    assert "reconcile panicked" not in [line["event"] for line in logs]


@pytest.mark.parametrize("holding", ["Running", "Suspended", "Restarting", "Succeeded"])
async def test_conditions_of_an_unreadable_job_stay(holding: str) -> None:
    """And says so in its message, unless it is the end of the job."""
    async with start_harness(crds=()) as harness:
        await harness.define([open_definition(RESOURCE)])
        async with running_controller(harness):
            await harness.submit()
            await harness.settle()
            given = {"type": holding, "status": "True", "reason": "AsWritten", "message": "as written"}
            await harness.change(
                RESOURCE, "train", {"status": {"conditions": [given], "startTime": 5}}, "status"
            )
            await harness.settle()
            (condition,) = (await harness.job())["status"]["conditions"]
            messages = await harness.events("PyTorchJobBlocked")

    assert [text.partition(":")[0] for text in messages] == ["PyTorchJob cannot be read"]
    expected = ("AsWritten", "as written") if holding == "Succeeded" else ("PyTorchJobBlocked", messages[0])
    assert (condition["type"], condition["status"]) == (holding, "True")
    assert (condition["reason"], condition["message"]) == expected


async def test_a_running_job_that_becomes_readable_again_continues() -> None:
    async with start_harness(crds=()) as harness:
        await harness.define([open_definition(RESOURCE)])
        async with running_controller(harness):
            await harness.submit()
            await harness.settle()
            await harness.set_phase("Running", *await harness.names(PODS))
            await harness.settle()
            await harness.change(RESOURCE, "train", {"status": {"startTime": 5}}, "status")
            await harness.settle()
            await harness.change(RESOURCE, "train", {"status": {"startTime": None}}, "status")
            await harness.settle()
            running = next(
                condition
                for condition in (await harness.job())["status"]["conditions"]
                if condition["type"] == "Running"
            )
            await train(harness)
            conditions = await harness.conditions()

    assert (running["status"], running["reason"]) == ("True", "PyTorchJobRunning")
    assert conditions == SUCCEEDED


@pytest.mark.parametrize(
    "start", ["0000-01-01T00:00:00Z", "2026-01-01T12:00:00+14:00", "2026-01-01t12:00:00z"]
)
async def test_a_job_with_a_start_time_that_python_cannot_parse_continues(start: str) -> None:
    with capture_logs() as logs:
        async with start_harness(crds=()) as harness:
            await harness.define([open_definition(RESOURCE)])
            async with running_controller(harness):
                await harness.submit()
                await harness.settle()
                await harness.change(RESOURCE, "train", {"status": {"startTime": start}}, "status")
                await train(harness)
                assert await harness.conditions() == SUCCEEDED
    assert "reconcile panicked" not in [line["event"] for line in logs]
