"""Applying a plan to the children: writes, responses and events."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import msgspec
import orjson
import pytest

from api.children import Pod, pod_from_json, service_from_json
from api.meta import EVENTS, HORIZONTAL_POD_AUTOSCALERS, PODS, SERVICES, Resource
from api.v1.pytorchjob import RESOURCE
from controller.domain import Child, Deletion, WriteMode
from controller.kube import errors
from controller.kube.client import Client
from controller.reconcile.apply import (
    MOST_PER_RECONCILE,
    TIME_BUDGET_SECONDS,
    Applier,
    Cache,
)
from controller.reconcile.events import MOST_CHILD_EVENTS, EventRecorder
from controller.reconcile.memory import JobMemory
from controller.reconcile.parent import Parent
from controller.reconcile.writes import Occupied, Refused
from controller.runtime.backoff import LONGEST_SECONDS
from controller.runtime.recorder import Recorder, Subject
from controller.runtime.store import Store
from tests.support.faults import Delay, Fault, Faults, Refuse, Reset, Rule, Say
from tests.support.harness import NAMESPACE, Harness, start_harness

GENERATION = 1
METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


def owner(resource: Resource, name: str, uid: str) -> list[dict[str, Any]]:
    """The owner references of an object with that controller."""
    return [
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": name,
            "uid": uid,
            "controller": True,
        }
    ]


class Applying:
    """An applier on a harness, and a job that it works for."""

    def __init__(self, harness: Harness, client: Client, job: Subject, width: int) -> None:
        self.harness = harness
        self.job = job
        self.pods = Store[Pod]()
        self.memory = JobMemory(job.uid)
        self.recorder = Recorder(client)
        caches: Mapping[Any, Cache] = {
            PODS: Cache(self.pods, pod_from_json),
            SERVICES: Cache(Store[Any](), service_from_json),
        }
        self.applier = Applier(client, caches, EventRecorder(self.recorder), width=width)

    @property
    def faults(self) -> Faults:
        return self.harness.faults

    @property
    def own(self) -> list[dict[str, Any]]:
        return owner(RESOURCE, self.job.name, self.job.uid)

    def pod(self, name: str, owners: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "ownerReferences": self.own if owners is None else owners},
            "spec": {"containers": [{"name": "pytorch", "image": "img"}], **spec},
        }

    def wanted(self, name: str, **spec: Any) -> Child:
        return Child(PODS, name, lambda: self.pod(name, **spec))

    def service(self, name: str) -> Child:
        metadata = {"name": name, "ownerReferences": self.own}
        body = {"metadata": metadata, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
        return Child(SERVICES, name, lambda: body)

    def autoscaler(self, most: int = 3, owners: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        target = {"apiVersion": self.job.api_version, "kind": self.job.kind, "name": self.job.name}
        return {
            "metadata": {"name": self.job.name, "ownerReferences": self.own if owners is None else owners},
            "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": most, "metrics": [METRIC]},
        }

    def scaling(self, most: int = 3) -> Child:
        return Child(
            HORIZONTAL_POD_AUTOSCALERS, self.job.name, lambda: self.autoscaler(most), WriteMode.APPLY
        )

    def parent(self, generation: int = GENERATION) -> Parent:
        return Parent(self.job, self.memory, generation)

    async def create(self, *children: Child | str, generation: int = GENERATION) -> float | None:
        """Words are names of pods."""
        wanted = [self.wanted(child) if isinstance(child, str) else child for child in children]
        return await self.applier.apply(self.parent(generation), wanted, ())

    async def delete(self, *deletion: Deletion, generation: int = GENERATION) -> float | None:
        return await self.applier.apply(self.parent(generation), (), deletion)

    async def known(self, name: str) -> Pod:
        """A pod on the server and in the store."""
        row = pod_from_json(orjson.dumps(await self.harness.create(PODS, self.pod(name))))
        self.pods.put(row)
        return row

    async def events(self) -> list[tuple[str, str]]:
        """(reason, message) of all events."""
        await self.recorder.flushed()
        return [(event["reason"], event["message"]) for event in await self.harness.items(EVENTS)]


@asynccontextmanager
async def applying(*rules: Rule, width: int = 32) -> AsyncIterator[Applying]:
    async with start_harness(*rules) as harness, Client(harness.connection, in_flight=width) as client:
        uid = (await harness.submit("train"))["metadata"]["uid"]
        job = Subject(RESOURCE.api_version, RESOURCE.kind, NAMESPACE, "train", uid, "pytorchjob-controller")
        applying = Applying(harness, client, job, width)
        task = asyncio.create_task(applying.recorder.run())
        try:
            yield applying
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_created_child_is_stored_and_reported() -> None:
    async with applying() as it:
        assert await it.create("a") is None

        row = it.pods.get(NAMESPACE, "a")
        assert row is not None
        assert (row.owner_uid, row.uid) == (it.job.uid, (await it.harness.get(PODS, "a"))["metadata"]["uid"])
        assert await it.events() == [("SuccessfulCreatePod", "Created pod: a")]


async def test_creates_are_sent_in_order_and_in_parallel_up_to_the_width() -> None:
    async with applying(Rule(Delay(0.1), verb="create", plural="pods"), width=4) as it:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await it.create(*(f"pod-{number:02}" for number in range(12)))

        assert loop.time() - started == pytest.approx(0.3, abs=0.01)
        bodies = [orjson.loads(call.body) for call in it.faults.calls if call.plural == "pods"]
        assert [body["metadata"]["name"] for body in bodies] == [f"pod-{number:02}" for number in range(12)]


async def test_a_large_job_takes_several_reconciles() -> None:
    async with applying() as it:
        children = [it.service(f"service-{number}") for number in range(MOST_PER_RECONCILE + 2)]

        assert await it.create(*children) == 0
        assert len(await it.harness.names(SERVICES)) == MOST_PER_RECONCILE
        assert await it.create(*children[MOST_PER_RECONCILE:]) is None


async def test_the_events_of_a_partial_plan_are_not_summarized_before_the_rest_exists() -> None:
    names = [f"pod-{number}" for number in range(MOST_CHILD_EVENTS + 4)]
    async with applying() as it:
        children = [it.wanted(name) for name in names]
        assert await it.applier.apply(it.parent(), children[:-2], (), is_partial=True) == 0
        assert len(await it.events()) == MOST_CHILD_EVENTS

        assert await it.create(*children[-2:]) is None
        assert len(await it.events()) == MOST_CHILD_EVENTS + 1


@pytest.mark.parametrize(
    ("is_partial", "due"),
    [
        pytest.param(True, 0, id="a partial plan is made again, with all children"),
        pytest.param(False, LONGEST_SECONDS, id="a whole plan waits for the watch"),
    ],
)
async def test_names_that_an_earlier_job_still_has_end_partial_plans(is_partial: bool, due: float) -> None:
    async with applying() as it:
        it.pods.put(
            Pod(NAMESPACE, "a", "u", 1, owner_kind=it.job.kind, owner_name="train", owner_uid="earlier")
        )

        children = [it.wanted("a"), it.wanted("b")]
        assert await it.applier.apply(it.parent(), children, (), is_partial=is_partial) == due
        assert await it.harness.names(PODS) == ["b"]
        assert it.memory.has_taken_names

        assert await it.create("c") is None
        assert not it.memory.has_taken_names


async def test_a_slow_server_ends_a_reconcile_before_its_last_create() -> None:
    """The next reconcile observes the pods created so far; the summary event waits for the last create."""
    names = [f"pod-{number}" for number in range(MOST_CHILD_EVENTS + 5)]
    async with applying(
        Rule(Delay(TIME_BUDGET_SECONDS), verb="create", plural="pods"), width=len(names) - 3
    ) as it:
        assert await it.create(*names) == 0
        assert len(await it.harness.names(PODS)) == len(names) - 3
        assert len(await it.events()) == MOST_CHILD_EVENTS

        assert await it.create(*names[-3:]) is None
        assert len(await it.events()) == MOST_CHILD_EVENTS + 1


async def test_events_of_many_children_are_summarized() -> None:
    async with applying() as it:
        names = [f"pod-{number}" for number in range(MOST_CHILD_EVENTS + 2)]
        await it.create(*names, it.service("service"))

        events = await it.events()
        assert len(events) == MOST_CHILD_EVENTS + 1
        text = f"Created 2 pods and service: {', '.join(names[-2:])}, service"
        assert ("SuccessfulCreatePod", text) in events


CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")


@pytest.mark.parametrize(
    ("holder", "message"),
    [
        pytest.param((RESOURCE, "other"), "belongs to PyTorchJob other", id="another job of this kind"),
        pytest.param((CONFIG_MAPS, "train"), "belongs to ConfigMap train", id="something of another kind"),
        pytest.param(None, "belongs to nobody", id="no owner"),
    ],
)
async def test_a_name_conflict_is_reported(holder: tuple[Resource, str] | None, message: str) -> None:
    async with applying() as it:
        owners = []
        if holder:
            resource, name = holder
            made = await (
                it.harness.submit(name)
                if resource == RESOURCE
                else it.harness.create(resource, {"metadata": {"name": name}})
            )
            owners = owner(resource, name, made["metadata"]["uid"])
        before = await it.harness.create(PODS, it.pod("a", owners))

        with pytest.raises(Occupied, match=message):
            await it.create("a")
        assert await it.harness.get(PODS, "a") == before
        assert it.pods.get(NAMESPACE, "a") is None
        assert [reason for reason, _ in await it.events()] == ["FailedCreatePod"]


async def test_a_create_waits_for_remains_of_an_earlier_job_of_that_name() -> None:
    """Remains vanish by themselves, so no event is recorded. Pauses grow if the watch does not report them."""
    async with applying() as it:
        remains = it.pod("a", owner(RESOURCE, "train", "uid-of-the-earlier"))
        remains["metadata"]["finalizers"] = ["example.com/slow"]
        await it.harness.create(PODS, remains)

        pauses = list[float]()
        for _ in range(3):
            pauses.append(await it.create("a") or 0)
            await asyncio.sleep(pauses[-1])
        assert pauses == pytest.approx([0.005, 0.01, 0.02])
        assert it.pods.get(NAMESPACE, "a") is None
        assert await it.events() == []


async def test_remains_in_the_store_are_not_created_again_and_block_no_other_child() -> None:
    async with applying() as it:
        remains = it.pod("a", owner(RESOURCE, "train", "uid-of-the-earlier"))
        it.pods.put(pod_from_json(orjson.dumps(await it.harness.create(PODS, remains))))
        before = len(it.harness.calls)

        assert await it.create("a", "b") == LONGEST_SECONDS
        assert [call.verb for call in it.harness.calls[before:] if call.plural == "pods"] == ["create"]
        assert it.pods.get(NAMESPACE, "b") is not None


async def test_remains_hide_no_other_failure() -> None:
    async with applying(Rule(Refuse(403, "Forbidden", "no quota"), verb="create", plural="services")) as it:
        remains = it.pod("a", owner(RESOURCE, "train", "uid-of-the-earlier"))
        it.pods.put(pod_from_json(orjson.dumps(await it.harness.create(PODS, remains))))

        with pytest.raises(errors.Forbidden):
            await it.create("a", it.service("s"))


async def test_an_existing_child_of_the_job_is_adopted() -> None:
    """The response to its create was lost; its current state is read at once."""
    async with applying() as it:
        before = await it.harness.create(PODS, it.pod("a"))

        assert await it.create("a") == 0
        assert await it.create("a") is None
        row = it.pods.get(NAMESPACE, "a")
        assert row is not None
        assert row.uid == before["metadata"]["uid"]
        assert await it.events() == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(Reset(), aiohttp.ClientError, id="the connection breaks before"),
        pytest.param(Reset(committed=True), aiohttp.ClientError, id="the connection breaks after"),
        pytest.param(Delay(100, committed=True), TimeoutError, id="no answer in time"),
    ],
)
async def test_a_lost_response_marks_the_caches_as_doubtful(fault: Fault, error: type[Exception]) -> None:
    async with applying(Rule(fault, verb="create", plural="pods", times=1)) as it:
        with pytest.raises(error):
            await it.create("a")

        assert it.memory.has_unknown_write
        assert await it.events() == []


async def test_a_canceled_create_marks_the_caches_as_doubtful() -> None:
    async with applying(Rule(Delay(10, committed=True), verb="create", plural="pods", times=1)) as it:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await it.create("a")

        assert it.memory.has_unknown_write


async def test_children_that_others_need_are_created_first() -> None:
    """Refused, it does not end the job, and nothing else is made."""
    fault = Rule(Refuse(400, "BadRequest", "the queue is closed"), verb="create", containing=b'"z"', times=1)
    async with applying(fault, width=4) as it:
        children = [it.wanted("a"), replace(it.wanted("z"), first=True)]
        with pytest.raises(errors.Invalid, match="the queue is closed"):
            await it.create(*children)
        assert await it.harness.names(PODS) == []

        assert await it.create(*children, generation=GENERATION + 1) is None
        assert await it.harness.names(PODS) == ["a", "z"]
        assert sorted(await it.events()) == [
            ("FailedCreatePod", "Error creating: the queue is closed"),
            ("SuccessfulCreatePod", "Created pod: a"),
        ]


async def test_first_children_are_created_in_waves() -> None:
    async with applying() as it:
        children = [replace(it.wanted("b"), first=2), replace(it.wanted("a"), first=1), it.wanted("c")]
        it.faults.rules.append(
            Rule(Refuse(500, "InternalError", "no"), verb="create", plural="pods", times=1)
        )

        with pytest.raises(errors.ServerError):
            await it.create(*children)
        assert it.faults.count("create", "pods") == 1

        await asyncio.sleep(1)
        await it.create(*children)
        assert it.faults.count("create", "pods") == 4


async def test_a_patched_child_is_stored() -> None:
    async with applying() as it:
        row = await it.known("a")
        patch = {"metadata": {"uid": row.uid, "annotations": {"a": "b"}}}
        assert await it.create(Child(PODS, "a", lambda: patch, WriteMode.PATCH, first=True)) is None

        after = it.pods.get(NAMESPACE, "a")
        assert after is not None
        assert after.resource_version > row.resource_version
        assert (await it.harness.get(PODS, "a"))["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    ("phase", "due"),
    [
        pytest.param("Running", 0, id="a pod with an owner"),
        pytest.param("", None, id="a pod without an owner"),
    ],
)
async def test_a_change_in_the_response_to_a_patch_requeues_the_job(phase: str, due: float | None) -> None:
    """The watch reports no change once the store has it, so the job asks for another reconcile."""
    async with applying() as it:
        row = await it.known("a")
        if phase:
            await it.harness.set_phase(phase, "a")
        patch = {"metadata": {"uid": row.uid, "annotations": {"a": "b"}}}

        assert await it.create(Child(PODS, "a", lambda: patch, WriteMode.PATCH)) == due
        assert await it.create(Child(PODS, "a", lambda: patch, WriteMode.PATCH)) is None


async def test_another_object_of_that_name_is_not_patched() -> None:
    async with applying() as it:
        await it.known("a")
        patch = {"metadata": {"uid": "uid-of-the-earlier", "annotations": {"a": "b"}}}
        with pytest.raises(errors.ApiError):
            await it.create(Child(PODS, "a", lambda: patch, WriteMode.PATCH, first=True))

        assert [reason for reason, _ in await it.events()] == ["FailedUpdatePod"]
        assert "annotations" not in (await it.harness.get(PODS, "a"))["metadata"]


async def test_a_patch_of_a_deleted_child_is_ignored() -> None:
    async with applying() as it:
        patch = {"metadata": {"uid": "u"}}

        assert await it.create(Child(PODS, "a", lambda: patch, WriteMode.PATCH, first=True)) is None
        assert await it.events() == []


async def test_a_permanent_validation_error_names_the_field() -> None:
    async with applying() as it:
        with pytest.raises(Refused) as caught:
            await it.create("b", it.wanted("a", restartPolicy="Sometimes"))

        assert caught.value.problem.field == "Pod a"
        assert "spec.restartPolicy" in caught.value.problem.text
        reasons = [reason for reason, _ in await it.events()]
        assert sorted(reasons) == ["FailedCreatePod", "SuccessfulCreatePod"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        pytest.param(400, "too odd", id="bad request"),
        pytest.param(413, "too large", id="too large"),
        pytest.param(422, "too wrong", id="without a field"),
    ],
)
async def test_a_validation_error_without_fields_is_not_permanent(code: int, text: str) -> None:
    async with applying(Rule(Refuse(code, "Reason", text), verb="create", plural="pods")) as it:
        with pytest.raises(errors.Invalid, match=text):
            await it.create("a")


async def test_the_error_names_a_child_that_cannot_be_parsed() -> None:
    async with applying(Rule(Say(b'{"metadata": {"name": 5}}'), verb="create", plural="pods")) as it:
        with pytest.raises(Occupied, match='pods "a" cannot be read'):
            await it.create("a")


async def test_a_permanent_error_outweighs_other_errors() -> None:
    rules = (
        Rule(Refuse(500), verb="create", containing=b'"a"'),
        Rule(Delay(1), verb="create", containing=b'"b"', times=1),
    )
    async with applying(*rules) as it:
        with pytest.raises(Refused):
            await it.create("a", it.wanted("b", restartPolicy="Sometimes"))


async def test_the_first_error_ends_the_batch() -> None:
    """Started creates finish and are stored; the others wait for the next reconcile."""
    rules = (
        Rule(Refuse(403, "Forbidden", "exceeded quota"), verb="create", containing=b'"pod-1"'),
        Rule(Delay(1), verb="create", containing=b'"pod-2"', times=1),
    )
    async with applying(*rules, width=3) as it:
        with pytest.raises(errors.Forbidden, match="exceeded quota"):
            await it.create(*(f"pod-{number}" for number in range(20)))

        made = await it.harness.names(PODS)
        assert "pod-2" in made
        assert len(made) < 5
        assert sorted(row.name for row in it.pods) == made
        assert ("FailedCreatePod", "Error creating: exceeded quota") in await it.events()


async def test_after_an_error_a_single_create_is_tried_before_the_batch() -> None:
    quota = Rule(Refuse(403, "Forbidden", "exceeded quota"), verb="create", plural="pods")
    async with applying(quota) as it:
        children = [f"pod-{number}" for number in range(10)]
        tried = []
        for generation in (1, 2):
            with pytest.raises(errors.Forbidden):
                await it.create(*children, generation=generation)
            tried.append(it.faults.count("create", "pods"))
        assert tried == [10, 11]

        await it.create()
        with pytest.raises(errors.Forbidden):
            await it.create(*children, generation=3)
        assert it.faults.count("create", "pods") == 12, "a reconcile without pods proves nothing"

        it.faults.rules.clear()
        assert await it.create(*children, generation=4) is None
        assert len(await it.harness.names(PODS)) == 10


async def test_after_a_failure_creates_are_backed_off() -> None:
    """Ever longer; a change of the spec tries at once."""
    rule = Rule(Refuse(500, "InternalError"), verb="create", plural="pods")
    async with applying(rule) as it:
        for pause in (0.005, 0.01, 0.02):
            with pytest.raises(errors.ServerError):
                await it.create("a")
            assert it.memory.write_backoff.remaining_seconds(GENERATION) == pytest.approx(pause)
            assert await it.create("a") == pytest.approx(pause)
            assert it.memory.write_backoff.remaining_seconds(GENERATION + 1) == 0
            await asyncio.sleep(pause)


async def test_a_delete_names_the_uid_of_the_object() -> None:
    async with applying() as it:
        row = await it.known("a")
        await it.delete(Deletion(PODS, "a", row.uid))

        assert await it.harness.names(PODS) == []
        (call,) = [call for call in it.faults.calls if call.verb == "delete"]
        assert orjson.loads(call.body)["preconditions"] == {"uid": row.uid}
        assert await it.events() == [("SuccessfulDeletePod", "Deleted pod: a")]


async def test_a_deleted_child_is_stored_as_deleting_before_the_watch_event() -> None:
    async with applying() as it:
        row = await it.known("a")
        await it.delete(Deletion(PODS, "a", row.uid))

        assert it.pods.get(NAMESPACE, "a") == msgspec.structs.replace(row, deleting=True)


async def test_another_object_of_that_name_is_left_alone() -> None:
    async with applying() as it:
        after = await it.known("a")
        await it.delete(Deletion(PODS, "a", "uid-of-the-earlier"))

        assert await it.harness.names(PODS) == ["a"]
        assert it.pods.get(NAMESPACE, "a") == after
        assert await it.events() == []


async def test_deleting_a_missing_object_succeeds() -> None:
    async with applying() as it:
        assert await it.delete(Deletion(PODS, "a", "some-uid")) is None
        assert await it.events() == []


async def test_a_delete_with_a_lost_response_is_completed_by_the_next_reconcile() -> None:
    async with applying(Rule(Reset(committed=True), verb="delete", times=2)) as it:
        row = await it.known("a")
        with pytest.raises(aiohttp.ClientError):
            await it.delete(Deletion(PODS, "a", row.uid))

        assert await it.delete(Deletion(PODS, "a", row.uid))


async def test_a_rejected_delete_is_reported() -> None:
    async with applying(Rule(Refuse(403, "Forbidden", "not you"), verb="delete")) as it:
        row = await it.known("a")
        with pytest.raises(errors.Forbidden):
            await it.delete(Deletion(PODS, "a", row.uid))

        assert await it.events() == [("FailedDeletePod", "Error deleting: not you")]


async def test_deletes_come_before_creates() -> None:
    async with applying() as it:
        row = await it.known("a")
        await it.applier.apply(it.parent(), [it.wanted("b")], [Deletion(PODS, "a", row.uid)])

        writes = [call.verb for call in it.faults.calls if call.plural == "pods"]
        assert writes == ["create", "delete", "create"]


async def test_an_autoscaler_is_created() -> None:
    async with applying() as it:
        await it.create(it.scaling())

        made = await it.harness.get(HORIZONTAL_POD_AUTOSCALERS, "train")
        assert made["spec"]["maxReplicas"] == 3
        assert await it.events() == []


@pytest.mark.parametrize(
    ("before", "patches"),
    [
        pytest.param(3, 0, id="it is as wanted, and what the server adds is no difference"),
        pytest.param(5, 1, id="it differs"),
    ],
)
async def test_an_autoscaler_is_patched_only_if_it_differs(before: int, patches: int) -> None:
    async with applying() as it:
        await it.harness.create(HORIZONTAL_POD_AUTOSCALERS, it.autoscaler(before))
        await it.create(it.scaling(3))

        assert (await it.harness.get(HORIZONTAL_POD_AUTOSCALERS, "train"))["spec"]["maxReplicas"] == 3
        assert it.faults.count("patch", "horizontalpodautoscalers") == patches


async def test_an_autoscaler_is_read_once_per_generation_of_the_job() -> None:
    async with applying() as it:
        for generation in (1, 1, 1, 2, 2):
            await it.create(it.scaling(generation), generation=generation)

        assert it.faults.count("get", "horizontalpodautoscalers") == 2
        assert (await it.harness.get(HORIZONTAL_POD_AUTOSCALERS, "train"))["spec"]["maxReplicas"] == 2

        it.memory = JobMemory(it.job.uid)
        await it.create(it.scaling(2), generation=2)
        assert it.faults.count("get", "horizontalpodautoscalers") == 4


async def test_a_foreign_autoscaler_is_left_alone_and_the_pods_are_created() -> None:
    async with applying() as it:
        before = await it.harness.create(HORIZONTAL_POD_AUTOSCALERS, it.autoscaler(9, owners=[]))

        with pytest.raises(Occupied, match="belongs to nobody"):
            await it.create(it.scaling(), "a")

        assert await it.harness.get(HORIZONTAL_POD_AUTOSCALERS, "train") == before
        assert await it.harness.names(PODS) == ["a"]
        assert "FailedCreateHorizontalPodAutoscaler" in [reason for reason, _ in await it.events()]


async def test_a_rejected_autoscaler_ends_the_reconcile_before_the_first_pod() -> None:
    async with applying() as it:
        refused = Refuse(422, "Invalid", "no", fields=(("spec.metrics", "too few"),))
        it.faults.rules.append(Rule(refused, verb="create", plural="horizontalpodautoscalers"))

        with pytest.raises(Refused, match=r"spec\.metrics: too few"):
            await it.create(it.scaling(), "a")
        assert await it.harness.names(PODS) == []


@pytest.mark.parametrize("own", [True, False], ids=["the job's own", "another job's"])
async def test_an_unwanted_autoscaler_of_the_job_is_deleted(own: bool) -> None:
    async with applying() as it:
        await it.harness.create(HORIZONTAL_POD_AUTOSCALERS, it.autoscaler(owners=it.own if own else []))
        deletion = Deletion(HORIZONTAL_POD_AUTOSCALERS, "train")
        for _ in range(3):
            await it.delete(deletion)

        assert await it.harness.names(HORIZONTAL_POD_AUTOSCALERS) == ([] if own else ["train"])
        assert it.faults.count("get", "horizontalpodautoscalers") == 1
        assert await it.events() == []


async def test_an_autoscaler_is_created_again_when_the_job_resumes() -> None:
    async with applying() as it:
        await it.create(it.scaling(), generation=1)
        await it.delete(Deletion(HORIZONTAL_POD_AUTOSCALERS, "train"), generation=2)
        assert await it.harness.names(HORIZONTAL_POD_AUTOSCALERS) == []

        await it.create(it.scaling(), generation=3)
        assert await it.harness.names(HORIZONTAL_POD_AUTOSCALERS) == ["train"]
