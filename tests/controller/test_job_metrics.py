"""The metrics of jobs that the whole controller serves, on loop time."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.meta import PODS
from api.mpijob import RESOURCE as MPI_JOBS
from api.mpijob import Flavor
from api.v1.pytorchjob import RESOURCE
from rallypoint.local.batch.jobs import Jobs
from tests.support.builders import pod_status, template
from tests.support.faults import Cut, Refuse, Rule
from tests.support.harness import (
    TEST_SETTINGS,
    Answer,
    Harness,
    fake_clock,
    start_harness,
    starting,
)
from tests.support.mpi import container

GPU = "nvidia.com/gpu"
ON_FAILURE = {"replicas": 1, "restartPolicy": "OnFailure", "template": template()}


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def values(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Return the values of a family that are not 0, by one label."""
        return {
            sample.labels[label]: sample.value
            for sample in self._samples
            if sample.name == name and sample.value and labels.items() <= sample.labels.items()
        }

    @property
    def states(self) -> dict[str, float]:
        return self.values("rallypoint_jobs", "state")

    @property
    def replicas(self) -> dict[str, float]:
        return self.values("rallypoint_job_replicas", "state")

    @property
    def gpus(self) -> dict[str, float]:
        return self.values("rallypoint_job_requested_resources", "state", resource=GPU)

    @property
    def restarts(self) -> dict[str, float]:
        return self.values("rallypoint_job_pod_restarts_total", "reason")

    @property
    def failures(self) -> dict[str, float]:
        return self.values("rallypoint_job_failures_total", "reason")

    @property
    def oldest_pending_seconds(self) -> dict[str, float]:
        return self.values("rallypoint_job_oldest_pending_seconds", "framework")

    @property
    def oldest_holding_seconds(self) -> dict[str, float]:
        return self.values("rallypoint_job_oldest_holding_seconds", "framework")

    @property
    def phases(self) -> dict[str, float]:
        """The number of jobs that reached each phase."""
        return self.values("rallypoint_job_phase_seconds_count", "phase")

    @property
    def phase_seconds(self) -> dict[str, float]:
        """The sum for each phase."""
        return self.values("rallypoint_job_phase_seconds_sum", "phase")


@pytest.fixture
def clock() -> Iterator[Any]:
    with fake_clock() as now:
        yield now


@asynccontextmanager
async def controller(now: Any, *crds: Any) -> AsyncGenerator[tuple[Harness, Answer]]:
    """Start a server and the controller of its kinds."""
    kinds = crds or (RESOURCE,)
    settings = replace(TEST_SETTINGS, enable_scheme=tuple(kind.kind for kind in kinds))
    async with start_harness(crds=kinds, clock=now) as harness, starting(harness, settings) as answer:
        await harness.settle()
        yield harness, answer


async def scrape(answer: Answer) -> Scrape:
    return Scrape((await answer("/metrics"))[1])


def gpus(count: int, **fields: Any) -> dict[str, Any]:
    """Return a role of pods that request this many GPUs each."""
    return {"template": template(resources={"limits": {GPU: count}}), **fields}


async def test_the_life_of_a_job(clock: Any) -> None:
    async with controller(clock) as (harness, answer):
        roles = {"Master": gpus(1), "Worker": gpus(2, replicas=2)}
        await harness.submit(pytorchReplicaSpecs=roles, runPolicy={"cleanPodPolicy": "None"})
        await harness.settle(10)
        pending = await scrape(answer)
        assert (pending.states, pending.replicas, pending.gpus) == (
            {"pending": 1},
            {"pending": 3},
            {"pending": 5},
        )
        assert pending.oldest_pending_seconds == {"pytorch": 10}
        assert (pending.phases, pending.phase_seconds) == ({"created": 1}, {})

        await harness.set_phase("Running")
        await harness.settle(20)
        running = await scrape(answer)
        assert (running.states, running.replicas, running.gpus) == (
            {"running": 1},
            {"running": 3},
            {"running": 5},
        )
        assert running.oldest_pending_seconds == {}
        assert running.phases == {"created": 1, "scheduled": 1, "started": 1, "running": 1}
        assert running.phase_seconds == {"scheduled": 10, "started": 10, "running": 10}

        await harness.set_phase("Succeeded", "train-master-0", code=0)
        await harness.settle()
        done = await scrape(answer)
        assert (done.states, done.replicas) == ({"succeeded": 1}, {"running": 2, "succeeded": 1})
        assert done.gpus == {"finished": 4}
        assert done.phases == dict.fromkeys(("created", "scheduled", "started", "running", "finished"), 1)
        assert done.phase_seconds["finished"] == 30

        await harness.set_phase("Succeeded", code=0)
        await harness.settle()
        assert (await scrape(answer)).gpus == {}

        await harness.delete(RESOURCE, "train")
        await harness.settle()
        gone = await scrape(answer)
        assert (gone.states, gone.replicas) == ({}, {})
        assert gone.phases == done.phases


async def test_a_suspended_job_waits_with_its_requests_and_counts_from_its_resumption(clock: Any) -> None:
    async with controller(clock) as (harness, answer):
        roles = {"Master": gpus(1), "Worker": gpus(2, replicas=2)}
        await harness.submit(pytorchReplicaSpecs=roles, runPolicy={"suspend": True})
        await harness.settle(100)
        suspended = await scrape(answer)
        assert (suspended.states, suspended.gpus, suspended.phases) == (
            {"suspended": 1},
            {"suspended": 5},
            {},
        )

        await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": False}}})
        await harness.settle(5)
        resumed = await scrape(answer)
        assert (resumed.states, resumed.gpus) == ({"pending": 1}, {"pending": 5})
        assert resumed.oldest_pending_seconds == {"pytorch": 5}

        await harness.set_phase("Running")
        await harness.settle()
        assert (await scrape(answer)).phase_seconds == {"scheduled": 5, "started": 5, "running": 5}

        await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": True}}})
        await harness.settle()
        await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": False}}})
        await harness.settle()
        assert (await scrape(answer)).restarts == {}

        await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": True}}})
        await harness.settle()
        again = await scrape(answer)
        assert (again.states, again.gpus) == ({"suspended": 1}, {"suspended": 5})


async def test_pods_that_cannot_be_created_are_pending_requests(clock: Any) -> None:
    """Another owner has the name of a pod."""
    async with controller(clock) as (harness, answer):
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-worker-0"}, **template()}
        await harness.create(PODS, body)
        roles = {"Master": gpus(1), "Worker": gpus(4)}
        await harness.submit(pytorchReplicaSpecs=roles)
        await harness.settle(10)

        blocked = await scrape(answer)
        assert (blocked.states, blocked.replicas, blocked.gpus) == (
            {"pending": 1},
            {"pending": 1},
            {"pending": 5},
        )
        assert blocked.phases == {}


async def test_a_failed_job(clock: Any) -> None:
    async with controller(clock) as (harness, answer):
        await harness.submit("wrong", pytorchReplicaSpecs={"Master": {"template": template("tensorflow")}})
        await harness.settle()

        failed = await scrape(answer)
        assert (failed.states, failed.phases) == ({"failed": 1}, {"finished": 1})


NEVER = {"restartPolicy": "Never"}
OOM_KILLED = pod_status("Failed", "pytorch", 137, reason="OOMKilled")
EVICTED = {"phase": "Failed", "reason": "Evicted"}
LAST_OOM = {
    "phase": "Running",
    "containerStatuses": [
        {
            **pod_status("Running", "pytorch")["containerStatuses"][0],
            "restartCount": 1,
            "lastState": OOM_KILLED["containerStatuses"][0]["state"],
        }
    ],
}


@pytest.mark.parametrize(
    ("role", "policy", "status", "reason"),
    [
        pytest.param(NEVER, {}, OOM_KILLED, "oom", id="a pod that is not restarted"),
        pytest.param(NEVER, {}, EVICTED, "evicted", id="an evicted pod"),
        pytest.param(
            {"restartPolicy": "ExitCode"}, {}, pod_status("Failed", "pytorch", 1), "error", id="an exit code"
        ),
        pytest.param(
            ON_FAILURE, {"backoffLimit": 1}, OOM_KILLED, "oom", id="a backoff limit reached by a failed pod"
        ),
        pytest.param(ON_FAILURE, {"backoffLimit": 1}, LAST_OOM, "oom", id="a backoff limit reached in place"),
        pytest.param(NEVER, {"activeDeadlineSeconds": 5}, {}, "deadline", id="a deadline"),
    ],
)
async def test_failed_jobs_are_counted_by_reason(
    clock: Any, role: dict[str, Any], policy: dict[str, Any], status: dict[str, Any], reason: str
) -> None:
    async with controller(clock) as (harness, answer):
        await harness.submit(
            pytorchReplicaSpecs={"Master": {"template": template(), **role}}, runPolicy=policy
        )
        await harness.settle()
        await harness.set_phase("Running")
        await harness.settle()
        await harness.change(PODS, "train-master-0", {"status": status}, "status")
        await harness.settle(10)

        failed = await scrape(answer)
        assert (failed.states, failed.failures) == ({"failed": 1}, {reason: 1})
        assert failed.values("training_operator_jobs_failed_total", "framework") == {"pytorch": 1}


async def test_a_job_whose_pods_the_server_refuses_is_invalid(clock: Any) -> None:
    async with controller(clock) as (harness, answer):
        refused = Refuse(422, "Invalid", "no", fields=(("spec.containers", "too few"),))
        harness.faults.rules.append(Rule(refused, verb="create", plural="pods"))
        await harness.submit()
        await harness.settle()

        failed = await scrape(answer)
        assert (failed.states, failed.failures) == ({"failed": 1}, {"invalid": 1})


async def test_a_job_that_runs_with_some_of_its_pods_waits(clock: Any) -> None:
    """It holds GPUs, and so may another one that waits for them."""
    async with controller(clock) as (harness, answer):
        await harness.submit(pytorchReplicaSpecs={"Master": gpus(1), "Worker": gpus(2, replicas=2)})
        await harness.settle()
        await harness.set_phase("Running", "train-master-0", "train-worker-0")
        await harness.settle(600)
        waiting = await scrape(answer)
        assert (waiting.states, waiting.gpus) == ({"running": 1}, {"pending": 2, "running": 3})
        assert waiting.oldest_pending_seconds["pytorch"] == pytest.approx(600, abs=2)

        await harness.set_phase("Running")
        await harness.settle()
        assert (await scrape(answer)).oldest_pending_seconds == {}

        await harness.delete(PODS, "train-worker-0", grace_period_seconds=0)
        await harness.settle(60)
        restarting = await scrape(answer)
        assert (restarting.gpus, restarting.oldest_pending_seconds) == ({"pending": 2, "running": 3}, {})

        for suspend in (True, False):
            await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": suspend}}})
            await harness.settle()
        await harness.set_phase("Running", "train-master-0")
        await harness.settle(600)
        assert (await scrape(answer)).oldest_pending_seconds["pytorch"] == pytest.approx(600, abs=2)


async def test_a_job_that_a_new_leader_finds_incomplete_waits_from_then_on(clock: Any) -> None:
    """Nobody knows whether its pods ran before."""
    async with start_harness(clock=clock) as harness:
        async with starting(harness):
            await harness.settle()
            await harness.submit()
            await harness.settle()
            await harness.set_phase("Running", "train-master-0")
            await harness.settle(600)
        async with starting(harness) as answer:
            await harness.settle(60)
            found = await scrape(answer)
            assert found.states == {"running": 1}
            assert 50 < found.oldest_pending_seconds["pytorch"] <= 60


async def test_the_phases_of_a_preempted_job_count_from_its_first_start(clock: Any) -> None:
    async with controller(clock) as (harness, answer):
        await harness.submit(pytorchReplicaSpecs={"Master": gpus(1)}, runPolicy={"suspend": True})
        await harness.settle(500)
        for suspend in (False, True, False):
            await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": suspend}}})
            await harness.settle()
            await harness.set_phase("Running")
            await harness.settle(600)
        await harness.set_phase("Succeeded", code=0)
        await harness.settle()

        done = await scrape(answer)
        assert done.phases["finished"] == done.phases["running"] == 1
        assert done.phase_seconds["finished"] == pytest.approx(3 * 600, abs=10)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param({"phase": "Succeeded", "code": 0}, id="it succeeded"),
        # Such a job has no completionTime.
        pytest.param({"phase": "Failed", "code": 1}, id="an exit code is permanent"),
    ],
)
async def test_pods_hold_resources_since_the_end_of_their_job(clock: Any, end: dict[str, Any]) -> None:
    """Also for the next leader; jobs whose pods are gone or request nothing hold nothing."""
    policy = {"cleanPodPolicy": "None"}

    async def finish(harness: Harness, name: str, role: dict[str, Any]) -> None:
        role = {"restartPolicy": "ExitCode", **role}
        roles = {"Master": role, "Worker": role}
        await harness.submit(name, pytorchReplicaSpecs=roles, runPolicy=policy)
        await harness.settle()
        await harness.set_phase("Running", f"{name}-master-0", f"{name}-worker-0")
        await harness.settle()
        await harness.set_phase(end["phase"], f"{name}-master-0", code=end["code"])

    async with start_harness(clock=clock) as harness:
        async with starting(harness) as answer:
            await harness.settle()
            await finish(harness, "plain", {"template": template()})
            await harness.settle(1000)
            assert (await scrape(answer)).oldest_holding_seconds == {}

            await finish(harness, "first", gpus(1))
            await harness.settle(600)
            await finish(harness, "second", gpus(1))
            await harness.settle(60)
            found = await scrape(answer)
            assert found.gpus == {"finished": 2}
            assert found.oldest_holding_seconds["pytorch"] == pytest.approx(660, abs=5)
        async with starting(harness) as answer:
            await harness.settle(60)
            taken_over = await scrape(answer)
            assert taken_over.oldest_holding_seconds["pytorch"] == pytest.approx(720, abs=10)

            await harness.set_phase("Succeeded", "first-worker-0", code=0)
            await harness.settle()
            one = await scrape(answer)
            assert one.oldest_holding_seconds["pytorch"] == pytest.approx(120, abs=10)

            await harness.delete(PODS, "second-worker-0", grace_period_seconds=0)
            await harness.settle()
            none = await scrape(answer)
            assert (none.gpus, none.oldest_holding_seconds) == ({}, {})


async def test_jobs_count_again_when_their_kind_is_served_again(clock: Any) -> None:
    """Meanwhile nothing observes them."""
    async with controller(clock) as (harness, answer):
        await harness.submit()
        await harness.settle(60)
        before = await scrape(answer)
        assert (before.states, before.oldest_pending_seconds) == ({"pending": 1}, {"pytorch": 60})

        rules = [Rule(Cut(), plural=RESOURCE.plural), Rule(Refuse(404, "NotFound"), plural=RESOURCE.plural)]
        harness.faults.rules += rules
        await harness.settle(300)
        unserved = await scrape(answer)
        assert (unserved.states, unserved.replicas, unserved.oldest_pending_seconds) == ({}, {}, {})

        harness.faults.rules.clear()
        await harness.settle(60)
        again = await scrape(answer)
        assert (again.states, again.phases) == (before.states, before.phases)
        assert again.oldest_pending_seconds["pytorch"] > 360


async def test_a_pod_that_scaling_down_removed_is_no_restart(clock: Any) -> None:
    async with controller(clock) as (harness, answer):
        await harness.submit(workers=2)
        await harness.settle()
        await harness.bind("train-worker-1", "node-0")
        await harness.set_phase("Running")
        await harness.settle()
        for workers in (1, 2):
            roles = {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}
            await harness.change(RESOURCE, "train", {"spec": roles})
            await harness.settle()
        await harness.delete(PODS, "train-worker-1", grace_period_seconds=0)
        await harness.settle(5)

        assert "train-worker-1" in await harness.names(PODS)
        assert (await scrape(answer)).restarts == {}


async def test_a_pod_that_a_rule_replaces_before_it_has_run_is_a_restart(clock: Any) -> None:
    rule = {"action": "RestartPod", "onReasons": ["ImagePullBackOff"], "forSeconds": 0}
    async with controller(clock) as (harness, answer):
        await harness.submit(workers=1, runPolicy={"failurePolicy": {"rules": [rule]}})
        await harness.settle()
        await harness.bind("train-worker-0", "node-0")
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}
        container = {"name": "pytorch", "ready": False, "restartCount": 0, "state": waiting}
        status = {"phase": "Pending", "containerStatuses": [container]}
        await harness.change(PODS, "train-worker-0", {"status": status}, "status")
        await harness.settle(5)
        await harness.delete(PODS, "train-worker-0", grace_period_seconds=0)
        await harness.settle(5)

        assert (await scrape(answer)).restarts == {"other": 1}


async def test_a_restart_of_the_whole_job_is_counted_by_its_action(clock: Any) -> None:
    rules = [{"action": "RestartJobAndIgnoreMaxRestarts"}]
    async with controller(clock) as (harness, answer):
        await harness.submit(runPolicy={"failurePolicy": {"rules": rules}})
        await harness.settle()
        await harness.set_phase("Running")
        await harness.settle()
        await harness.set_phase("Failed", "train-worker-0", code=1)
        await harness.settle()

        found = (await scrape(answer)).values("rallypoint_job_restarts_total", "action")
        assert found == {"RestartJobAndIgnoreMaxRestarts": 1}


async def test_a_failed_pod_is_counted_when_it_is_replaced(clock: Any) -> None:
    async with controller(clock) as (harness, answer):
        await harness.submit(pytorchReplicaSpecs={"Master": ON_FAILURE, "Worker": ON_FAILURE})
        await harness.settle()
        await harness.set_phase("Running")
        await harness.settle()
        await harness.set_phase("Failed", "train-worker-0", code=1)
        await harness.settle()

        restarted = await scrape(answer)
        assert (restarted.states, restarted.restarts) == ({"running": 1}, {"error": 1})
        assert restarted.values("training_operator_jobs_restarted_total", "framework") == {"pytorch": 1}

        await harness.delete(PODS, "train-worker-0", grace_period_seconds=0)
        await harness.settle()
        assert (await scrape(answer)).restarts == {"error": 1, "other": 1}


async def test_a_new_leader_counts_only_what_happens_then(clock: Any) -> None:
    async with start_harness(clock=clock) as harness:
        async with starting(harness):
            await harness.settle()
            await harness.submit()
            await harness.settle()
            await harness.set_phase("Running")
            await harness.settle(10)
        async with starting(harness) as answer:
            await harness.settle()
            taken_over = await scrape(answer)
            assert (taken_over.states, taken_over.phases, taken_over.restarts) == ({"running": 1}, {}, {})

            await harness.set_phase("Succeeded", code=0)
            await harness.settle()
            assert (await scrape(answer)).phases == {"finished": 1}


async def test_a_job_of_another_controller_does_not_count(clock: Any) -> None:
    async with controller(clock) as (harness, answer):
        await harness.submit(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
        await harness.settle()

        assert (await scrape(answer)).states == {}


async def test_a_job_that_is_deleted_during_its_status_write_does_not_count(clock: Any) -> None:
    async with controller(clock) as (harness, answer):
        for number in range(20):
            await harness.submit(f"train-{number}")
            await harness.settle(0.01)
            await harness.delete(RESOURCE, f"train-{number}")
        await harness.settle()

        assert (await scrape(answer)).states == {}


async def test_the_launcher_of_an_mpijob(clock: Any) -> None:
    """The pods of the launcher's Job count like the others, and its failed attempts as restarts."""

    def role(gpus: int, **fields: Any) -> dict[str, Any]:
        template = {"spec": {"containers": [container(resources={"limits": {GPU: gpus}})]}}
        return {"template": template, **fields}

    jobs = Flavor.V2BETA1.resource
    async with controller(clock, MPI_JOBS) as (harness, answer), asyncio.TaskGroup() as group:
        batch = group.create_task(Jobs(harness.client, now=clock).run())
        body = {"apiVersion": jobs.api_version, "kind": jobs.kind, "metadata": {"name": "pi"}}
        roles = {"Launcher": role(1, restartPolicy="Never"), "Worker": role(4, replicas=2)}
        await harness.create(jobs, {**body, "spec": {"mpiReplicaSpecs": roles}})
        await harness.settle(2)
        pending = await scrape(answer)
        assert (pending.states, pending.replicas) == ({"pending": 1}, {"pending": 3})
        assert (pending.gpus, pending.phases) == ({"pending": 9}, {"created": 1})

        await harness.set_phase("Running", container="mpi")
        await harness.settle(2)
        running = await scrape(answer)
        assert (running.states, running.gpus) == ({"running": 1}, {"running": 9})

        (launcher,) = [name for name in await harness.names(PODS) if "launcher" in name]
        await harness.set_phase("Failed", launcher, code=1, container="mpi")
        await harness.settle(5)
        assert (await scrape(answer)).restarts == {}
        await harness.settle(60)
        assert (await scrape(answer)).restarts == {"error": 1}
        batch.cancel()


async def test_a_job_that_goes_while_its_kind_is_not_served_does_not_count(clock: Any) -> None:
    """Its watch breaks and is refused, so that no event reports the deletion; then the kind is served again."""
    async with controller(clock) as (harness, answer):
        await harness.submit(runPolicy={"suspend": True})
        await harness.settle()
        assert (await scrape(answer)).states == {"suspended": 1}
        rules = [Rule(Cut(), plural=RESOURCE.plural), Rule(Refuse(404, "NotFound"), plural=RESOURCE.plural)]
        harness.faults.rules += rules
        await harness.delete(RESOURCE, "train")
        await harness.settle(60)
        assert (await answer("/readyz"))[0] == 500
        assert (await scrape(answer)).states == {}
        harness.faults.rules.clear()
        await harness.settle(60)
        assert (await answer("/readyz"))[0] == 200

        assert (await scrape(answer)).states == {}


async def test_series_of_an_idle_namespace_go_after_an_hour(clock: Any) -> None:
    async with controller(clock) as (harness, answer):
        await harness.submit()
        await harness.settle()
        await harness.delete(RESOURCE, "train")
        await harness.settle()
        assert 'job_namespace="default"' in (await answer("/metrics"))[1]

        await harness.settle(3600)
        assert 'job_namespace="default"' not in (await answer("/metrics"))[1]
