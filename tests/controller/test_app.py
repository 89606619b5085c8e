"""The whole controller on loop time: readiness, outages of the server and shutdown."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from structlog.testing import capture_logs

from api.labels import JOB_NAME, REPLICA_INDEX, REPLICA_TYPE
from api.meta import EVENTS, LEASES, PODS, VOLCANO_POD_GROUPS
from api.mpijob import RESOURCE as MPI_JOBS
from api.v1.pytorchjob import RESOURCE
from api.v1.tfjob import RESOURCE as TF_JOBS
from controller import app, kinds
from controller.app import NoNamespace, UnknownKind, kinds_named, leases_from, options_from
from controller.kind.options import InvalidOption
from controller.kinds.mpi.options import MPIOptions
from controller.kinds.mxnet import MXNET
from controller.kinds.pytorch import PYTORCH
from controller.kinds.pytorch.options import PyTorchOptions
from controller.kube.connect import Connection
from controller.kube.errors import NotLeading
from controller.runtime import clock
from controller.runtime.lifecycle import DRAIN_SECONDS, FLUSH_SECONDS, NothingServed
from controller.settings import Settings
from tests.support.builders import template
from tests.support.faults import Delay, Drop, Refuse, Reset, Rule
from tests.support.harness import (
    DEFINITIONS,
    NAMESPACE,
    TEST_SETTINGS,
    Answer,
    Harness,
    definition,
    fake_clock,
    running_controller,
    start_harness,
    starting,
)
from tests.support.mpi import container

POD_GROUPS = list(
    yaml.safe_load_all(
        (Path(__file__).parents[1] / "parity" / "golden" / "crds" / "podgroups.yaml").read_text()
    )
)
RUNNING = "Created T, Running T"


@pytest.mark.parametrize("plural", ["pods", "services", RESOURCE.plural])
async def test_the_controller_is_ready_and_works_once_all_caches_are_synced(plural: str) -> None:
    """A partial cache would make children look lost."""
    async with start_harness(Rule(Delay(20), verb="watch", plural=plural, times=1)) as harness:
        await harness.submit()
        async with starting(harness) as answer:
            await harness.settle(10)
            assert await answer("/readyz") == (500, f"caches are being filled: {plural}\n")
            assert (await answer("/healthz"))[0] == 200
            assert harness.faults.count("create", "pods") == 0

            await harness.settle(15)
            assert await answer("/readyz") == (200, "ok\n")
            assert len(await harness.names(PODS)) == 2


BOTH = replace(TEST_SETTINGS, enable_scheme=(RESOURCE.kind, TF_JOBS.kind))
CRD_NAME = f"{RESOURCE.plural}.{RESOURCE.group}"
TF_JOB: dict[str, Any] = {
    "apiVersion": TF_JOBS.api_version,
    "kind": TF_JOBS.kind,
    "metadata": {"name": "tf"},
    "spec": {"tfReplicaSpecs": {"Worker": {"replicas": 1, "template": template("tensorflow")}}},
}


async def served(answer: Answer) -> dict[str, float]:
    """The metric of that name, by resource."""
    lines = (await answer("/metrics"))[1].splitlines()
    found = [line for line in lines if line.startswith("rallypoint_resource_served{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in found}


async def test_a_kind_is_served_while_the_definition_of_another_is_missing() -> None:
    with capture_logs() as logs:
        async with start_harness() as harness, starting(harness, BOTH) as answer:
            await harness.submit()
            await harness.settle(600)

            assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]
            assert await answer("/readyz") == (200, "ok\nnot served: tfjobs\n")
            assert await served(answer) == {"pods": 1, "services": 1, RESOURCE.plural: 1, TF_JOBS.plural: 0}
    assert [line["resource"] for line in logs if line["event"] == "resource not served"] == ["tfjobs"]


async def test_a_kind_starts_when_its_definition_is_installed() -> None:
    async with start_harness() as harness, starting(harness, BOTH) as answer:
        await harness.settle(30)
        await harness.define([definition(TF_JOBS)])
        await harness.create(TF_JOBS, TF_JOB)
        await harness.settle(60)
        await harness.create(TF_JOBS, {**TF_JOB, "metadata": {"name": "later"}})
        await harness.settle()

        assert await harness.names(PODS) == ["later-worker-0", "tf-worker-0"]
        assert await answer("/readyz") == (200, "ok\n")
        assert (await served(answer))[TF_JOBS.plural] == 1


async def test_the_controller_is_not_ready_until_a_kind_is_defined() -> None:
    async with start_harness(crds=()) as harness, starting(harness) as answer:
        await harness.settle(30)
        assert await answer("/readyz") == (500, "not served: pytorchjobs\n")
        await harness.define([definition(RESOURCE)])
        await harness.settle(60)

        assert await answer("/readyz") == (200, "ok\n")


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(Rule(Refuse(403, "Forbidden"), plural=TF_JOBS.plural), id="forbidden"),
        pytest.param(Rule(Refuse(500, "InternalError"), plural=TF_JOBS.plural), id="internal error"),
        pytest.param(
            Rule(Refuse(503, "ServiceUnavailable"), plural=TF_JOBS.plural), id="service unavailable"
        ),
        pytest.param(Rule(Delay(1e9), plural=TF_JOBS.plural), id="no response"),
    ],
)
async def test_a_kind_that_cannot_be_read_does_not_stop_the_others(rule: Rule) -> None:
    async with start_harness(rule, crds=(RESOURCE, TF_JOBS)) as harness:
        await harness.create(TF_JOBS, TF_JOB)
        async with starting(harness, BOTH) as answer:
            await harness.submit()
            await harness.settle(300)
            assert await answer("/readyz") == (200, "ok\nnot served: tfjobs\n")
            assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]
            harness.faults.rules.remove(rule)
            await harness.settle(300)

            assert await answer("/readyz") == (200, "ok\n")
            assert await harness.names(PODS) == ["tf-worker-0", "train-master-0", "train-worker-0"]


WITH_MPI = replace(
    TEST_SETTINGS, enable_scheme=(RESOURCE.kind, MPI_JOBS.kind), of_kinds=(MPIOptions(topology_label="rack"),)
)
PI: dict[str, Any] = {
    "apiVersion": MPI_JOBS.api_version,
    "kind": MPI_JOBS.kind,
    "metadata": {"name": "pi"},
    "spec": {
        "mpiReplicaSpecs": {
            role: {"replicas": 1, "template": {"spec": {"containers": [container()]}}}
            for role in ("Launcher", "Worker")
        }
    },
}


@pytest.mark.parametrize("plural", ["configmaps", "jobs", "nodes"])
@pytest.mark.parametrize("elects", [False, True], ids=["one replica", "with leader election"])
async def test_a_missing_dependency_of_a_kind_does_not_stop_the_others(plural: str, elects: bool) -> None:
    settings = replace(WITH_MPI, leader_elect=elects, leader_election_namespace=NAMESPACE)
    rule = Rule(Refuse(403, "Forbidden", "not you"), plural=plural)
    async with start_harness(rule, crds=(RESOURCE, MPI_JOBS)) as harness:
        await harness.create(MPI_JOBS, PI)
        async with starting(harness, settings) as answer:
            await harness.submit()
            await harness.settle(600)
            assert await answer("/readyz") == (200, f"ok\nnot served: {plural}\n")
            assert (await served(answer))[plural] == 0
            assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]
            harness.faults.rules.remove(rule)
            await harness.settle(300)

            assert await answer("/readyz") == (200, "ok\n")
            assert "pi-worker-0" in await harness.names(PODS)


@pytest.mark.parametrize("plural", ["configmaps", "jobs"])
async def test_a_single_kind_is_not_ready_without_its_dependency(plural: str) -> None:
    settings = replace(LEADING, enable_scheme=(MPI_JOBS.kind,))
    rule = Rule(Refuse(403, "Forbidden", "not you"), plural=plural)
    async with start_harness(rule, crds=(MPI_JOBS,)) as harness, starting(harness, settings) as answer:
        await harness.settle(120)
        assert await answer("/readyz") == (500, f"not served: {plural}\n")
        assert await harness.items(LEASES) == []
        harness.faults.rules.remove(rule)
        await harness.settle(120)

        assert await answer("/readyz") == (200, "ok\n")
        assert len(await harness.items(LEASES)) == 2


async def test_nodes_are_read_only_for_a_kind_with_a_topology_label() -> None:
    async with (
        start_harness() as harness,
        running_controller(harness, replace(TEST_SETTINGS, of_kinds=(MPIOptions(topology_label="rack"),))),
    ):
        await harness.settle()

        assert harness.faults.count("watch", "nodes") == 0


async def test_a_kind_stops_and_starts_again_with_its_definition() -> None:
    """The jobs are deleted with the definition and get no more children; the other kind continues."""
    async with start_harness(crds=(RESOURCE, TF_JOBS)) as harness, starting(harness, BOTH) as answer:
        await harness.submit()
        await harness.settle()
        await harness.delete(DEFINITIONS, CRD_NAME)
        for name in await harness.names(PODS):
            await harness.delete(PODS, name, grace_period_seconds=0)
        await harness.settle(120)
        assert await answer("/readyz") == (200, "ok\nnot served: pytorchjobs\n")
        assert await harness.names(PODS) == []
        await harness.create(TF_JOBS, TF_JOB)
        await harness.settle()
        assert await harness.names(PODS) == ["tf-worker-0"]

        await harness.define([definition(RESOURCE)])
        await harness.submit("other")
        await harness.settle(60)
        assert await answer("/readyz") == (200, "ok\n")
        assert await harness.names(PODS) == ["other-master-0", "other-worker-0", "tf-worker-0"]


async def test_without_pod_groups_existing_jobs_are_reconciled_and_new_ones_wait() -> None:
    settings = replace(TEST_SETTINGS, gang_scheduler_name="volcano")
    async with start_harness() as harness:
        async with running_controller(harness):
            await harness.submit("before")
            await harness.settle()
            await harness.set_phase("Running")
            await harness.settle(2)
        async with starting(harness, settings) as answer:
            await harness.submit()
            await harness.settle(30)
            assert await answer("/readyz") == (200, "ok\nnot served: podgroups\n")
            assert await harness.names(PODS) == ["before-master-0", "before-worker-0"]
            assert await harness.events("FailedCreatePodGroup")
            await harness.set_phase("Succeeded", code=0)
            await harness.settle(10)
            assert (await harness.conditions("before")).endswith("Succeeded T")

            await harness.define(POD_GROUPS)
            await harness.settle(180)
            assert await answer("/readyz") == (200, "ok\n")
            assert await harness.names(VOLCANO_POD_GROUPS) == ["train"]


async def test_existing_jobs_are_reconciled_at_the_start() -> None:
    async with start_harness() as harness:
        for number in range(20):
            await harness.submit(f"train-{number}")
        async with running_controller(harness):
            await harness.settle()

            assert len(await harness.names(PODS)) == 40


async def test_a_job_continues_after_an_outage_of_the_server() -> None:
    """Everything is listed again, because the server may be another: nothing is lost or created twice."""
    async with start_harness() as harness, running_controller(harness):
        await harness.submit()
        await harness.settle()
        port = int(harness.server.url.rsplit(":", 1)[1])
        harness.faults.calls.clear()
        await harness.server.stop()
        await asyncio.sleep(100)
        await harness.server.start(port=port)
        await harness.set_phase("Running")
        await harness.settle(120)

        assert await harness.conditions() == RUNNING
        assert [
            call.verb for call in harness.calls if call.verb in {"list", "create"} and call.plural != "events"
        ] == []


@pytest.mark.parametrize("plural", ["pods", RESOURCE.plural])
async def test_a_job_continues_after_a_lost_event(plural: str) -> None:
    """Of a pod that its master has succeeded, or of a job that it was resumed: within 10 minutes it is noticed."""
    async with start_harness() as harness, running_controller(harness):
        await harness.submit(runPolicy={"suspend": plural == RESOURCE.plural})
        await harness.settle()
        if plural == "pods":
            await harness.set_phase("Running")
            await harness.settle()
            lost = Rule(Drop(), verb="watch", plural=plural, containing=b'"phase":"Succeeded"', times=1)
            harness.faults.rules.append(lost)
            await harness.set_phase("Succeeded", "train-master-0", code=0)
        else:
            lost = Rule(Drop(), verb="watch", plural=plural, times=1)
            harness.faults.rules.append(lost)
            await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": False}}})
        await harness.settle(5)
        assert lost.met == 1
        before = await harness.conditions()
        await harness.settle(600)

        assert not before.endswith("Succeeded T")
        assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]
        if plural == "pods":
            assert (await harness.conditions()).endswith("Succeeded T")


@pytest.mark.parametrize("label", [JOB_NAME, REPLICA_TYPE, REPLICA_INDEX])
async def test_a_pod_whose_label_is_removed_stays_with_its_job(label: str) -> None:
    """The UID of its owner and its name tie it to the job; no pod is created twice, and calls are limited."""
    async with start_harness() as harness, running_controller(harness):
        await harness.submit()
        await harness.settle()
        await harness.set_phase("Running")
        await harness.settle(5)
        harness.faults.calls.clear()
        await harness.change(PODS, "train-master-0", {"metadata": {"labels": {label: None}}})
        await harness.settle(60)
        assert harness.faults.count("create", "pods") <= 1
        await harness.settle(3600)
        assert harness.faults.count("create", "pods") <= 1
        assert (await harness.conditions()).endswith("Running T")
        await harness.set_phase("Succeeded", "train-master-0", code=0)
        await harness.settle(60)

        assert (await harness.conditions()).endswith("Succeeded T")
        assert (await harness.job())["status"]["replicaStatuses"]["Master"]["succeeded"] == 1


async def test_a_restarted_controller_finds_a_pod_without_its_label() -> None:
    async with start_harness() as harness:
        async with running_controller(harness):
            await harness.submit()
            await harness.settle()
            await harness.set_phase("Running")
            await harness.settle(5)
        await harness.change(PODS, "train-master-0", {"metadata": {"labels": {JOB_NAME: None}}})
        await harness.set_phase("Succeeded", "train-master-0", code=0)
        async with running_controller(harness):
            await harness.settle(10)

            assert (await harness.conditions()).endswith("Succeeded T")


async def test_a_controller_with_a_fast_clock_ends_no_job_early() -> None:
    """Neither from the start nor after a step of its clock while it runs."""
    ahead = timedelta(hours=1)
    with fake_clock() as now:
        async with start_harness(clock=now) as harness:
            with patch.object(clock, "now", lambda: now() + ahead):
                async with running_controller(harness):
                    policy = {"activeDeadlineSeconds": 600, "ttlSecondsAfterFinished": 600}
                    await harness.submit(runPolicy=policy)
                    await harness.settle(5)
                    await harness.set_phase("Running")
                    await harness.settle(100)
                    ahead = timedelta(hours=-3)
                    await harness.settle(100)
                    ahead = timedelta(hours=5)
                    await harness.settle(100)
                    assert await harness.conditions() == RUNNING
                    await harness.set_phase("Succeeded", code=0)
                    await harness.settle(300)
                    job = await harness.job()
                    assert await harness.conditions() == "Created T, Running F, Succeeded T"
                    ended = datetime.fromisoformat(job["status"]["completionTime"])
                    assert abs(ended - (now() - timedelta(seconds=300))) < timedelta(seconds=5)
                    await harness.settle(310)
                    assert await harness.items(RESOURCE) == []


async def test_a_controller_with_a_slow_clock_misses_no_deadline() -> None:
    with fake_clock() as now:
        async with start_harness(clock=now) as harness:
            with patch.object(clock, "now", lambda: now() - timedelta(hours=1)):
                async with running_controller(harness):
                    await harness.submit(runPolicy={"activeDeadlineSeconds": 60})
                    await harness.settle(5)
                    await harness.set_phase("Running")
                    await harness.settle(70)

                    assert (await harness.conditions()).endswith("Failed T")


async def test_during_an_outage_of_the_server_the_controller_stays_ready_and_reports_the_silence() -> None:
    """A restart would not help, and a Prometheus that scrapes through the Service needs the metrics just then."""
    async with start_harness() as harness, starting(harness) as answer:
        await harness.settle(10)
        await harness.server.stop()
        await asyncio.sleep(600)

        assert await answer("/healthz") == (200, "ok\n")
        assert await answer("/readyz") == (200, "ok\n")
        metrics = (await answer("/metrics"))[1].splitlines()
    silence = {
        line.split('"')[1]: float(line.split()[-1])
        for line in metrics
        if line.startswith("rallypoint_watch_silence_seconds{")
    }
    assert silence.keys() == {"pods", "services", RESOURCE.plural}
    assert all(600 <= seconds < 700 for seconds in silence.values())
    assert "rallypoint_events_dropped_total 0.0" in metrics


async def test_during_an_outage_of_the_server_calls_are_limited() -> None:
    """Three watches retry with growing pauses; the transport itself tries each call twice."""
    async with start_harness(Rule(Reset(), verb="watch")) as harness, starting(harness):
        await harness.settle(60)
        first = harness.faults.count("watch")
        await harness.settle(600)

        assert first <= 3 * 16
        assert harness.faults.count("watch") - first <= 3 * 50


async def test_an_expired_token_is_renewed() -> None:
    async with start_harness() as harness:
        tokens = ["stale", harness.server.token]

        async def renew() -> None:
            del tokens[0]

        connection = Connection(harness.server.url, token=lambda: tokens[0], renew=renew)
        async with running_controller(harness, connection=connection):
            await harness.submit()
            await harness.settle()

            assert len(await harness.names(PODS)) == 2


async def test_calls_per_second_are_limited() -> None:
    settings = replace(TEST_SETTINGS, kube_api_qps=2.0, kube_api_burst=1, events="off")
    async with start_harness() as harness, running_controller(harness, settings):
        await harness.submit(workers=9)
        await harness.settle(5)
        assert 8 <= harness.faults.count("create", "pods") + harness.faults.count("create", "services") <= 11

        await harness.settle(10)
        assert len(await harness.names(PODS)) == 10


async def test_calls_in_flight_are_limited() -> None:
    settings = replace(TEST_SETTINGS, kube_api_in_flight=3, events="off")
    async with start_harness(Rule(Delay(1), verb="create")) as harness, running_controller(harness, settings):
        await harness.submit(workers=5)
        await harness.settle(1.5)
        assert len([call for call in harness.calls if call.verb == "create"]) == 6

        await harness.settle(10)
        assert len(await harness.names(PODS)) == 6


async def test_a_single_worker_reconciles_jobs_in_sequence() -> None:
    settings = replace(TEST_SETTINGS, controller_threads=1)
    async with (
        start_harness(Rule(Delay(5), verb="create", plural="pods")) as harness,
        running_controller(harness, settings),
    ):
        await harness.submit("first")
        await harness.settle(0.1)
        await harness.submit("second")
        await harness.settle(7)
        assert await harness.names(PODS) == ["first-master-0", "first-worker-0"]

        await harness.settle(10)
        assert len(await harness.names(PODS)) == 4


async def stopped(task: "asyncio.Task[None]", stop: asyncio.Event) -> float:
    """Ask for the end; the seconds that it takes."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    stop.set()
    await task
    return loop.time() - started


async def test_a_stop_waits_for_running_reconciles_and_events() -> None:
    async with start_harness(Rule(Delay(2), verb="create")) as harness:
        async with running_controller(harness, stop=(stop := asyncio.Event())) as task:
            await harness.submit()
            await harness.submit("other")
            await harness.settle(0.1)
            # the pods and Services, then eight events, all at once
            assert await stopped(task, stop) == pytest.approx(4, abs=0.2)

        assert len(await harness.names(PODS)) == 4
        assert len(await harness.items(EVENTS)) == 8


async def test_a_stop_during_a_large_job_reports_every_created_child() -> None:
    """Creating the job takes several reconciles; the stopping controller writes the summary events."""
    settings = replace(TEST_SETTINGS, kube_api_in_flight=4, events="compact")
    async with start_harness(Rule(Delay(0.2), verb="create")) as harness:
        async with running_controller(harness, settings, stop=(stop := asyncio.Event())) as task:
            await harness.submit(workers=40)
            await harness.settle(2)
            await stopped(task, stop)
        before = await harness.names(PODS)
        async with running_controller(harness, settings):
            await harness.settle(30)
        messages = " ".join([event["message"] for event in await harness.items(EVENTS)])

        assert 0 < len(before) < len(await harness.names(PODS)) == 41
        assert [name for name in await harness.names(PODS) if name not in re.split("[ ,]+", messages)] == []


async def test_a_stopping_controller_starts_no_reconcile() -> None:
    async with start_harness(Rule(Delay(2), verb="create")) as harness:
        settings = replace(TEST_SETTINGS, controller_threads=1)
        async with running_controller(harness, settings, stop=(stop := asyncio.Event())) as task:
            await harness.submit()
            await harness.settle(0.1)
            await harness.submit("other")
            await harness.settle(0.1)
            await stopped(task, stop)

        assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]


async def test_a_stop_waits_for_reconciles_only_until_its_timeout() -> None:
    rule, stop = Rule(Delay(25), verb="create", plural="pods"), asyncio.Event()
    async with start_harness(rule) as harness, running_controller(harness, stop=stop) as task:
        await harness.submit()
        await harness.settle(0.1)

        assert await stopped(task, stop) == pytest.approx(DRAIN_SECONDS, abs=0.2)


async def test_a_stop_waits_for_events_only_until_its_timeout() -> None:
    rule, stop = Rule(Refuse(500), verb="create", plural="events"), asyncio.Event()
    async with start_harness(rule) as harness, running_controller(harness, stop=stop) as task:
        await harness.submit()
        await harness.settle(0.1)

        assert await stopped(task, stop) == pytest.approx(FLUSH_SECONDS, abs=0.2)


async def test_a_controller_can_be_stopped_before_it_works() -> None:
    async with start_harness(Rule(Delay(20), verb="watch", plural="pods")) as harness:
        task = asyncio.create_task(app.run(TEST_SETTINGS, harness.connection, stop=(stop := asyncio.Event())))
        await harness.settle(1)

        assert await stopped(task, stop) < 0.1


LEADING = replace(TEST_SETTINGS, leader_elect=True, leader_election_namespace=NAMESPACE)
ID = LEADING.leader_election_id


@asynccontextmanager
async def waiting(
    harness: Harness, settings: Settings = LEADING, **options: Any
) -> AsyncIterator["tuple[asyncio.Task[None], list[float]]"]:
    """A second replica from when its caches are filled; its task, and the loop time when it begins to work, once it does."""
    loop = asyncio.get_running_loop()
    ready, worked = asyncio.Event(), list[float]()
    task = asyncio.create_task(
        app.run(
            settings,
            harness.connection,
            time=loop.time,
            on_ready=ready.set,
            on_work=lambda: worked.append(loop.time()),
            **options,
        )
    )
    try:
        await ready.wait()
        yield task, worked
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_standby_controller_is_ready_and_does_nothing() -> None:
    async with (
        start_harness() as harness,
        running_controller(harness, LEADING),
        waiting(harness) as (_, worked),
    ):
        await harness.submit()
        await harness.settle(100)

        assert worked == []
        assert harness.faults.count("create", "pods") == 2


async def test_an_event_of_the_lease_names_the_leader() -> None:
    async with start_harness() as harness, running_controller(harness, LEADING):
        await harness.settle()

        [event] = [event for event in await harness.items(EVENTS) if event["reason"] == "LeaderElection"]
        lease = await harness.get(LEASES, ID)
        holder = lease["spec"]["holderIdentity"]
        assert event["message"] == f"{holder} became leader"
        assert event["source"] == {"component": holder}
        about = event["involvedObject"]
        assert (about["kind"], about["name"], about["uid"]) == ("Lease", ID, lease["metadata"]["uid"])


async def test_a_stopped_leader_hands_over_at_once() -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    async with (
        start_harness() as harness,
        running_controller(harness, LEADING, stop=stop) as task,
        waiting(harness) as (_, worked),
    ):
        await harness.submit("one")
        await harness.settle()
        await harness.set_phase("Running")
        await harness.settle(2)
        await harness.submit("two")
        await harness.settle(0.001)  # a reconcile is running
        before = loop.time()
        await stopped(task, stop)
        await harness.settle()

        assert worked[0] - before < 0.5
        await harness.submit("three")
        await harness.settle()
        assert len(await harness.names(PODS)) == 6
        await harness.set_phase("Succeeded", code=0)
        await harness.settle(5)
        for name in ("one", "two", "three"):
            assert (await harness.conditions(name)).endswith("Succeeded T")
        assert harness.faults.count("create", "pods") == 6, "nothing was tried twice"


async def test_a_controller_that_loses_its_lease_ends_and_another_continues() -> None:
    loop = asyncio.get_running_loop()
    async with (
        start_harness() as harness,
        running_controller(harness, LEADING) as task,
        waiting(harness) as (_, worked),
    ):
        await harness.submit()
        await harness.settle(9)
        holder = (await harness.get(LEASES, ID))["spec"]["holderIdentity"]
        harness.faults.rules.append(Rule(Reset(), verb="update", containing=holder.encode()))
        await asyncio.wait([task])
        ended = loop.time()
        with pytest.raises(NotLeading, match=ID):
            await task
        await harness.settle(10)

        assert worked[0] > ended
        await harness.submit("other")
        await harness.settle()
        assert len(await harness.names(PODS)) == 4


async def test_a_controller_that_does_not_lead_sends_no_write() -> None:
    """This happens when a process is paused during a reconcile: its own clock shows that its lease has expired."""
    loop = asyncio.get_running_loop()
    asleep = 0.0
    rule = Rule(Delay(1), verb="create", plural="pods")
    async with start_harness(rule) as harness:
        task = asyncio.create_task(app.run(LEADING, harness.connection, time=lambda: loop.time() + asleep))
        await harness.settle(1)
        await harness.submit(workers=99)
        await harness.settle(0.5)
        asleep = 12.0
        harness.faults.calls.clear()
        await asyncio.wait([task])

        assert isinstance(task.exception(), NotLeading)
        assert [call for call in harness.calls if call.verb not in {"get", "list", "watch"}] == []


async def test_a_leader_that_gets_the_lease_handed_over_does_not_list_again() -> None:
    stop = asyncio.Event()
    async with (
        start_harness() as harness,
        running_controller(harness, LEADING, stop=stop),
        waiting(harness) as (_, worked),
    ):
        await harness.submit()
        await harness.settle()
        await harness.set_phase("Running")
        await harness.settle()
        harness.faults.calls.clear()
        stop.set()
        await harness.settle()

        assert worked
        assert harness.faults.count("watch") == harness.faults.count("list") == 0


async def test_a_leader_after_a_crash_lists_small_caches_before_it_writes() -> None:
    """A cache that lags behind the last writes of the old leader would show failures that it already counted and deleted."""
    async with (
        start_harness() as harness,
        running_controller(harness, LEADING) as leader,
        waiting(harness) as (_, worked),
    ):
        await harness.submit()
        await harness.settle(0.1)
        leader.cancel()
        await asyncio.wait([leader])
        harness.faults.calls.clear()
        await harness.submit("other")
        await harness.settle(30)
        assert worked

        calls = [(call.verb, call.plural) for call in harness.calls]
        taken = calls.index(("update", "leases"))
        watched = [calls.index(("watch", plural), taken) for plural in ("pods", "services", RESOURCE.plural)]
        assert max(watched) < calls.index(("create", "pods"))


async def test_a_running_mpi_operator_and_the_controller_do_not_work_at_once() -> None:
    """The controller waits while mpi-operator holds its Lease, then holds that Lease until it stops."""
    theirs = {"holderIdentity": "mpi-operator-0", "leaseDurationSeconds": 15}
    async with start_harness(crds=(MPI_JOBS,)) as harness:
        await harness.create(LEASES, {"metadata": {"name": "mpi-operator"}, "spec": theirs})
        async with waiting(harness, replace(LEADING, enable_scheme=("MPIJob",))) as (_, worked):
            await harness.settle(14)
            assert worked == []
            await harness.settle(10)

            assert len(worked) == 1
            ours, held = [
                (await harness.get(LEASES, name))["spec"]["holderIdentity"] for name in (ID, "mpi-operator")
            ]
            assert ours == held


async def test_the_first_leader_does_not_list_twice() -> None:
    async with start_harness() as harness, running_controller(harness, LEADING):
        await harness.settle()

        assert harness.faults.count("watch", "pods") == 1


async def test_a_controller_without_a_served_kind_does_not_acquire_the_lease() -> None:
    async with start_harness(crds=()) as harness, starting(harness, LEADING) as answer:
        await harness.settle(120)
        assert await answer("/readyz") == (500, "not served: pytorchjobs\n")
        assert await harness.items(LEASES) == []
        await harness.define([definition(RESOURCE)])
        await harness.submit()
        await harness.settle(60)

        assert len(await harness.names(PODS)) == 2
        assert await answer("/readyz") == (200, "ok\n")


async def test_the_lease_is_not_acquired_while_common_resources_cannot_be_read() -> None:
    rule = Rule(Refuse(403, "Forbidden", "not you"), plural="services")
    async with start_harness(rule) as harness, starting(harness, LEADING) as answer:
        await harness.settle(120)

        assert await answer("/readyz") == (500, "not served: services\n")
        assert await harness.items(LEASES) == []


async def test_a_leader_without_a_served_kind_releases_the_lease() -> None:
    loop = asyncio.get_running_loop()
    async with start_harness() as harness, running_controller(harness, LEADING) as task:
        await harness.submit()
        await harness.settle()
        await harness.delete(DEFINITIONS, CRD_NAME)
        before = loop.time()
        with pytest.raises(NothingServed, match="pytorchjobs: not served"):
            await task

        assert 15 <= loop.time() - before < 30
        assert (await harness.get(LEASES, ID))["spec"]["holderIdentity"] == ""


async def test_a_replaced_definition_does_not_end_the_controller() -> None:
    async with start_harness() as harness, running_controller(harness, LEADING) as task:
        await harness.settle()
        await harness.delete(DEFINITIONS, CRD_NAME)
        await harness.settle(3)
        await harness.define([definition(RESOURCE)])
        await harness.submit()
        await harness.settle(60)

        assert not task.done()
        assert len(await harness.names(PODS)) == 2


@pytest.mark.parametrize(
    ("settings", "namespace", "leases"),
    [
        pytest.param(TEST_SETTINGS, "pods-own", [], id="without election"),
        pytest.param(LEADING, "pods-own", [(NAMESPACE, ID)], id="the namespace that is named"),
        pytest.param(
            replace(TEST_SETTINGS, leader_elect=True, leader_election_id="x"),
            "own",
            [("own", "x")],
            id="the pod's own",
        ),
        pytest.param(
            replace(TEST_SETTINGS, leader_elect=True, leader_election_id="x", enable_scheme=()),
            "own",
            [("own", "x"), ("own", "mpi-operator")],
            id="mpi-operator's, too",
        ),
        pytest.param(
            replace(
                TEST_SETTINGS,
                leader_elect=True,
                leader_election_id="x",
                enable_scheme=("mpijob",),
                lock_namespace="theirs",
            ),
            "own",
            [("own", "x"), ("theirs", "mpi-operator")],
            id="where mpi-operator has it",
        ),
    ],
)
def test_the_settings_name_the_leases(
    settings: Settings, namespace: str, leases: list[tuple[str, str]]
) -> None:
    assert leases_from(settings, Connection("http://server", namespace=namespace)) == leases


def test_a_lease_without_a_namespace_is_an_error() -> None:
    with pytest.raises(NoNamespace, match="--leader-election-namespace"):
        leases_from(replace(TEST_SETTINGS, leader_elect=True), Connection("http://server"))


async def test_a_failed_job_is_counted() -> None:
    with fake_clock() as now:
        async with start_harness(clock=now) as harness, starting(harness) as answer:
            await harness.settle()
            await harness.submit(
                "wrong", pytorchReplicaSpecs={"Master": {"template": template("tensorflow")}}
            )
            await harness.settle()

            lines = (await answer("/metrics"))[1].splitlines()
            counts = [line for line in lines if line.startswith("training_operator_jobs_")]
            labels = '{framework="pytorch",job_namespace="default"}'
            assert f"training_operator_jobs_failed_total{labels} 1.0" in counts
            assert f"training_operator_jobs_created_total{labels} 1.0" in counts
            assert f"training_operator_jobs_successful_total{labels} 0.0" in counts


@pytest.mark.parametrize(
    ("names", "served"),
    [
        pytest.param([], kinds.DEFAULT, id="none named, the default ones served"),
        pytest.param(["mxjob"], (MXNET,), id="an opt-in kind"),
        pytest.param(["pytorchjob"], (PYTORCH,), id="in small letters"),
        pytest.param(["PyTorchJob", "PYTORCHJOB"], (PYTORCH,), id="named twice"),
    ],
)
def test_the_settings_select_the_kinds(names: list[str], served: tuple[Any, ...]) -> None:
    assert kinds_named(names) == served


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(UnknownKind, match="--enable-scheme SparkJob: not a served kind"):
        kinds_named(["PyTorchJob", "SparkJob"])


def test_options_follow_the_settings(tmp_path: Path) -> None:
    (path := tmp_path / "init.yaml").write_text("- name: wait\n")
    settings = replace(
        TEST_SETTINGS,
        of_kinds=(
            PyTorchOptions(
                init_container=False,
                init_container_image="busybox",
                init_container_max_tries=7,
                init_container_template_file=str(path),
            ),
        ),
        max_replicas=5,
        cluster_domain="cluster.local",
    )

    options = options_from(settings)

    own = options.of(PyTorchOptions)
    assert (own.init_container, own.init_container_image, options.max_replicas) == (False, "busybox", 5)
    assert (own.init_container_max_tries, own.init_container_template) == (7, "- name: wait\n")
    assert options.cluster_domain == "cluster.local"


def test_options_have_a_default_template() -> None:
    """Only the default path may be missing, because no user set it."""
    assert options_from(Settings()).of(PyTorchOptions).init_container_template == ""


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(None, "No such file or directory", id="it is missing"),
        pytest.param(b"- name: [", "it is not YAML", id="no YAML"),
        pytest.param(b"", "it is not a list of containers", id="empty"),
        pytest.param(b"name: wait", "it is not a list of containers", id="one container, no list"),
        pytest.param(b"- name: a\n- wait", "entry 2 of its list is not a container", id="a word"),
        pytest.param(b"- image: a", "entry 1 of its list is not a container with a name", id="no name"),
        pytest.param(
            b"- name: 7", "entry 1 of its list is not a container with a name", id="a number for a name"
        ),
        pytest.param(b"\xff", "can't decode", id="no text"),
    ],
)
def test_an_unusable_template_is_reported_at_the_start(
    tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    path = tmp_path / "init.yaml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InvalidOption, match=complaint) as caught:
        options_from(
            replace(TEST_SETTINGS, of_kinds=(PyTorchOptions(init_container_template_file=str(path)),))
        )
    assert str(caught.value).startswith(f"--pytorch-init-container-template-file {path}: ")


def test_a_template_is_validated_with_its_fields_filled_in(tmp_path: Path) -> None:
    text = "- {name: wait, command: [nslookup, {{.MasterAddr}}], image: {{.InitContainerImage}}}"
    (path := tmp_path / "init.yaml").write_text(text)

    options = options_from(
        replace(TEST_SETTINGS, of_kinds=(PyTorchOptions(init_container_template_file=str(path)),))
    )

    assert options.of(PyTorchOptions).init_container_template == text
