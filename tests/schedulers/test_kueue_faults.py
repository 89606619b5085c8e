"""Many jobs of each kind under the real Kueue, while one in twenty of the operator's calls fails.

Kueue or the operator keeps their Workloads. Jobs preempt each other, fail, and are deleted. At the end the changes that watches have reported show whether a pod ever had no quota.
``KUEUE_RUNS`` chooses the jobs of each kind whose Workloads the operator keeps; there are a fifth as many if Kueue does.
"""

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.batch import BATCH_JOBS
from api.labels import JOB_NAME
from api.meta import PODS
from api.workloads import WORKLOADS
from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from controller.kube.errors import NotFound
from tests.support.history import History, record_history
from tests.support.invariants import has
from tests.support.schedulers.integrators import FLAGS, INTEGRATORS, Environment, Integrator, kueue_alone
from tests.support.schedulers.operator import Operator
from tests.support.schedulers.queues import Queue, QueuedKind, create_priority_class, job_body
from tests.support.schedulers.quota import violations
from tests.support.schedulers.unreliable_proxy import UnreliableProxy, behind_proxy

RUNS = int(os.environ.get("KUEUE_RUNS", "50"))
CPUS = 20
"""For five jobs at once."""
POLLS_PER_SECOND = 5
LONGEST_SECONDS = 1800.0


@pytest.fixture(params=INTEGRATORS, ids=str)
def kueue(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Environment]:
    integrator: Integrator = request.param
    with kueue_alone(integrator, tmp_path) as running:
        yield running


class Users:
    """Submit jobs, end their pods, and delete some of them."""

    def __init__(self, client: Client, queue: Queue, history: History, chance: random.Random) -> None:
        self._client, self._queue, self._history, self._chance = client, queue, history, chance
        self.deleted: set[str] = set()

    async def live(self, kind: QueuedKind, name: str) -> None:
        """Submit a job, and wait until it has finished or, one in twenty, is deleted."""
        urgent = {"priority_class": "urgent"} if self._chance.random() < 0.2 else {}
        body = orjson.dumps(job_body(kind, name, "main", **urgent))
        await self._client.create(kind.resource, self._queue.name, body)
        is_to_go, fails = self._chance.random() < 0.05, self._chance.random() < 0.1
        running_for = self._chance.uniform(0, 2)
        while not self.is_over(kind, name):
            await asyncio.sleep(1 / POLLS_PER_SECOND)
            if is_to_go and self._chance.random() < 0.05:
                await self._delete(kind, name)
                return
            pods = self._pods(name)
            if len(pods) == 4 and all(pod["status"].get("phase") == "Running" for pod in pods):
                await asyncio.sleep(running_for)
                await self._end(pods, 1 if fails else 0)

    def is_over(self, kind: QueuedKind, name: str) -> bool:
        job = self._history.now.get((kind.resource.kind, name))
        return job is not None and (has(job, "Succeeded") or has(job, "Failed"))

    def _pods(self, name: str) -> list[dict[str, Any]]:
        return [
            obj
            for (own, _), obj in self._history.now.items()
            if own == PODS.kind
            and obj["metadata"]["labels"][JOB_NAME] == name
            and not obj["metadata"].get("deletionTimestamp")
        ]

    async def _end(self, pods: list[dict[str, Any]], code: int) -> None:
        change = {"metadata": {"annotations": {"rallypoint.testing/exit-code": str(code)}}}
        for pod in pods:
            with contextlib.suppress(NotFound):
                name = pod["metadata"]["name"]
                await self._client.patch(PODS, self._queue.name, name, orjson.dumps(change))
            await asyncio.sleep(self._chance.uniform(0, 0.1))

    async def _delete(self, kind: QueuedKind, name: str) -> None:
        self.deleted.add(name)
        await self._client.delete(kind.resource, self._queue.name, name, propagation="Background")


def preemptions(history: History) -> int:
    """Return how often Kueue has preempted a job."""
    conditions = (
        (obj["metadata"]["uid"], condition)
        for _, obj in history.changes
        if obj["kind"] == WORKLOADS.kind
        for condition in (obj.get("status") or {}).get("conditions") or ()
    )
    evicted = ("Evicted", "True", "Preempted")
    return len(
        {
            (uid, condition["lastTransitionTime"])
            for uid, condition in conditions
            if (condition["type"], condition["status"], condition["reason"]) == evicted
        }
    )


async def test_no_pod_without_quota_and_no_job_forgotten(kueue: Environment, operator: Operator) -> None:
    plane, kinds = kueue.plane, kueue.integrator.kinds
    flags = (*FLAGS, *(["--kueue"] if kueue.integrator.is_operator else []))
    runs = RUNS if kueue.integrator.is_operator else RUNS // 5
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    queue = Queue(plane, "busy", cpus=CPUS)
    create_priority_class(plane, "urgent", 1000)
    connection = await from_kubeconfig(str(plane.kubeconfig()))
    resources = (PODS, WORKLOADS, BATCH_JOBS, *(kind.resource for kind in kinds))
    async with (
        asyncio.timeout(operator.limit(LONGEST_SECONDS)),
        Client(connection, user_agent="test") as client,
        UnreliableProxy(connection, random.Random(chance.random())) as proxy,
        record_history(client, queue.name, resources) as history,
    ):
        users = Users(client, queue, history, chance)
        with behind_proxy(operator, plane, proxy.url, flags) as process:
            names = [(kind, f"{kind.resource.singular}-{at}") for at in range(runs) for kind in kinds]
            chance.shuffle(names)
            async with asyncio.TaskGroup() as group:
                for kind, name in names:
                    group.create_task(users.live(kind, name))
                    await asyncio.sleep(chance.uniform(0, 0.5))

            def open_workloads() -> list[str]:
                return [
                    name
                    for (kind, name), obj in history.now.items()
                    if kind == WORKLOADS.kind and not has(obj, "Finished")
                ]

            await history.until("all Workloads to be finished", lambda: not open_workloads())
            log = process.log.read_text()

    found = list(violations(history.changes, CPUS, by_status=not kueue.integrator.is_operator))
    preempted = preemptions(history)
    sys.stdout.write(
        f"{len(names)} jobs, {len(users.deleted)} deleted, {preempted} preempted, "
        f"{proxy.broken} of {proxy.broken + proxy.passed} calls broken\n"
    )
    assert not found, "\n".join(found[:30])
    assert preempted
    assert proxy.broken > len(names) / 2
    finalizers = [
        obj
        for (kind, _), obj in history.now.items()
        if kind == WORKLOADS.kind and obj["metadata"].get("finalizers")
    ]
    assert len(finalizers) <= len(names) / 10  # the last ones may still lose theirs
    queue.wait("its quota returned", lambda: queue.used() == 0)
    assert "Traceback" not in log
    assert "is forbidden" not in log
