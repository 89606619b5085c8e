"""Relists: what they repair and what they leave alone."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from api.children import Pod, pod_from_json
from api.labels import JOB_NAME
from api.meta import PODS
from controller.kube.client import METADATA_ONLY_LIST, Client
from controller.runtime.informer import Informer
from controller.runtime.relist import CHECK_SECONDS, MOST_READS, PERIOD_SECONDS, Relist
from tests.support.faults import Delay, Drop, Refuse, Rule, Say
from tests.support.harness import NAMESPACE, Harness, start_harness
from tests.support.scripted import ReceivedRequest, ScriptedServer, answer_json, answer_lines

LONGEST_SECONDS = 600.0


@dataclass
class Following:
    """An informer of the labeled pods with its relists, and what it has reported."""

    harness: Harness
    client: Client
    informer: Informer[Pod]
    relist: Relist[Pod]
    changes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def names(self) -> set[str]:
        return {row.name for row in self.informer.store}

    async def make(self, name: str, **labels: str) -> None:
        body: dict[str, Any] = {
            "metadata": {"name": name, "labels": labels or {JOB_NAME: "train"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        await self.harness.create(PODS, body)

    def lose(self, text: str) -> None:
        """Lose the next event that holds that text."""
        self.harness.faults.rules.append(Rule(Drop(), verb="watch", containing=text.encode(), times=1))


@asynccontextmanager
async def following(*, runs: bool = False) -> AsyncGenerator[Following]:
    changes: list[tuple[str, str]] = []

    def on_change(before: Pod | None, after: Pod | None) -> None:
        changes.append((before.phase if before else "none", after.phase if after else "none"))

    async with start_harness(crds=()) as harness, Client(harness.connection) as client:
        informer = Informer[Pod](client, PODS, pod_from_json, on_change, label_selector=JOB_NAME)
        relist = Relist(informer)
        tasks = [asyncio.create_task(informer.run())]
        if runs:
            tasks.append(asyncio.create_task(relist.run()))
        await informer.synced.wait()
        try:
            yield Following(harness, client, informer, relist, changes)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_lost_change_is_reported() -> None:
    async with following() as to:
        await to.make("a")
        await to.harness.settle()
        to.lose('"phase":"Succeeded"')
        await to.harness.set_phase("Succeeded", "a", code=0)
        await to.harness.settle()
        assert to.changes == [("none", "Pending")]
        with capture_logs() as logs:
            assert await to.relist.relist() == 1

        assert to.changes == [("none", "Pending"), ("Pending", "Succeeded")]
        assert to.informer.repaired == 1
        assert [(line["missed"], line["gone"], line["names"]) for line in logs] == [(1, 0, ["a"])]


async def test_a_lost_new_object_is_reported() -> None:
    async with following() as to:
        to.lose('"name":"a"')
        await to.make("a")
        await to.make("b")
        await to.harness.settle()
        assert to.names == {"b"}
        await to.relist.relist()

        assert to.names == {"a", "b"}
        await to.harness.set_phase("Running", "a")
        await to.harness.settle()
        assert to.changes[-1] == ("Pending", "Running")
        assert to.informer.store.unselected == set()


async def test_a_lost_deletion_is_reported() -> None:
    async with following() as to:
        await to.make("a")
        await to.make("b")
        await to.harness.settle()
        to.lose('"DELETED"')
        await to.harness.delete(PODS, "a", grace_period_seconds=0)
        await to.harness.settle()
        await to.relist.relist()

        assert to.names == {"b"}
        assert to.changes[-1] == ("Pending", "none")


async def test_an_up_to_date_store_is_left_alone() -> None:
    async with following() as to:
        for number in range(3):
            await to.make(f"pod-{number}")
        await to.harness.settle()
        to.changes.clear()
        to.harness.faults.calls.clear()
        with capture_logs() as logs:
            assert await to.relist.relist() == 0

        assert (to.changes, logs, to.informer.repaired) == ([], [], 0)
        assert [call.verb for call in to.harness.calls] == ["list"]


async def test_a_relist_waits_for_an_event_that_is_under_way() -> None:
    """The list may be quicker than the watch. What the watch reports a little later is no loss."""
    async with following() as to:
        await to.make("a")
        await to.harness.settle()
        known = to.informer.store.get(NAMESPACE, "a")
        to.lose('"phase":"Running"')
        await to.harness.set_phase("Running", "a")
        await to.harness.settle()
        relisting = asyncio.create_task(to.relist.relist())
        await asyncio.sleep(0.2)
        assert known is to.informer.store.get(NAMESPACE, "a")
        await to.harness.set_phase("Succeeded", "a", code=0)

        assert await relisting == 0
        assert to.changes == [("none", "Pending"), ("Pending", "Succeeded")]


async def test_a_row_that_is_written_during_the_list_stays() -> None:
    """The response of the write may reach the store before the older list does."""
    async with following() as to:
        to.harness.faults.rules.append(Rule(Delay(3, committed=True), verb="list", times=1))
        to.lose('"name":"a"')
        relisting = asyncio.create_task(to.relist.relist())
        await asyncio.sleep(1)
        await to.make("a")
        to.informer.store.put(pod_from_json(await to.client.get(PODS, NAMESPACE, "a")))

        assert await relisting == 0
        assert to.names == {"a"}


async def test_a_pod_without_its_label_is_read_by_name() -> None:
    async with following(runs=True) as to:
        await to.make("a")
        await to.harness.settle()
        await to.harness.change(PODS, "a", {"metadata": {"labels": {JOB_NAME: None}}})
        await to.harness.settle()
        assert to.names == set()
        to.informer.store.put_unselected(pod_from_json(await to.client.get(PODS, NAMESPACE, "a")))
        await to.harness.set_phase("Succeeded", "a", code=0)
        await asyncio.sleep(CHECK_SECONDS[1] + 1)
        assert to.changes[-1] == ("Pending", "Succeeded")

        await asyncio.sleep(LONGEST_SECONDS)
        assert to.names == {"a"}, "no relist takes it away"
        await to.harness.delete(PODS, "a", grace_period_seconds=0)
        await asyncio.sleep(CHECK_SECONDS[1] + 1)
        assert to.names == set()


async def test_a_pod_that_gets_its_label_back_is_watched_again() -> None:
    async with following() as to:
        await to.make("a", other="label")
        to.informer.store.put_unselected(pod_from_json(await to.client.get(PODS, NAMESPACE, "a")))
        await to.harness.change(PODS, "a", {"metadata": {"labels": {JOB_NAME: "train"}}})
        await to.harness.settle()

        assert to.informer.store.unselected == set()
        assert to.names == {"a"}


async def test_a_periodic_relist_repairs_a_lost_event_within_ten_minutes() -> None:
    async with following(runs=True) as to:
        await to.make("a")
        await to.harness.settle()
        to.lose('"phase":"Succeeded"')
        await to.harness.set_phase("Succeeded", "a", code=0)
        await asyncio.sleep(LONGEST_SECONDS)

        assert to.changes[-1] == ("Pending", "Succeeded")


async def test_relists_are_infrequent() -> None:
    async with following(runs=True) as to:
        await asyncio.sleep(3600)

        assert 3600 / sum(PERIOD_SECONDS) < to.harness.faults.count("list") <= 3600 / PERIOD_SECONDS[0]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Refuse(403, "Forbidden", "not you"), id="forbidden"),
        pytest.param(Say(b"<html>"), id="invalid"),
    ],
)
async def test_an_unreadable_object_does_not_end_a_relist(answer: Any) -> None:
    """It is named once, not each time."""
    with capture_logs() as logs:
        async with following(runs=True) as to:
            await to.make("a")
            await to.make("b")
            await to.harness.settle()
            await to.harness.change(PODS, "a", {"metadata": {"labels": {JOB_NAME: None}}})
            await to.harness.settle()
            to.informer.store.put_unselected(pod_from_json(await to.client.get(PODS, NAMESPACE, "a")))
            to.harness.faults.rules.append(Rule(answer, verb="get", plural="pods", name="a"))
            to.lose('"phase":"Succeeded"')
            await to.harness.set_phase("Succeeded", "b", code=0)
            await asyncio.sleep(LONGEST_SECONDS)

            assert to.changes[-1] == ("Pending", "Succeeded")
            assert [
                (line["count"], line["names"]) for line in logs if line["event"] == "objects not read"
            ] == [(1, ["a"])]


async def test_an_unreadable_object_does_not_hide_the_others() -> None:
    async with following() as to:
        for name in ("a", "b", "c"):
            to.lose(f'"name":"{name}"')
            await to.make(name)
        await to.make("d")
        await to.harness.settle()
        assert to.names == {"d"}
        to.harness.faults.rules.append(Rule(Refuse(403, "Forbidden"), verb="get", name="a"))

        assert await to.relist.relist() == 2
        assert to.names == {"b", "c", "d"}


async def test_a_failed_relist_is_retried_soon() -> None:
    """A lost event is still repaired within 10 minutes."""
    async with following(runs=True) as to:
        await to.make("a")
        await to.harness.settle()
        to.harness.faults.rules.append(Rule(Refuse(500, "InternalError"), verb="list", times=1))
        to.lose('"phase":"Succeeded"')
        await to.harness.set_phase("Succeeded", "a", code=0)
        await asyncio.sleep(LONGEST_SECONDS)

        assert to.changes[-1] == ("Pending", "Succeeded")


async def test_failing_relists_are_no_more_frequent_than_others() -> None:
    async with following(runs=True) as to:
        to.harness.faults.rules.append(Rule(Refuse(403, "Forbidden"), verb="list"))
        await asyncio.sleep(2 * 3600)

        assert to.harness.faults.count("list") <= 7200 / PERIOD_SECONDS[0] + 5


async def test_a_failed_relist_changes_nothing_and_is_retried() -> None:
    async with following(runs=True) as to:
        await to.make("a")
        to.harness.faults.rules.append(Rule(Refuse(500, "InternalError"), verb="list", times=1))
        await asyncio.sleep(2 * LONGEST_SECONDS)

        assert to.names == {"a"}
        assert to.harness.faults.count("list") >= 2


def listed(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(version)}}


@dataclass
class SetBack:
    """A server that streams what it has, and lists something else."""

    there: list[dict[str, Any]]
    version: int
    listed: list[dict[str, Any]]
    listed_version: int

    async def __call__(self, request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        if "watch" not in received.query:
            return answer_json(
                {"metadata": {"resourceVersion": str(self.listed_version)}, "items": self.listed}
            )
        end = {
            "resourceVersion": str(self.version),
            "annotations": {"k8s.io/initial-events-end": "true"},
        }
        lines: list[dict[str, Any]] = []
        if "sendInitialEvents" in received.query:
            lines = [{"type": "ADDED", "object": item} for item in self.there]
            lines.append({"type": "BOOKMARK", "object": {"metadata": end}})
        return await answer_lines(request, lines, silence_seconds=80)


@asynccontextmanager
async def against(server: SetBack) -> AsyncGenerator[tuple[Informer[Pod], Relist[Pod], ScriptedServer]]:
    async with ScriptedServer(server) as scripted, Client(scripted.connection) as client:
        informer = Informer[Pod](client, PODS, pod_from_json, lambda before, after: None)
        task = asyncio.create_task(informer.run())
        await informer.synced.wait()
        try:
            yield informer, Relist(informer), scripted
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("items", "version"),
    [
        pytest.param([listed("a", 50)], 60, id="the list is older than the watch"),
        pytest.param([listed("a", 50)], 120, id="an object is older than it was, though the list is newer"),
    ],
)
async def test_a_restored_server_causes_a_new_list(items: list[dict[str, Any]], version: int) -> None:
    server = SetBack([listed("a", 90)], 100, items, version)
    async with against(server) as (informer, relist, scripted):
        server.there, server.version = [listed("b", 55)], 130
        await relist.relist()
        await asyncio.sleep(5)

        assert {row.name for row in informer.store} == {"b"}
        assert len([request for request in scripted.requests if "sendInitialEvents" in request.query]) == 2


async def test_many_differences_cause_no_single_reads() -> None:
    pods = [listed(f"pod-{number}", 90) for number in range(MOST_READS + 1)]
    server = SetBack([], 100, pods, 100)
    async with against(server) as (informer, relist, scripted):
        server.there = pods
        assert await relist.relist() == MOST_READS + 1
        await asyncio.sleep(5)

        assert len(informer.store) == MOST_READS + 1
        assert len([request for request in scripted.requests if "/pods/" in request.path]) == 0


async def test_a_relist_requests_pages_of_metadata() -> None:
    server = SetBack([listed("a", 90)], 100, [listed("a", 90)], 100)
    async with against(server) as (_, relist, scripted):
        await relist.relist()

        (request,) = [request for request in scripted.requests if "watch" not in request.query]
        assert request.query == {"limit": "500"}
        assert request.headers["Accept"] == METADATA_ONLY_LIST


async def test_a_relist_yields_to_other_tasks() -> None:
    pods = [listed(f"pod-{number}", 90) for number in range(3000)]
    server = SetBack(pods, 100, pods, 100)
    async with against(server) as (_, relist, _scripted):
        iterations = 0
        relisting = asyncio.create_task(relist.relist())
        while not relisting.done():
            iterations += 1
            await asyncio.sleep(0)

        assert iterations >= len(pods) / 64
        assert orjson.dumps(await relisting) == b"0"
