"""batch/v1 Jobs on both servers: our job controller with the embedded server, kube-controller-manager with the real one.

No pod really runs: each test sets the status of pods, and the status of the jobs must be the same on both servers.
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
    """Our job controller, connected to the embedded server."""
    connection = Connection(server=embedded_server.url, token=lambda: embedded_server.token)
    async with Client(connection) as client:
        running = asyncio.create_task(Jobs(client).run())
        yield
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class Actor:
    """The actions of users and kubelets on one server."""

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
        """The pods that are neither finished nor terminating, once there are ``count`` of them."""

        async def found() -> list[Json] | None:
            pods = [pod for pod in await self.pods() if _is_active(pod)]
            return pods if len(pods) == count else None

        return await _until(found)

    async def until(self, holds: Callable[[Json], bool]) -> Json:
        """The job, once its status satisfies the condition."""

        async def found() -> Json | None:
            reply = await self._client.send(Step("GET", f"{self._jobs}/j"))
            return reply.body if reply.code == 200 and holds(reply.body.get("status") or {}) else None

        return await _until(found)

    async def until_gone(self) -> list[Json]:
        """Wait until neither the job nor any pod exists."""

        async def gone() -> list[Json] | None:
            reply = await self._client.send(Step("GET", f"{self._jobs}/j"))
            pods = await self.pods()
            return [{}] if reply.code == 404 and not pods else None

        return await _until(gone)


async def _until(probe: Callable[[], Awaitable[T | None]]) -> T:
    async with asyncio.timeout(60):
        while (found := await probe()) is None:  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.05)
    return found


def _is_active(pod: Json) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]


def has_condition(kind: str, value: str = "True") -> Callable[[Json], bool]:
    return lambda status: any(
        condition["type"] == kind and condition["status"] == value
        for condition in status.get("conditions") or ()
    )


def counts(**wanted: int) -> Callable[[Json], bool]:
    return lambda status: all(status.get(name, 0) == value for name, value in wanted.items())


async def succeeds(actor: Actor) -> Json:
    await actor.submit()
    (pod,) = await actor.until_pods(1)
    await actor.until(counts(active=1))
    await actor.report(pod, phase="Succeeded")
    return await actor.until(has_condition("Complete"))


async def runs(actor: Actor) -> Json:
    await actor.submit()
    (pod,) = await actor.until_pods(1)
    await actor.report(pod, **RUNNING)
    return await actor.until(counts(active=1, ready=1))


async def succeeds_after_two_pods_in_sequence(actor: Actor) -> Json:
    await actor.submit(completions=2)
    for succeeded in range(2):
        (pod,) = await actor.until_pods(1)
        await actor.report(pod, phase="Succeeded")
        await actor.until(counts(succeeded=succeeded + 1))
    return await actor.until(has_condition("Complete"))


async def succeeds_after_two_pods_in_parallel(actor: Actor) -> Json:
    await actor.submit(parallelism=2, completions=2)
    for pod in await actor.until_pods(2):
        await actor.report(pod, phase="Succeeded")
    return await actor.until(has_condition("Complete"))


async def succeeds_as_a_work_queue(actor: Actor) -> Json:
    await actor.submit(parallelism=2)
    for pod in await actor.until_pods(2):
        await actor.report(pod, phase="Succeeded")
    return await actor.until(has_condition("Complete"))


async def fails_at_once(actor: Actor) -> Json:
    await actor.submit(backoffLimit=0)
    (pod,) = await actor.until_pods(1)
    await actor.report(pod, phase="Failed")
    return await actor.until(has_condition("Failed"))


async def fails_and_stops_other_pods(actor: Actor) -> Json:
    await actor.submit(backoffLimit=0, parallelism=2, completions=2)
    pod, _ = await actor.until_pods(2)
    await actor.report(pod, phase="Failed")
    return await actor.until(has_condition("Failed"))


async def waits_in_backoff_after_a_failure(actor: Actor) -> Json:
    """The next pod is held back for 10 s."""
    await actor.submit(backoffLimit=1)
    (pod,) = await actor.until_pods(1)
    await actor.report(pod, phase="Failed")
    return await actor.until(counts(active=0, failed=1))


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


async def restarts_beyond_the_limit(actor: Actor) -> Json:
    await actor.submit("OnFailure", backoffLimit=2)
    (pod,) = await actor.until_pods(1)
    await actor.report(pod, **RUNNING, containerStatuses=[restarted(2)])
    return await actor.until(has_condition("Failed"))


async def restarts_within_the_limit(actor: Actor) -> Json:
    await actor.submit("OnFailure", backoffLimit=2)
    (pod,) = await actor.until_pods(1)
    await actor.report(pod, **RUNNING, containerStatuses=[restarted(1)])
    return await actor.until(counts(active=1, ready=1))


async def exceeds_its_deadline(actor: Actor) -> Json:
    await actor.submit(activeDeadlineSeconds=1)
    return await actor.until(has_condition("Failed"))


async def is_created_suspended(actor: Actor) -> Json:
    await actor.submit(suspend=True)
    return await actor.until(has_condition("Suspended"))


async def is_resumed(actor: Actor) -> Json:
    await actor.submit(suspend=True)
    await actor.until(has_condition("Suspended"))
    await actor.change(suspend=False)
    await actor.until_pods(1)
    return await actor.until(counts(active=1))


async def is_suspended_while_running(actor: Actor) -> Json:
    await actor.submit()
    (pod,) = await actor.until_pods(1)
    await actor.report(pod, **RUNNING)
    await actor.until(counts(active=1, ready=1))
    await actor.change(suspend=True)
    await actor.until(has_condition("Suspended"))
    return await actor.until(counts(active=0, terminating=0, failed=0))


async def is_scaled_down(actor: Actor) -> Json:
    await actor.submit(parallelism=2, completions=4)
    await actor.until_pods(2)
    await actor.change(parallelism=1)
    await actor.until_pods(1)
    return await actor.until(counts(active=1, failed=0, terminating=0))


async def has_parallelism_zero(actor: Actor) -> Json:
    await actor.submit(parallelism=0)
    return await actor.until(lambda status: "startTime" in status)


async def has_completions_zero(actor: Actor) -> Json:
    await actor.submit(completions=0)
    return await actor.until(has_condition("Complete"))


async def replaces_only_failed_pods(actor: Actor) -> Json:
    await actor.submit(podReplacementPolicy="Failed")
    (pod,) = await actor.until_pods(1)
    await actor.report(pod, **RUNNING)
    return await actor.until(counts(active=1, ready=1))


@pytest.mark.parametrize(
    "scenario",
    [
        succeeds, runs, succeeds_after_two_pods_in_sequence, succeeds_after_two_pods_in_parallel, succeeds_as_a_work_queue, fails_at_once,
        fails_and_stops_other_pods, waits_in_backoff_after_a_failure, restarts_beyond_the_limit, restarts_within_the_limit, exceeds_its_deadline,
        is_created_suspended, is_resumed, is_suspended_while_running, is_scaled_down, has_parallelism_zero,
        has_completions_zero, replaces_only_failed_pods,
    ],
)  # fmt: skip
async def test_a_job_has_the_same_status_on_both_servers(
    scenario: Callable[[Actor], Awaitable[Json]], embedded: RawClient, real: RawClient, namespace: str
) -> None:
    ours, theirs = await asyncio.gather(*(scenario(Actor(client, namespace)) for client in (embedded, real)))

    assert not list(differences(_sorted(comparable(theirs)), _sorted(comparable(ours))))


def _sorted(job: Json) -> Json:
    """The order of conditions is undefined."""
    conditions = sorted(job["status"].get("conditions") or (), key=lambda condition: str(condition["type"]))
    return {**job, "status": {**job["status"], "conditions": conditions}}


async def test_pods_are_the_same_on_both_servers(
    embedded: RawClient, real: RawClient, namespace: str
) -> None:
    async def pod(client: RawClient) -> Json:
        actor = Actor(client, namespace)
        await actor.submit()
        (made,) = await actor.until_pods(1)
        return made

    ours, theirs = await asyncio.gather(pod(embedded), pod(real))
    ignore = ("metadata.name", "spec.nodeName")

    assert not list(differences(comparable(theirs, ignore), comparable(ours, ignore)))


@pytest.mark.parametrize("how", ["deleted", "expired"])
async def test_deleting_a_job_deletes_its_pods(
    embedded: RawClient, real: RawClient, namespace: str, how: str
) -> None:
    """Its pods go with it, on both."""

    async def goes(client: RawClient) -> list[Json]:
        actor = Actor(client, namespace)
        spec: Json = {"ttlSecondsAfterFinished": 0} if how == "expired" else {}
        await actor.submit("Never", **spec)
        (pod,) = await actor.until_pods(1)
        if how == "expired":
            await actor.report(pod, phase="Succeeded")
        else:
            await actor.delete()
        return await actor.until_gone()

    ours, theirs = await asyncio.gather(goes(embedded), goes(real))

    assert ours == theirs == [{}]
