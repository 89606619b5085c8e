"""v2beta1 jobs on the embedded API server with its controller of batch Jobs: calls and failures."""

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from api.batch import BATCH_JOBS
from api.meta import CONFIG_MAPS, EVENTS, PODS, SECRETS, SERVICES, Resource
from api.mpijob import RESOURCE, Flavor
from api.nodes import NODES
from controller.kinds.mpi.hosts import WAIT_ANNOTATION
from controller.kinds.mpi.options import MPIOptions
from controller.runtime import clock
from rallypoint.local.batch.jobs import Jobs
from tests.support.faults import Cut, Delay, Drop, Refuse, Reset, Rule
from tests.support.harness import (
    NAMESPACE,
    TEST_SETTINGS,
    Harness,
    fake_clock,
    running_controller,
    start_harness,
)
from tests.support.mpi import container

JOB = Flavor.V2BETA1.resource
SETTINGS = replace(TEST_SETTINGS, enable_scheme=(RESOURCE.kind,))


class Play:
    """The user and the kubelet of the job ``pi``."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.watched = {call.plural for call in harness.calls if call.verb == "watch"}
        """What the controller has begun to watch."""

    async def submit(
        self, workers: int = 2, metadata: Mapping[str, Any] | None = None, **spec: Any
    ) -> dict[str, Any]:
        template = {"spec": {"containers": [container()]}}
        roles = {"Launcher": {"template": template}, "Worker": {"replicas": workers, "template": template}}
        body = {
            "apiVersion": JOB.api_version,
            "kind": JOB.kind,
            "metadata": {"name": "pi", **(metadata or {})},
        }
        made = await self.harness.create(JOB, {**body, "spec": {"mpiReplicaSpecs": roles, **spec}})
        await self.harness.settle(2)
        return made

    async def run(self, *names: str) -> None:
        """These pods run; all that do not yet, if none is named."""
        for name in names or await self.harness.names(PODS):
            now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            ready = {"type": "Ready", "status": "True"}
            state = {
                "name": "mpi",
                "image": "i",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            await self.harness.change(
                PODS,
                name,
                {"status": {"phase": "Running", "conditions": [ready], "containerStatuses": [state]}},
                "status",
            )
        await self.harness.settle(2)

    async def end(self, phase: str = "Succeeded", code: int = 0) -> None:
        """The launcher's pod ends."""
        (name,) = [pod for pod in await self.harness.names(PODS) if "launcher" in pod]
        state = {
            "name": "mpi",
            "image": "i",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": code}},
        }
        await self.harness.change(
            PODS, name, {"status": {"phase": phase, "containerStatuses": [state]}}, "status"
        )
        await self.harness.settle(5)

    async def conditions(self) -> str:
        status = (await self.harness.get(JOB, "pi")).get("status") or {}
        return ", ".join(
            f"{condition['type']} {condition['status'][0]}" for condition in status.get("conditions") or ()
        )

    async def condition(self, type_: str) -> dict[str, Any]:
        conditions = (await self.harness.get(JOB, "pi"))["status"]["conditions"]
        return next(condition for condition in conditions if condition["type"] == type_)

    async def events(self) -> list[tuple[str, str]]:
        return [
            (event["reason"], event["message"])
            for event in await self.harness.items(EVENTS)
            if event["involvedObject"]["kind"] == JOB.kind
        ]

    def counts(self) -> Counter[tuple[str, str]]:
        return Counter((call.verb, call.plural) for call in self.harness.calls if call.verb != "watch")


@asynccontextmanager
async def playing(*rules: Rule, settings: Any = SETTINGS) -> AsyncGenerator[Play]:
    with fake_clock() as now:
        async with start_harness(*rules, crds=(RESOURCE,), clock=now) as harness:
            batch = asyncio.create_task(Jobs(harness.client, now=now).run())
            try:
                async with running_controller(harness, settings):
                    await harness.settle()
                    play = Play(harness)
                    harness.faults.calls.clear()
                    yield play
            finally:
                batch.cancel()
                await asyncio.gather(batch, return_exceptions=True)


@pytest.mark.parametrize("workers", [1, 8, 64])
async def test_a_successful_job_takes_a_fixed_number_of_calls(workers: int) -> None:
    """At most R + 12 calls: creates, another write of the hosts, three statuses and three events, and no reads."""
    async with playing() as it:
        await it.submit(workers)
        await it.run()
        await it.end()
        await it.harness.settle(10)
        counts = it.counts()

        assert await it.conditions() == "Created T, Running F, Succeeded T"
        assert counts.total() <= workers + 12
        assert {key: counts[key] for key in counts if key[0] in {"get", "list"}} == {}
        assert counts["patch", "configmaps"] == 1


@pytest.mark.parametrize(
    ("phase", "code", "end"),
    [("Succeeded", 0, "job succeeded"), ("Failed", 3, "job failed")],
    ids=["success", "failure"],
)
async def test_the_log_tells_the_whole_life_of_a_job(phase: str, code: int, end: str) -> None:
    with capture_logs([merge_contextvars]) as logs:
        async with playing() as it:
            await it.submit(runPolicy={"suspend": True, "backoffLimit": 0})
            await it.harness.change(JOB, "pi", {"spec": {"runPolicy": {"suspend": False}}})
            await it.harness.settle(2)
            await it.run()
            await it.end(phase, code)
            await it.harness.settle(10)
            await it.harness.delete(JOB, "pi")
            await it.harness.settle(2)

    steps = [line["event"] for line in logs if line["event"].startswith("job ")]
    assert steps == ["job created", "job suspended", "job resumed", "job running", end, "job deleted"]


async def test_events_name_the_job_controller() -> None:
    """Under another name than children are marked with, as mpi-operator has them."""
    async with playing() as it:
        await it.submit()
        events = [
            event for event in await it.harness.items(EVENTS) if event["involvedObject"]["kind"] == JOB.kind
        ]
        made = await it.harness.get(PODS, "pi-worker-0")

        assert {event["source"]["component"] for event in events} == {"mpi-job-controller"}
        assert made["metadata"]["labels"]["training.kubeflow.org/operator-name"] == "mpi-operator"


async def test_hosts_are_written_twice_though_workers_start_in_sequence() -> None:
    async with playing() as it:
        await it.submit(8)
        for index in range(8):
            await it.run(f"pi-worker-{index}")
        data = (await it.harness.get(CONFIG_MAPS, "pi-config"))["data"]

        assert data["discover_hosts.sh"].count("echo") == 8
        assert it.counts()["create", "configmaps"] + it.counts()["patch", "configmaps"] == 2


def foreign(resource: Resource, name: str) -> dict[str, Any]:
    """Somebody else's object."""
    body: dict[str, Any] = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
    }
    specs: Mapping[Resource, dict[str, Any]] = {
        SERVICES: {"spec": {"ports": [{"port": 80}]}},
        CONFIG_MAPS: {"data": {"theirs": "x"}},
        SECRETS: {"stringData": {"theirs": "x"}},
        BATCH_JOBS: {
            "spec": {
                "suspend": True,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container()]}},
            }
        },
    }
    return {**body, **specs[resource]}


@pytest.mark.parametrize("policy", ["AtStartup", "WaitForWorkersReady"])
@pytest.mark.parametrize(
    ("resource", "name"),
    [(SERVICES, "pi"), (CONFIG_MAPS, "pi-config"), (SECRETS, "pi-ssh"), (BATCH_JOBS, "pi-launcher")],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_name_conflict_blocks_the_job(resource: Resource, name: str, policy: str) -> None:
    """The job names the conflict and the way out, nothing is overwritten, no worker is created, and the job continues when
    the name is free.
    """
    async with playing() as it:
        before = await it.harness.create(resource, foreign(resource, name))
        await it.submit(launcherCreationPolicy=policy)
        await it.harness.settle(20)

        event = (
            "ErrResourceExists",
            f'Resource "{name}" of Kind "" already exists and is not managed by MPIJob',
        )
        assert event in await it.events()
        condition = await it.condition("Running")
        assert (condition["status"], condition["reason"]) == ("False", "MPIJobBlocked")
        assert condition["message"].endswith(
            f"belongs to nobody: delete the {resource.kind} {name}, or give the MPIJob another name"
        )
        left = await it.harness.get(resource, name)
        assert (left["metadata"]["uid"], left.get("data")) == (before["metadata"]["uid"], before.get("data"))
        assert await it.harness.names(PODS) == []
        assert ("create", "pods") not in it.counts()

        await it.harness.delete(resource, name, grace_period_seconds=0, propagation="Background")
        await it.harness.settle(400)
        await it.run()
        await it.harness.settle(60)
        await it.run()
        assert await it.conditions() == "Created T, Running T"


async def test_a_launcher_is_suspended_whatever_blocks_the_job() -> None:
    """The quota must be released although a foreign object has a name of the job."""
    async with playing() as it:
        await it.submit()
        await it.run()
        await it.harness.delete(SECRETS, "pi-ssh")
        await it.harness.create(SECRETS, foreign(SECRETS, "pi-ssh"))
        await it.harness.change(JOB, "pi", {"spec": {"runPolicy": {"suspend": True}}})
        await it.harness.settle(10)

        assert "ErrResourceExists" in {reason for reason, _ in await it.events()}
        assert (await it.harness.get(BATCH_JOBS, "pi-launcher"))["spec"]["suspend"] is True
        assert await it.harness.names(PODS) == []


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"launcherCreationPolicy": "WaitForWorkersReady"}, "MPIJobBlocked", id="waiting"),
        pytest.param({"runPolicy": {"suspend": True}}, "MPIJobSuspended", id="suspended"),
    ],
)
async def test_a_blocked_job_has_a_stable_condition(spec: dict[str, Any], reason: str) -> None:
    """Repeated reconciles do not change the status."""
    async with playing() as it:
        await it.harness.create(SECRETS, foreign(SECRETS, "pi-ssh"))
        await it.submit(**spec)
        await it.harness.settle(60)
        before = await it.harness.get(JOB, "pi")
        await it.harness.settle(600)

        assert (await it.condition("Running"))["reason"] == reason
        assert "ErrResourceExists" in {event_reason for event_reason, _ in await it.events()}
        assert (await it.harness.get(JOB, "pi"))["metadata"]["resourceVersion"] == before["metadata"][
            "resourceVersion"
        ]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="waiting"),
        pytest.param({"launcherCreationPolicy": "WaitForWorkersReady"}, id="waiting for its workers"),
        pytest.param({"runPolicy": {"suspend": True}}, id="suspended"),
    ],
)
@pytest.mark.parametrize("suspends_later", [False, True])
async def test_a_restarted_controller_writes_nothing_new_for_a_blocked_job(
    spec: dict[str, Any], suspends_later: bool
) -> None:
    with fake_clock() as now:
        async with start_harness(crds=(RESOURCE,), clock=now) as harness:
            await harness.create(SECRETS, foreign(SECRETS, "pi-ssh"))
            async with running_controller(harness, SETTINGS):
                await Play(harness).submit(**spec)
                await harness.settle(60)
                if suspends_later:
                    await harness.change(JOB, "pi", {"spec": {"runPolicy": {"suspend": True}}})
                    await harness.settle(60)
            before = await harness.get(JOB, "pi")
            async with running_controller(harness, SETTINGS):
                await harness.settle(60)

                assert (await harness.get(JOB, "pi"))["metadata"]["resourceVersion"] == before["metadata"][
                    "resourceVersion"
                ]


async def test_all_name_conflicts_are_reported_at_once() -> None:
    async with playing() as it:
        for resource, name in ((SERVICES, "pi"), (CONFIG_MAPS, "pi-config"), (SECRETS, "pi-ssh")):
            await it.harness.create(resource, foreign(resource, name))
        await it.submit()
        await it.harness.settle(1)

        message = (await it.condition("Running"))["message"]
        for wanted in ("Service pi,", "ConfigMap pi-config,", "Secret pi-ssh,"):
            assert f"delete the {wanted}" in message
        assert [reason for reason, _ in await it.events()].count("ErrResourceExists") == 3


async def test_the_launcher_waits_for_workers_once_nothing_blocks_the_job() -> None:
    async with playing() as it:
        await it.harness.create(SECRETS, foreign(SECRETS, "pi-ssh"))
        await it.submit(launcherCreationPolicy="WaitForWorkersReady")
        await it.harness.settle(60)
        await it.harness.delete(SECRETS, "pi-ssh")
        await it.harness.settle(400)

        condition = await it.condition("Running")
        assert condition["reason"] == "MPIJobWaitingForPods"
        assert condition["message"] == "The launcher waits for pi-worker-0, pi-worker-1."


CHILDREN = ((SERVICES, "pi"), (CONFIG_MAPS, "pi-config"), (SECRETS, "pi-ssh"))
CHILD = pytest.mark.parametrize(
    ("resource", "name"), CHILDREN, ids=[resource.kind for resource, _ in CHILDREN]
)
WATCHED = pytest.mark.parametrize(
    ("resource", "name"), CHILDREN[:2], ids=[resource.kind for resource, _ in CHILDREN[:2]]
)


@pytest.mark.parametrize("by", ["a try of the launcher", "a change of the spec"])
async def test_deleted_support_objects_are_created_again(by: str) -> None:
    """All of them are created when pods restart and when the spec changes."""
    async with playing() as it:
        await it.submit()
        await it.run()
        for resource, name in CHILDREN:
            await it.harness.delete(resource, name)
        if by == "a change of the spec":
            await it.harness.change(JOB, "pi", {"spec": {"runPolicy": {"activeDeadlineSeconds": 3600}}})
        else:
            (launcher,) = [pod for pod in await it.harness.names(PODS) if "launcher" in pod]
            states = (await it.harness.get(PODS, launcher))["status"]["containerStatuses"]
            again = [{**state, "restartCount": 1} for state in states]
            await it.harness.change(PODS, launcher, {"status": {"containerStatuses": again}}, "status")
        await it.harness.settle(5)

        assert [name for resource, name in CHILDREN if name in await it.harness.names(resource)] == [
            "pi",
            "pi-config",
            "pi-ssh",
        ]


@WATCHED
async def test_watched_objects_are_created_again_at_once(resource: Resource, name: str) -> None:
    async with playing() as it:
        await it.submit()
        await it.run()
        before = await it.harness.get(resource, name)
        await it.harness.delete(resource, name)
        await it.harness.settle(1)
        after = await it.harness.get(resource, name)

        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert after.get("data") == before.get("data")


async def test_repairs_of_a_job_whose_deletion_the_watch_lost_are_limited() -> None:
    """The garbage collector takes what is made for it, as often as it is made, while its pods are still ending."""
    async with playing() as it:
        await it.submit()
        await it.run()
        for name in await it.harness.names(PODS):
            await it.harness.change(PODS, name, {"metadata": {"finalizers": ["example.com/node"]}})
        lost = Rule(Drop(), verb="watch", plural=JOB.plural, containing=b'"DELETED"', times=1)
        it.harness.faults.rules.append(lost)
        await it.harness.delete(JOB, "pi")
        it.harness.faults.calls.clear()
        await it.harness.settle(60)

        assert lost.met == 1
        assert it.harness.faults.count("create", "configmaps") <= 1
        assert await it.harness.names(CONFIG_MAPS) == []


@CHILD
async def test_objects_that_pods_wait_for_are_created_again_soon(resource: Resource, name: str) -> None:
    """A pod that does not start may miss an object, so the controller checks with growing pauses."""
    async with playing() as it:
        await it.submit()
        await it.harness.delete(resource, name)
        await it.harness.settle(35)

        assert name in await it.harness.names(resource)


@CHILD
async def test_objects_that_running_pods_have_mounted_are_created_again_within_ten_minutes(
    resource: Resource, name: str
) -> None:
    async with playing() as it:
        await it.submit()
        await it.run()
        await it.harness.delete(resource, name)
        await it.harness.settle(600)

        assert name in await it.harness.names(resource)


async def test_checking_uncached_objects_takes_a_call_every_five_to_ten_minutes() -> None:
    async with playing() as it:
        await it.submit()
        await it.run()
        it.harness.faults.calls.clear()
        await it.harness.settle(6000)

        assert {key for key in it.counts() if key[0] != "list"} == {("get", "secrets")}
        assert 10 <= it.counts()["get", "secrets"] <= 20


async def test_checks_of_objects_that_waiting_pods_miss_become_infrequent() -> None:
    """An image may take long to be pulled: 30 s, and twice as long each time."""
    async with playing() as it:
        await it.submit()
        it.harness.faults.calls.clear()
        await it.harness.settle(600)

        assert it.harness.faults.count("get", "secrets") <= 5


async def test_a_suspended_job_causes_no_calls() -> None:
    async with playing() as it:
        await it.submit(runPolicy={"suspend": True})
        it.harness.faults.calls.clear()
        await it.harness.settle(3600)

        assert {key for key in it.counts() if key[0] != "list"} == set()


@pytest.mark.parametrize(
    ("resource", "name", "change"),
    [
        pytest.param(CONFIG_MAPS, "pi-config", {"data": {"hostfile": "none"}}, id="hosts"),
        pytest.param(SERVICES, "pi", {"spec": {"selector": {"app": "mine"}}}, id="selector"),
        pytest.param(
            CONFIG_MAPS,
            "pi-config",
            {"metadata": {"labels": {"training.kubeflow.org/job-name": None}}},
            id="the ConfigMap's label",
        ),
        pytest.param(
            SERVICES,
            "pi",
            {"metadata": {"labels": {"training.kubeflow.org/job-name": None}}},
            id="the Service's label",
        ),
    ],
)
async def test_changed_support_objects_are_restored_at_once(
    resource: Resource, name: str, change: dict[str, Any]
) -> None:
    async with playing() as it:
        await it.submit()
        await it.run()
        before = await it.harness.get(resource, name)
        await it.harness.change(resource, name, change)
        await it.harness.settle(1)
        after = await it.harness.get(resource, name)

        for part in ("data", "spec"):
            assert after.get(part) == before.get(part)
        assert after["metadata"]["labels"] == before["metadata"]["labels"]


@WATCHED
async def test_objects_of_mpi_operator_are_labeled_once(resource: Resource, name: str) -> None:
    async with start_harness(crds=(RESOURCE,)) as harness:
        async with running_controller(harness, SETTINGS):
            await Play(harness).submit()
        await harness.change(
            resource, name, {"metadata": {"labels": {"training.kubeflow.org/job-name": None}}}
        )
        harness.faults.calls.clear()
        async with running_controller(harness, SETTINGS):
            await harness.settle(5)
            labels = (await harness.get(resource, name))["metadata"]["labels"]
            writes = [
                (call.verb, call.plural)
                for call in harness.calls
                if call.verb not in {"watch", "get", "list"}
            ]

            assert labels == {"app": "pi", "training.kubeflow.org/job-name": "pi"}
            assert writes == [("patch", resource.plural)]


async def test_foreign_config_maps_are_not_watched_and_others_without_their_content() -> None:
    """So they take no memory, however many there are."""
    rules = [
        Rule(Drop(), verb="watch", plural="configmaps", containing=word) for word in (b"unlabeled", b"words")
    ]
    async with playing(*rules) as it:
        labels = {"training.kubeflow.org/job-name": "other"}
        await it.harness.create(CONFIG_MAPS, {"metadata": {"name": "unlabeled"}})
        await it.harness.create(
            CONFIG_MAPS, {"metadata": {"name": "labeled", "labels": labels}, "data": {"a": "words"}}
        )
        await it.harness.settle(5)

        assert [rule.met for rule in rules] == [0, 0]
        assert "configmaps" in it.watched


async def test_invalid_keys_block_the_job() -> None:
    """A Secret of the job with invalid data is left alone, and the condition says what to do."""
    async with playing() as it:
        job = await it.submit(runPolicy={"suspend": True})
        broken = base64.b64encode(b"none").decode()
        await it.harness.change(SECRETS, "pi-ssh", {"data": {"ssh-privatekey": broken}})
        await it.harness.change(JOB, "pi", {"spec": {"runPolicy": {"suspend": False}}})
        await it.harness.settle(10)

        condition = await it.condition("Running")
        assert condition["message"].endswith("delete the Secret to get a new key pair")
        assert ("MPIJobBlocked", condition["message"]) in await it.events()
        assert (await it.harness.get(SECRETS, "pi-ssh"))["data"]["ssh-privatekey"] == broken
        assert await it.harness.names(PODS) == []

        await it.harness.delete(SECRETS, "pi-ssh")
        await it.harness.settle(400)
        assert len(await it.harness.names(PODS)) == 3
        owners = (await it.harness.get(SECRETS, "pi-ssh"))["metadata"]["ownerReferences"]
        assert owners[0]["uid"] == job["metadata"]["uid"]


@pytest.mark.parametrize("is_made_suspended", [True, False])
async def test_a_job_that_was_suspended_before_it_ran_and_whose_worker_is_rejected_fails(
    is_made_suspended: bool,
) -> None:
    """That it does not run while suspended is not that it has run."""
    refused = Refuse(422, "Invalid", "invalid", fields=(("spec.schedulerName", "too long"),))
    async with playing() as it:
        await it.submit(runPolicy={"suspend": is_made_suspended})
        await it.harness.change(JOB, "pi", {"spec": {"runPolicy": {"suspend": True}}})
        await it.harness.settle(10)
        it.harness.faults.rules.append(Rule(refused, verb="create", plural="pods"))
        await it.harness.change(JOB, "pi", {"spec": {"runPolicy": {"suspend": False}}})
        await it.harness.settle(10)

        assert "spec.schedulerName" in (await it.condition("Failed"))["message"]


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
async def test_a_job_whose_worker_is_rejected_leaves_no_running_pods(policy: str) -> None:
    """The launcher is created together with the workers and would wait for them; its pod is deleted with the Job."""
    refused = Refuse(422, "Invalid", "invalid", fields=(("spec.schedulerName", "too long"),))
    async with playing(
        Rule(refused, verb="create", plural="pods", containing=b'"pi-worker-1"', times=1)
    ) as it:
        await it.submit(runPolicy={"cleanPodPolicy": policy})
        await it.harness.settle(20)

        assert await it.conditions() == "Created T, Failed T"
        assert await it.harness.names(BATCH_JOBS) == []
        assert await it.harness.names(PODS) == []


async def test_a_host_list_that_exceeds_a_config_map_is_rejected_before_any_child_is_created() -> None:
    """Each worker is in it twice, by a name that says its job, namespace and domain."""
    async with playing(settings=replace(SETTINGS, cluster_domain=f"{'long-' * 20}domain.example.com")) as it:
        await it.submit(4000)

        assert await it.conditions() == "Created T, Failed T"
        assert (
            "the host lists take 1241790 bytes, but a ConfigMap holds at most 1048576"
            in (await it.condition("Failed"))["message"]
        )
        assert {key for key in it.counts() if key[0] == "create"} == {("create", "events")}


async def test_no_secret_is_listed_or_watched() -> None:
    async with playing() as it:
        await it.submit()
        await it.run()

        assert {call.verb for call in it.harness.calls if call.plural == "secrets"} == {"create"}


@pytest.mark.parametrize("plural", ["services", "configmaps", "secrets", "pods", "jobs"])
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Reset(committed=True), id="the answer is lost"),
        pytest.param(Reset(), id="the request is lost"),
        pytest.param(Refuse(500, "InternalError"), id="500"),
    ],
)
async def test_a_failed_create_is_retried(fault: Any, plural: str) -> None:
    rule = Rule(fault, verb="create", plural=plural, times=1)
    async with playing(rule) as it:
        await it.submit()
        await it.harness.settle(60)
        await it.run()

        assert await it.conditions() == "Created T, Running T"
        assert [pod for pod in await it.harness.names(PODS) if "worker" in pod] == [
            "pi-worker-0",
            "pi-worker-1",
        ]
        assert await it.harness.names(BATCH_JOBS) == ["pi-launcher"]


async def test_a_restarted_controller_leaves_existing_children_alone() -> None:
    """It looks once at what it does not watch, and changes nothing that is as it should be."""
    async with start_harness(crds=(RESOURCE,)) as harness:
        async with running_controller(harness, SETTINGS):
            await Play(harness).submit()
        before = [
            await harness.get(*key)
            for key in ((SECRETS, "pi-ssh"), (CONFIG_MAPS, "pi-config"), (SERVICES, "pi"))
        ]
        harness.faults.calls.clear()
        async with running_controller(harness, SETTINGS):
            await harness.settle(5)
            after = [
                await harness.get(*key)
                for key in ((SECRETS, "pi-ssh"), (CONFIG_MAPS, "pi-config"), (SERVICES, "pi"))
            ]

            assert after == before
            writes = [
                (call.verb, call.plural)
                for call in harness.calls
                if call.verb not in {"watch", "get", "list"}
            ]
            assert writes == []


@pytest.mark.parametrize(
    ("label", "order"),
    [
        pytest.param("rack", ["0", "2", "1", "3"], id="by rack"),
        pytest.param("", ["0", "1", "2", "3"], id="by index"),
    ],
)
async def test_the_host_list_is_ordered_by_topology(label: str, order: list[str]) -> None:
    """The launcher starts when the list says so; without the flag no node is read."""
    async with playing(settings=replace(SETTINGS, of_kinds=(MPIOptions(topology_label=label),))) as it:
        for number in range(4):
            metadata = {"name": f"node-{number}", "labels": {"rack": "ab"[number % 2]}}
            await it.harness.create(NODES, {"metadata": metadata})
        await it.submit(4)
        for number in range(4):
            target = {"apiVersion": "v1", "kind": "Node", "name": f"node-{number}"}
            body = orjson.dumps({"metadata": {"name": f"pi-worker-{number}"}, "target": target})
            await it.harness.client.create(
                PODS, NAMESPACE, body, name=f"pi-worker-{number}", subresource="binding"
            )
        assert (await it.harness.names(BATCH_JOBS) == []) is bool(label)
        await it.run(*(f"pi-worker-{number}" for number in range(4)))
        lines = (await it.harness.get(CONFIG_MAPS, "pi-config"))["data"]["hostfile"].split()

        assert [line.split(".")[0].removeprefix("pi-worker-") for line in lines[::2]] == order
        assert await it.harness.names(BATCH_JOBS) == ["pi-launcher"]
        assert ("nodes" in it.watched) is bool(label)


async def test_an_unobserved_suspension_still_ends_the_pod_of_the_launcher() -> None:
    """Admission is for a new pod, also if the launcher is the only pod of the job."""
    async with playing() as it:
        await it.submit(1)
        await it.harness.change(
            JOB, "pi", {"spec": {"runLauncherAsWorker": True, "mpiReplicaSpecs": {"Worker": None}}}
        )
        await it.harness.settle(2)
        await it.run()
        (before,) = await it.harness.names(PODS)
        for value in (True, False):
            await it.harness.change(JOB, "pi", {"spec": {"runPolicy": {"suspend": value}}})
        await it.harness.settle(10)
        (after,) = await it.harness.names(PODS)

        assert before != after
        assert await it.conditions() == "Created T, Running F, Suspended F"


async def test_a_stopped_watch_of_jobs_does_not_end_a_job() -> None:
    """A change of the launcher during the outage is observed when the watch resumes."""
    async with playing() as it:
        await it.submit()
        await it.run()
        it.harness.faults.rules.append(Rule(Cut(), verb="watch", plural="jobs", times=1))
        await it.end()
        await it.harness.settle(20)

        assert await it.conditions() == "Created T, Running F, Succeeded T"


async def test_the_workers_of_a_launcher_of_an_older_operator_are_counted() -> None:
    """Children that mpi-operator has made are the job's, by UID: nothing is made twice."""
    async with start_harness(crds=(RESOURCE,)) as harness:
        async with running_controller(harness, SETTINGS):
            await Play(harness).submit()
        job = await harness.get(BATCH_JOBS, "pi-launcher")
        async with running_controller(harness, SETTINGS):
            await harness.settle(5)

            assert (await harness.get(BATCH_JOBS, "pi-launcher"))["metadata"]["uid"] == job["metadata"]["uid"]
            assert await harness.names(PODS) == ["pi-worker-0", "pi-worker-1"]


async def test_an_annotation_that_only_a_status_conflict_reveals_takes_effect() -> None:
    """The annotation changes while a status patch is under way, and the watch does not report the change."""
    delay = Rule(Delay(5), verb="patch", plural=RESOURCE.plural, subresource="status", times=1)
    lost = Rule(Drop(), verb="watch", plural=RESOURCE.plural, containing=b'"false"')
    async with playing(delay, lost) as it:
        await it.submit(metadata={"annotations": {WAIT_ANNOTATION: "true"}})
        await it.harness.change(JOB, "pi", {"metadata": {"annotations": {WAIT_ANNOTATION: "false"}}})
        await it.harness.settle(10)

        assert delay.met == 1
        assert "pi-launcher" in await it.harness.names(BATCH_JOBS)


async def test_a_port_that_cannot_exist_does_not_end_the_operator() -> None:
    """The API server accepts it in a template, and no pod with it: the template has changed since the pods were created."""
    async with start_harness(crds=(RESOURCE,)) as harness, running_controller(harness, SETTINGS) as operator:
        play = Play(harness)
        await play.submit(1, {"annotations": {WAIT_ANNOTATION: "true"}})
        ports = [{"name": "ssh", "containerPort": 70000}]
        changed = {"template": {"spec": {"containers": [container(ports=ports)]}}}
        await harness.change(JOB, "pi", {"spec": {"mpiReplicaSpecs": {"Worker": changed}}})
        await harness.settle(2)
        ready = {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await harness.change(PODS, "pi-worker-0", {"status": ready}, "status")
        await harness.settle(5)

        assert not operator.done()
