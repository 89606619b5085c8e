"""Children without a watch: when they are created, read and written, and which are left alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from api.meta import CONFIG_MAPS, EVENTS
from api.v1.pytorchjob import RESOURCE
from controller.domain import Child, Deletion, Event, EventMessages, Severity, WriteMode
from controller.kube.client import Client
from controller.kube.errors import ServerError
from controller.reconcile.events import EventRecorder
from controller.reconcile.memory import JobMemory
from controller.reconcile.parent import Parent
from controller.reconcile.uncached import UncachedChildren
from controller.reconcile.writes import Occupied, Remains, Writer
from controller.runtime.recorder import Recorder, Subject
from tests.support.faults import Refuse, Rule, Say
from tests.support.harness import NAMESPACE, Harness, start_harness

OURS = {"apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind, "name": "train", "controller": True}
OLD = [{**OURS, "uid": "an-earlier-one"}]
DELETION = Deletion(CONFIG_MAPS, "lists")
MESSAGES = EventMessages(taken=lambda kind, name: Event(Severity.WARNING, "Taken", f"{kind} {name}"))


class ChildFixture:
    """Applies a ConfigMap of a job on an API server in memory."""

    def __init__(self, harness: Harness, client: Client, uid: str) -> None:
        self.harness = harness
        self.uid = uid
        self.recorder = Recorder(client)
        self.uncached = UncachedChildren(Writer(client, EventRecorder(self.recorder)))
        self.memory = JobMemory(uid)

    def restart(self) -> None:
        """Let the process lose what it remembers of the job."""
        self.memory = JobMemory(self.uid)

    def parent(self, generation: int = 1, *, event_messages: EventMessages = MESSAGES) -> Parent:
        subject = Subject(RESOURCE.api_version, RESOURCE.kind, NAMESPACE, "train", self.uid, "test")
        return Parent(subject, self.memory, generation, event_messages)

    def lists(self, text: str = "a", **fields: Any) -> Child:
        body = {
            "metadata": {"name": "lists", "ownerReferences": [{**OURS, "uid": self.uid}]},
            "data": {"hosts": text},
        }
        return Child(CONFIG_MAPS, "lists", lambda: body, **{"write_mode": WriteMode.APPLY, **fields})

    async def ensure(
        self,
        child: Child,
        generation: int = 1,
        *,
        is_new: bool = False,
        event_messages: EventMessages = MESSAGES,
    ) -> list[str]:
        """Apply the child and return the verbs of the calls."""
        self.harness.faults.calls.clear()
        parent = self.parent(generation, event_messages=event_messages)
        self.memory.is_new = self.memory.is_new or is_new
        try:
            await self.uncached.ensure(parent, child)
        finally:
            verbs = [call.verb for call in self.harness.calls]
        return verbs

    async def text(self) -> str:
        return str((await self.harness.get(CONFIG_MAPS, "lists"))["data"]["hosts"])

    async def create_foreign(self, owners: list[dict[str, Any]] | None = None, **more: Any) -> None:
        metadata = {"name": "lists", "ownerReferences": owners or [], **more}
        await self.harness.create(CONFIG_MAPS, {"metadata": metadata, "data": {"hosts": "theirs"}})


@asynccontextmanager
async def child_fixture(*rules: Rule) -> AsyncIterator[ChildFixture]:
    async with start_harness(*rules) as harness, Client(harness.connection) as client:
        yield ChildFixture(harness, client, (await harness.submit())["metadata"]["uid"])


async def test_the_first_reconcile_creates_it_without_a_read() -> None:
    async with child_fixture() as it:
        assert await it.ensure(it.lists(), is_new=True) == ["create"]
        assert await it.ensure(it.lists()) == []
        assert await it.text() == "a"


@pytest.mark.parametrize("verb", ["create", "get"])
async def test_an_answer_that_is_not_json_is_an_error_of_the_server(verb: str) -> None:
    """A proxy may answer with a page; the next reconcile writes the child."""
    async with child_fixture(Rule(Say(b"<html>"), verb=verb, plural=CONFIG_MAPS.plural, times=1)) as it:
        with pytest.raises(ServerError, match='the answer about configmaps "lists" is not JSON'):
            await it.ensure(it.lists(), is_new=verb == "create")
        await it.ensure(it.lists())
        assert await it.text() == "a"


async def test_after_a_restart_it_is_read_first() -> None:
    async with child_fixture() as it:
        assert await it.ensure(it.lists()) == ["get", "create"]
        it.restart()
        assert await it.ensure(it.lists()) == ["get"]


async def test_another_version_is_written_without_a_read() -> None:
    async with child_fixture() as it:
        await it.ensure(it.lists("a", version="1"), is_new=True)
        assert await it.ensure(it.lists("b", version="2"), generation=2) == ["patch"]
        assert await it.ensure(it.lists("b", version="2"), generation=3) == []
        assert await it.text() == "b"


async def test_without_a_version_it_is_read_in_each_generation() -> None:
    async with child_fixture() as it:
        await it.ensure(it.lists("a"), is_new=True)
        assert await it.ensure(it.lists("a"), generation=2) == ["get"]
        assert await it.ensure(it.lists("b"), generation=3) == ["get", "patch"]
        assert await it.text() == "b"


async def test_a_child_that_was_deleted_meanwhile_is_created_again() -> None:
    async with child_fixture() as it:
        await it.ensure(it.lists(version="1"), is_new=True)
        await it.harness.delete(CONFIG_MAPS, "lists")
        assert await it.ensure(it.lists("b", version="2")) == ["patch", "get", "create"]


async def test_a_child_that_has_another_owner_meanwhile_is_left_alone() -> None:
    async with child_fixture() as it:
        await it.ensure(it.lists(version="1"), is_new=True)
        await it.harness.delete(CONFIG_MAPS, "lists")
        await it.create_foreign()
        with pytest.raises(Occupied):
            await it.ensure(it.lists("b", version="2"))
        assert await it.text() == "theirs"


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_name_conflict_is_an_error(is_new: bool) -> None:
    async with child_fixture() as it:
        await it.create_foreign()
        with pytest.raises(Occupied) as caught:
            await it.ensure(it.lists(), is_new=is_new)

        assert not isinstance(caught.value, Remains)
        assert caught.value.is_foreign
        assert caught.value.message == 'configmaps "lists" already exists, and belongs to nobody'
        await it.recorder.flushed()
        assert await it.harness.events() == [], "the caller that writes the status reports it"


async def test_a_kind_without_a_message_for_it_records_a_failure() -> None:
    async with child_fixture() as it:
        await it.create_foreign()
        with pytest.raises(Occupied):
            await it.ensure(it.lists(), event_messages=EventMessages())
        await it.recorder.flushed()

        assert [event["reason"] for event in await it.harness.items(EVENTS)] == ["FailedCreateConfigMap"]


async def test_remains_of_an_earlier_job_are_waited_for() -> None:
    async with child_fixture() as it:
        await it.create_foreign(OLD, finalizers=["example.com/slow"])
        with pytest.raises(Remains):
            await it.ensure(it.lists())


async def test_create_if_absent_accepts_a_child_of_any_owner() -> None:
    async with child_fixture() as it:
        await it.create_foreign()
        child = it.lists(write_mode=WriteMode.CREATE_IF_ABSENT)

        assert await it.ensure(child) == ["create"]
        assert await it.ensure(child) == []
        assert await it.text() == "theirs"


@pytest.mark.parametrize(
    ("owned", "text"),
    [pytest.param(True, "a", id="the job's own"), pytest.param(False, "theirs", id="another job's")],
)
async def test_update_if_present_updates_only_an_existing_child_of_the_job(owned: bool, text: str) -> None:
    async with child_fixture() as it:
        child = it.lists(write_mode=WriteMode.UPDATE_IF_PRESENT)
        assert await it.ensure(child, is_new=True) == []
        assert await it.ensure(child) == []
        it.restart()
        assert await it.ensure(child) == ["get"]
        assert await it.harness.names(CONFIG_MAPS) == []

        it.restart()
        await it.create_foreign([{**OURS, "uid": it.uid}] if owned else None)
        assert await it.ensure(child) == (["get", "patch"] if owned else ["get"])
        assert await it.text() == text


async def test_a_flawed_child_is_reported_and_left_alone() -> None:
    async with child_fixture() as it:
        await it.ensure(it.lists("bad"))
        child = it.lists("good", flaw=lambda there: "mend it" if there["data"]["hosts"] == "bad" else "")
        with pytest.raises(Occupied) as caught:
            await it.ensure(child, generation=2)
        assert (caught.value.message, caught.value.is_foreign) == ("mend it", False)
        assert await it.text() == "bad"

        await it.harness.delete(CONFIG_MAPS, "lists")
        assert await it.ensure(child, generation=2) == ["get", "create"]
        assert await it.ensure(child, generation=3) == ["get"], "a child without a flaw is left as it is"


@pytest.mark.parametrize("owned", [True, False])
async def test_deleting_by_name_deletes_only_children_of_the_job(owned: bool) -> None:
    async with child_fixture() as it:
        await it.create_foreign([{**OURS, "uid": it.uid}] if owned else None)
        it.harness.faults.calls.clear()
        for generation in (1, 1, 2):
            await it.uncached.delete(it.parent(generation), DELETION)

        assert (await it.harness.names(CONFIG_MAPS) == []) is owned
        assert [call.verb for call in it.harness.calls] == ["get", *(["delete"] if owned else []), "get"]


async def test_a_deleted_child_can_be_created_again() -> None:
    async with child_fixture() as it:
        await it.ensure(it.lists(version="1"), is_new=True)
        await it.uncached.delete(it.parent(2), DELETION)
        assert await it.ensure(it.lists(version="1"), generation=3) == ["get", "create"]
        assert await it.harness.names(CONFIG_MAPS) == ["lists"]


async def test_a_child_that_cannot_be_read_was_not_created() -> None:
    """A finished job is not retried for ever when a permission is missing that another part of the installation grants."""
    async with child_fixture(Rule(Refuse(403, "Forbidden", "no"), verb="get", plural="configmaps")) as it:
        child = it.lists(write_mode=WriteMode.UPDATE_IF_PRESENT)

        assert await it.ensure(child) == ["get"]
        assert await it.ensure(child) == []
