"""batch/v1 Jobs on both servers: our controller of Jobs beside the embedded one, the real one beside the real one.

No pod really runs: each test says what becomes of them, and the jobs must tell the same of it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest

from controller.kube.client import Client
from controller.kube.connect import Connection
from rallypoint.local.apiserver import ApiServer
from rallypoint.local.batch.jobs import Jobs
from rallypoint.testing.http_trace import MERGE, RawClient, Step
from tests.support.comparable import comparable
from tests.support.json_differences import differences

T = TypeVar("T")
Json = dict[str, Any]
READY = {"type": "Ready", "status": "True"}
RUNNING = {"phase": "Running", "conditions": [READY]}


@pytest.fixture(autouse=True)
async def controller(embedded_server: ApiServer) -> AsyncIterator[None]:
    """Ours, of the Jobs in the embedded server."""
    connection = Connection(server=embedded_server.url, token=lambda: embedded_server.token)
    async with Client(connection) as client:
        running = asyncio.create_task(Jobs(client).run())
        yield
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class Hand:
    """Does on one server what people and kubelets do."""

    def __init__(self, client: RawClient, namespace: str) -> None:
        self._client = client
        self._jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    async def submit(self, restart: str = "Never", **spec: Any) -> None:
        container = {"name": "c", "image": "none", "command": ["true"]}
        template = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [container], "restartPolicy": restart},
        }
        job = {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}
        reply = await self._client.send(Step("POST", self._jobs, job, 201))
        assert reply.code == 201, reply.text

    async def change(self, **spec: Any) -> None:
        reply = await self._client.send(Step("PATCH", f"{self._jobs}/j", {"spec": spec}, type=MERGE))
        assert reply.code == 200, reply.text

    async def delete(self) -> None:
        options = {"propagationPolicy": "Background"}
        await self._client.send(Step("DELETE", f"{self._jobs}/j", options))

    async def pods(self) -> list[Json]:
        reply = await self._client.send(Step("GET", self._pods))
        return sorted(reply.body["items"], key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    async def report(self, pod: Json, **status: Any) -> None:
        path = f"{self._pods}/{pod['metadata']['name']}/status"
        reply = await self._client.send(Step("PATCH", path, {"status": status}, type=MERGE))
        assert reply.code == 200, reply.text

    async def until_pods(self, count: int) -> list[Json]:
        """The pods that are neither over nor going, once there are so many."""

        async def found() -> list[Json] | None:
            pods = [pod for pod in await self.pods() if _lives(pod)]
            return pods if len(pods) == count else None

        return await _until(found)

    async def until(self, holds: Callable[[Json], bool]) -> Json:
        """The job, once that holds of it."""

        async def found() -> Json | None:
            reply = await self._client.send(Step("GET", f"{self._jobs}/j"))
            return reply.body if reply.code == 200 and holds(reply.body.get("status") or {}) else None

        return await _until(found)

    async def until_gone(self) -> list[Json]:
        """Once there is neither the job nor a pod of it."""

        async def gone() -> list[Json] | None:
            reply = await self._client.send(Step("GET", f"{self._jobs}/j"))
            pods = await self.pods()
            return [{}] if reply.code == 404 and not pods else None

        return await _until(gone)


async def _until(look: Callable[[], Awaitable[T | None]]) -> T:
    async with asyncio.timeout(60):
        while (found := await look()) is None:  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.05)
    return found


def _lives(pod: Json) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]


def has(kind: str, value: str = "True") -> Callable[[Json], bool]:
    return lambda status: any(
        one["type"] == kind and one["status"] == value for one in status.get("conditions") or ()
    )


def counts(**wanted: int) -> Callable[[Json], bool]:
    return lambda status: all(status.get(name, 0) == value for name, value in wanted.items())


async def succeeds(hand: Hand) -> Json:
    await hand.submit()
    (pod,) = await hand.until_pods(1)
    await hand.until(counts(active=1))
    await hand.report(pod, phase="Succeeded")
    return await hand.until(has("Complete"))


async def runs(hand: Hand) -> Json:
    await hand.submit()
    (pod,) = await hand.until_pods(1)
    await hand.report(pod, **RUNNING)
    return await hand.until(counts(active=1, ready=1))


async def two_succeed_in_turn(hand: Hand) -> Json:
    await hand.submit(completions=2)
    for succeeded in range(2):
        (pod,) = await hand.until_pods(1)
        await hand.report(pod, phase="Succeeded")
        await hand.until(counts(succeeded=succeeded + 1))
    return await hand.until(has("Complete"))


async def two_at_once(hand: Hand) -> Json:
    await hand.submit(parallelism=2, completions=2)
    for pod in await hand.until_pods(2):
        await hand.report(pod, phase="Succeeded")
    return await hand.until(has("Complete"))


async def one_of_several_succeeds(hand: Hand) -> Json:
    await hand.submit(parallelism=2)
    for pod in await hand.until_pods(2):
        await hand.report(pod, phase="Succeeded")
    return await hand.until(has("Complete"))


async def fails_at_once(hand: Hand) -> Json:
    await hand.submit(backoffLimit=0)
    (pod,) = await hand.until_pods(1)
    await hand.report(pod, phase="Failed")
    return await hand.until(has("Failed"))


async def one_failure_ends_the_others(hand: Hand) -> Json:
    await hand.submit(backoffLimit=0, parallelism=2, completions=2)
    pod, _ = await hand.until_pods(2)
    await hand.report(pod, phase="Failed")
    return await hand.until(has("Failed"))


async def fails_and_waits(hand: Hand) -> Json:
    """The next pod is held back for 10 s."""
    await hand.submit(backoffLimit=1)
    (pod,) = await hand.until_pods(1)
    await hand.report(pod, phase="Failed")
    return await hand.until(counts(active=0, failed=1))


def restarted(times: int) -> Json:
    """The container of a pod that runs after so many restarts."""
    return {
        "name": "c",
        "image": "none",
        "imageID": "",
        "ready": True,
        "restartCount": times,
        "state": {"running": {}},
    }


async def restarts_too_often(hand: Hand) -> Json:
    await hand.submit("OnFailure", backoffLimit=2)
    (pod,) = await hand.until_pods(1)
    await hand.report(pod, **RUNNING, containerStatuses=[restarted(2)])
    return await hand.until(has("Failed"))


async def restarts_now_and_then(hand: Hand) -> Json:
    await hand.submit("OnFailure", backoffLimit=2)
    (pod,) = await hand.until_pods(1)
    await hand.report(pod, **RUNNING, containerStatuses=[restarted(1)])
    return await hand.until(counts(active=1, ready=1))


async def takes_too_long(hand: Hand) -> Json:
    await hand.submit(activeDeadlineSeconds=1)
    return await hand.until(has("Failed"))


async def waits_suspended(hand: Hand) -> Json:
    await hand.submit(suspend=True)
    return await hand.until(has("Suspended"))


async def is_resumed(hand: Hand) -> Json:
    await hand.submit(suspend=True)
    await hand.until(has("Suspended"))
    await hand.change(suspend=False)
    await hand.until_pods(1)
    return await hand.until(counts(active=1))


async def is_suspended_while_it_runs(hand: Hand) -> Json:
    await hand.submit()
    (pod,) = await hand.until_pods(1)
    await hand.report(pod, **RUNNING)
    await hand.until(counts(active=1, ready=1))
    await hand.change(suspend=True)
    await hand.until(has("Suspended"))
    return await hand.until(counts(active=0, terminating=0, failed=0))


async def is_made_smaller(hand: Hand) -> Json:
    await hand.submit(parallelism=2, completions=4)
    await hand.until_pods(2)
    await hand.change(parallelism=1)
    await hand.until_pods(1)
    return await hand.until(counts(active=1, failed=0, terminating=0))


async def wants_no_pods(hand: Hand) -> Json:
    await hand.submit(parallelism=0)
    return await hand.until(lambda status: "startTime" in status)


async def wants_no_completions(hand: Hand) -> Json:
    await hand.submit(completions=0)
    return await hand.until(has("Complete"))


async def replaces_the_failed_only(hand: Hand) -> Json:
    await hand.submit(podReplacementPolicy="Failed")
    (pod,) = await hand.until_pods(1)
    await hand.report(pod, **RUNNING)
    return await hand.until(counts(active=1, ready=1))


@pytest.mark.parametrize(
    "story",
    [
        succeeds, runs, two_succeed_in_turn, two_at_once, one_of_several_succeeds, fails_at_once,
        one_failure_ends_the_others, fails_and_waits, restarts_too_often, restarts_now_and_then, takes_too_long,
        waits_suspended, is_resumed, is_suspended_while_it_runs, is_made_smaller, wants_no_pods,
        wants_no_completions, replaces_the_failed_only,
    ],
)  # fmt: skip
async def test_a_job_that(
    story: Callable[[Hand], Awaitable[Json]], embedded: RawClient, real: RawClient, namespace: str
) -> None:
    ours, theirs = await asyncio.gather(*(story(Hand(client, namespace)) for client in (embedded, real)))

    assert not list(differences(_sorted(comparable(theirs)), _sorted(comparable(ours))))


def _sorted(job: Json) -> Json:
    """Conditions are told in no order."""
    conditions = sorted(job["status"].get("conditions") or (), key=lambda one: str(one["type"]))
    return {**job, "status": {**job["status"], "conditions": conditions}}


async def test_what_its_pods_are(embedded: RawClient, real: RawClient, namespace: str) -> None:
    async def pod(client: RawClient) -> Json:
        hand = Hand(client, namespace)
        await hand.submit()
        (made,) = await hand.until_pods(1)
        return made

    ours, theirs = await asyncio.gather(pod(embedded), pod(real))
    ignore = ("metadata.name", "spec.nodeName")

    assert not list(differences(comparable(theirs, ignore), comparable(ours, ignore)))


@pytest.mark.parametrize("how", ["when it is deleted", "when it has been kept long enough"])
async def test_a_job_that_goes(embedded: RawClient, real: RawClient, namespace: str, how: str) -> None:
    """Its pods go with it, on both."""

    async def goes(client: RawClient) -> list[Json]:
        hand = Hand(client, namespace)
        spec: Json = {"ttlSecondsAfterFinished": 0} if "kept" in how else {}
        await hand.submit("Never", **spec)
        (pod,) = await hand.until_pods(1)
        if "kept" in how:
            await hand.report(pod, phase="Succeeded")
        else:
            await hand.delete()
        return await hand.until_gone()

    ours, theirs = await asyncio.gather(goes(embedded), goes(real))

    assert ours == theirs == [{}]
