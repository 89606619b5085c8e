"""A shadow beside another operator, on the embedded API server: what it compares, when, and that it writes nothing.

The other operator is this one; where it should act differently, the test acts in its place.
"""

import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from api.labels import MANAGED_BY_MULTIKUEUE
from api.meta import PODS, SERVICES
from api.mpijob import RESOURCE as MPI_JOBS
from api.v1.pytorchjob import RESOURCE
from controller.shadow.compare import Observed, job_differences
from controller.shadow.declared import Difference
from rallypoint.cli.shadow import PATH
from rallypoint.testing.controlplane.process import free_port
from tests.support.builders import template
from tests.support.faults import Refuse, Rule
from tests.support.harness import (
    TEST_SETTINGS,
    Answer,
    Harness,
    fake_clock,
    running_controller,
    start_harness,
    starting,
)
from tests.support.mpi import container

SHADOW = replace(TEST_SETTINGS, shadow=True)
ON_FAILURE = {"replicas": 1, "restartPolicy": "OnFailure", "template": template()}
ROLES: dict[str, Any] = {"pytorchReplicaSpecs": {"Master": ON_FAILURE, "Worker": ON_FAILURE}}
SETTLED_SECONDS = 8.0


@pytest.fixture(autouse=True)
def clock() -> Iterator[Callable[[], datetime]]:
    with fake_clock() as now:
        yield now


@asynccontextmanager
async def beside(*rules: Rule) -> AsyncGenerator[tuple[Harness, Answer]]:
    """A server with a shadow and an operator that works."""
    async with (
        start_harness(*rules) as harness,
        running_controller(harness),
        starting(harness, SHADOW) as answer,
    ):
        await harness.settle()
        yield harness, answer


@asynccontextmanager
async def alone() -> AsyncGenerator[tuple[Harness, Answer]]:
    """A server with a shadow and a running job, whose operator has stopped."""
    async with start_harness() as harness:
        async with running_controller(harness):
            await harness.submit(**ROLES)
            await harness.settle()
            await harness.set_phase("Running")
            await harness.settle(SETTLED_SECONDS)
        async with starting(harness, SHADOW) as answer:
            await harness.settle(SETTLED_SECONDS)
            yield harness, answer


async def values(answer: Answer, name: str, label: str) -> dict[str, float]:
    """Return the values of a family that are not 0, by one label."""
    text = (await answer("/metrics"))[1]
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {sample.labels[label]: sample.value for sample in samples if sample.name == name and sample.value}


async def results(answer: Answer) -> dict[str, float]:
    return await values(answer, "rallypoint_shadow_jobs", "result")


async def rules(answer: Answer) -> dict[str, float]:
    return await values(answer, "rallypoint_shadow_differences", "rule")


def shadow_verbs(harness: Harness) -> set[str]:
    return {call.verb for call in harness.faults.calls if call.user_agent == "rallypoint-shadow"}


async def test_a_shadow_only_reads_during_the_whole_life_of_a_job() -> None:
    async with beside() as (harness, answer):
        await harness.submit(**ROLES, runPolicy={"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 60})
        await harness.settle(SETTLED_SECONDS)
        await harness.set_phase("Running")
        await harness.settle(SETTLED_SECONDS)
        assert await results(answer) == {"equal": 1}
        await harness.set_phase("Failed", "train-worker-0", code=137)
        await harness.settle(SETTLED_SECONDS)
        await harness.set_phase("Running")
        await harness.settle(SETTLED_SECONDS)
        assert (await results(answer), await rules(answer)) == ({"equal": 1}, {})
        await harness.set_phase("Succeeded", code=0)
        await harness.settle(SETTLED_SECONDS)
        assert (await results(answer), await rules(answer)) == ({"equal": 1}, {})
        await harness.settle(90)

        assert await harness.names(RESOURCE) == []
        assert await results(answer) == {}
        assert shadow_verbs(harness) == {"list", "watch"}


async def test_mpijobs_are_compared_without_the_data_of_their_secrets() -> None:
    settings = replace(TEST_SETTINGS, enable_scheme=(MPI_JOBS.kind,))
    async with (
        start_harness(crds=(MPI_JOBS,)) as harness,
        running_controller(harness, settings),
        starting(harness, replace(settings, shadow=True)) as answer,
    ):
        own = {"spec": {"containers": [container()]}}
        roles = {"Launcher": {"template": own}, "Worker": {"replicas": 2, "template": own}}
        resource = replace(MPI_JOBS, version="v2beta1")
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "pi"}}
        await harness.create(resource, {**body, "spec": {"mpiReplicaSpecs": roles}})
        await harness.settle(60)

        assert (await results(answer), await rules(answer)) == ({"equal": 1}, {})
        reads = [
            call
            for call in harness.faults.calls
            if call.user_agent == "rallypoint-shadow" and call.plural == "secrets"
        ]
        assert {call.verb for call in reads} == {"get"}
        assert shadow_verbs(harness) == {"get", "list", "watch"}


async def test_a_job_is_unread_until_it_has_been_quiet_for_two_seconds() -> None:
    async with beside() as (harness, answer):
        await harness.submit(**ROLES)
        await harness.settle(SETTLED_SECONDS)
        assert await results(answer) == {"equal": 1}
        for _ in range(4):
            await harness.change(
                PODS, "train-worker-0", {"status": {"phase": "Pending", "reason": f"{_}"}}, "status"
            )
            await harness.settle(1)
            assert await results(answer) == {"unread": 1}
        await harness.settle(2)
        assert await results(answer) == {"equal": 1}


async def test_a_difference_is_reported_while_it_exists_and_logged_once() -> None:
    with capture_logs() as logs:
        async with alone() as (harness, answer):
            assert await results(answer) == {"equal": 1}
            body = await harness.get(SERVICES, "train-worker-0")
            await harness.change(SERVICES, "train-worker-0", {"spec": {"ports": [{"name": "x", "port": 1}]}})
            await harness.settle(SETTLED_SECONDS)
            assert (await results(answer), await rules(answer)) == ({"different": 1}, {"service": 2})
            await harness.change(SERVICES, "train-worker-0", {"metadata": {"labels": {"own": "label"}}})
            await harness.settle(SETTLED_SECONDS)
            assert await results(answer) == {"different": 1}
            await harness.change(SERVICES, "train-worker-0", {"spec": {"ports": body["spec"]["ports"]}})
            await harness.settle(SETTLED_SECONDS)
            assert (await results(answer), await rules(answer)) == ({"equal": 1}, {})
    differing = [line for line in logs if line["event"] == "decision differs"]
    assert {line["rule"] for line in differing} == {"service"}
    assert len(differing) == len({line["field"] for line in differing})
    assert "decision no longer differs" in {line["event"] for line in logs}


async def fail_job(harness: Harness) -> None:
    """Write what another operator writes when a pod has failed."""
    job = await harness.job()
    failed = {"type": "Failed", "status": "True", "reason": "PyTorchJobFailed"}
    status = {
        **job["status"],
        "conditions": [*job["status"]["conditions"], failed],
        "completionTime": "2026-01-01T12:00:00Z",
    }
    await harness.change(RESOURCE, "train", {"status": status}, "status")


async def test_an_operator_that_fails_a_job_whose_pod_would_be_replaced_is_reported() -> None:
    async with alone() as (harness, answer):
        await harness.set_phase("Failed", "train-worker-0", code=137)
        await fail_job(harness)
        await harness.settle(SETTLED_SECONDS)

        assert await results(answer) == {"different": 1}
        assert (await rules(answer))["restart"] == 1


@pytest.mark.parametrize("is_failure_first", [True, False], ids=["the failure first", "the failure second"])
async def test_the_pod_that_an_operator_deletes_before_it_fails_the_job_is_no_cleanup(
    is_failure_first: bool,
) -> None:
    """training-operator does so for an XGBoostJob. The watch of the jobs may be ahead of that of the pods."""
    async with alone() as (harness, answer):
        if is_failure_first:
            await harness.set_phase("Failed", "train-worker-0", code=137)
            await harness.settle(0.1)
            await fail_job(harness)
        else:
            await fail_job(harness)
            await harness.settle(0.1)
            await harness.set_phase("Failed", "train-worker-0", code=137)
        await harness.settle(0.1)
        await harness.delete(PODS, "train-worker-0", grace_period_seconds=0)
        await harness.settle(SETTLED_SECONDS)

        assert "cleanup" not in await rules(answer)


async def test_an_operator_that_replaces_a_pod_where_the_job_would_fail_is_reported() -> None:
    async with start_harness() as harness:
        never = {**ON_FAILURE, "restartPolicy": "Never"}
        async with running_controller(harness):
            await harness.submit(pytorchReplicaSpecs={"Master": never, "Worker": never})
            await harness.settle()
            await harness.set_phase("Running")
            await harness.settle(SETTLED_SECONDS)
        async with starting(harness, SHADOW) as answer:
            await harness.settle(SETTLED_SECONDS)
            worker = await harness.get(PODS, "train-worker-0")
            await harness.set_phase("Failed", "train-worker-0", code=1)
            await harness.settle(0.1)
            await harness.delete(PODS, "train-worker-0", grace_period_seconds=0)
            metadata = {key: worker["metadata"][key] for key in ("name", "labels", "ownerReferences")}
            await harness.create(PODS, {**worker, "metadata": metadata, "status": {}})
            await harness.set_phase("Running", "train-worker-0")
            await harness.settle(SETTLED_SECONDS)

            assert (await rules(answer))["restart"] == 1
            # The moment has passed, but the difference remains in the report.
            await harness.change(PODS, "train-worker-0", {"status": {"phase": "Pending"}}, "status")
            await harness.settle(SETTLED_SECONDS)
            assert (await rules(answer))["restart"] == 1


async def test_an_operator_that_deletes_pods_that_the_policy_keeps_is_reported() -> None:
    async with alone() as (harness, answer):
        await harness.set_phase("Succeeded", code=0)
        job = await harness.job()
        conditions = [
            {**own, "status": "False"} if own["type"] == "Running" else own
            for own in job["status"]["conditions"]
        ]
        succeeded = {"type": "Succeeded", "status": "True", "reason": "PyTorchJobSucceeded"}
        counters = {role: {"succeeded": 1, "active": None} for role in ("Master", "Worker")}
        status = {
            "conditions": [*conditions, succeeded],
            "replicaStatuses": counters,
            "completionTime": "2026-01-01T12:00:00Z",
        }
        await harness.change(RESOURCE, "train", {"status": status}, "status")
        await harness.settle(0.5)
        await harness.delete(PODS, "train-worker-0", grace_period_seconds=0)
        await harness.settle(SETTLED_SECONDS)

        assert await rules(answer) == {"cleanup": 1}


async def test_a_job_whose_children_cannot_be_read_is_unread() -> None:
    async with beside(Rule(Refuse(403, "Forbidden", "no"), verb="list", plural="services")) as (
        harness,
        answer,
    ):
        await harness.submit(**ROLES)
        await harness.settle(SETTLED_SECONDS)

        assert await results(answer) == {"unread": 1}


async def test_a_job_of_another_controller_is_left() -> None:
    async with beside() as (harness, answer):
        await harness.submit(**ROLES, runPolicy={"managedBy": MANAGED_BY_MULTIKUEUE})
        await harness.settle(SETTLED_SECONDS)

        assert await results(answer) == {"left": 1}


async def test_a_deadline_that_the_other_operator_does_not_notice_is_a_declared_difference() -> None:
    async with start_harness() as harness:
        async with running_controller(harness):
            await harness.submit(**ROLES, runPolicy={"activeDeadlineSeconds": 30})
            await harness.settle()
            await harness.set_phase("Running")
            await harness.settle(SETTLED_SECONDS)
        async with starting(harness, SHADOW) as answer:
            await harness.settle(SETTLED_SECONDS)
            assert await results(answer) == {"equal": 1}
            await harness.settle(60)

            found: dict[str, Any] = await rules(answer)
            assert found["deadline"] == 2


async def test_a_defect_in_a_decision_is_a_difference_and_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("controller.shadow.controller.judge", broken)
    with capture_logs() as logs:
        async with beside() as (harness, answer):
            await harness.submit(**ROLES)
            await harness.settle(SETTLED_SECONDS)
            await harness.set_phase("Failed", "train-worker-0", code=137)
            await harness.settle(SETTLED_SECONDS)
            await harness.submit("later", **ROLES)
            await harness.settle(SETTLED_SECONDS)

            assert await results(answer) == {"different": 1, "equal": 1}
            assert await rules(answer) == {"restart": 1}
    assert [line["name"] for line in logs if line["event"] == "decision failed"] == ["train"]


async def test_a_job_whose_comparison_raises_is_unread_with_that_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(observed: Observed) -> list[Difference]:
        raise KeyError("a defect")

    monkeypatch.setattr("controller.shadow.controller.job_differences", broken)
    address = f"127.0.0.1:{free_port()}"
    with capture_logs():
        async with start_harness() as harness, starting(harness, replace(SHADOW, pprof_bind_address=address)):
            await harness.submit(**ROLES)
            await harness.settle(SETTLED_SECONDS)
            async with aiohttp.ClientSession() as session, session.get(f"http://{address}{PATH}") as response:
                unread = (await response.json(content_type=None))["unread"]

    assert [entry["why"] for entry in unread] == ["an exception: KeyError"]


async def test_a_large_job_is_compared_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def compare(observed: Observed) -> list[Difference]:
        threads.append(threading.current_thread().name)
        return job_differences(observed)

    monkeypatch.setattr("controller.shadow.controller.job_differences", compare)
    monkeypatch.setattr("controller.shadow.controller.LARGE_JOB", 1)
    async with beside() as (harness, answer):
        await harness.submit(**ROLES)
        await harness.settle(SETTLED_SECONDS)

        assert await results(answer) == {"equal": 1}
    assert threads
    assert threading.current_thread().name not in threads


def test_without_shadow_no_module_of_it_is_imported() -> None:
    program = (
        "import controller.command, sys; print([name for name in sys.modules if 'controller.shadow' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
