"""Gangs of mixed kinds and sizes under the real Volcano and the real coscheduling scheduler; one in twenty of the operator's calls fails.

Together they need several times the GPUs that there are. At the end the changes that watches have reported show whether a gang was ever
bound in part for longer than its scheduler needs to bind a whole one. ``GANG_RUNS`` chooses the number of gangs.
"""

import asyncio
import contextlib
import os
import random
import sys
from typing import Any

import orjson
import pytest

from api.meta import PODS
from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from controller.kube.errors import NotFound
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import WITH_MPI_V1, install
from tests.support import workloads
from tests.support.history import History, record_history
from tests.support.invariants import has
from tests.support.schedulers.gang_cluster import (
    COSCHEDULING,
    NODES,
    VOLCANO,
    GangScheduler,
    gang_body,
)
from tests.support.schedulers.gangs import NAMESPACE, open_nodes
from tests.support.schedulers.operator import Operator
from tests.support.schedulers.partial_gangs import TimedHistory, partly_bound
from tests.support.schedulers.unreliable_proxy import UnreliableProxy, behind_proxy
from tests.support.workloads import Workload

GANGS = int(os.environ.get("GANG_RUNS", "32"))
SIZES = ((2, 32), (4, 16), (4, 32), (3, 32))
"""Pods, and GPUs of each, of which there are 128."""
BINDING_SECONDS = 10.0
"""How long binding a gang may take on a busy machine."""
LONGEST_SECONDS = 900.0
POLLS_PER_SECOND = 5


class Users:
    """Submit jobs and end their pods."""

    def __init__(self, client: Client, history: History, chance: random.Random) -> None:
        self._client, self._history, self._chance = client, history, chance

    async def live(self, workload: Workload, name: str) -> None:
        """Submit a job, wait until all of its pods run, and end it."""
        pods, gpus = self._chance.choice(SIZES)
        body = gang_body(name, workload, pods=pods, gpus=gpus)
        await self._client.create(workload.resource, NAMESPACE, orjson.dumps(body))
        while not self._is_over(workload, name):
            await asyncio.sleep(1 / POLLS_PER_SECOND)
            running = [pod for pod in self._pods(name) if pod["status"].get("phase") == "Running"]
            if len(running) == pods:
                await asyncio.sleep(self._chance.uniform(0, 2))
                launcher = [pod for pod in running if workload.is_launcher(pod)]
                await self._end(launcher or running)

    def _is_over(self, workload: Workload, name: str) -> bool:
        job = self._history.now.get((workload.resource.kind, name))
        return job is not None and (has(job, "Succeeded") or has(job, "Failed"))

    def _pods(self, name: str) -> list[dict[str, Any]]:
        return [
            obj
            for (kind, pod), obj in self._history.now.items()
            if kind == PODS.kind
            and pod.startswith(f"{name}-")
            and not obj["metadata"].get("deletionTimestamp")
        ]

    async def _end(self, pods: list[dict[str, Any]]) -> None:
        change = {"metadata": {"annotations": {"rallypoint.testing/exit-code": "0"}}}
        for pod in pods:
            with contextlib.suppress(NotFound):
                await self._client.patch(PODS, NAMESPACE, pod["metadata"]["name"], orjson.dumps(change))


@pytest.mark.parametrize("scheduler", [VOLCANO, COSCHEDULING], ids=["volcano", "coscheduling"])
async def test_all_gangs_end_and_none_is_bound_in_part(scheduler: GangScheduler, operator: Operator) -> None:
    flags = (f"--gang-scheduler-name={scheduler.name}",)
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    with ControlPlane(nodes=NODES) as plane, scheduler.running(plane):
        open_nodes(plane)
        install(plane, WITH_MPI_V1)
        history = TimedHistory()
        connection = await from_kubeconfig(str(plane.kubeconfig()))
        resources = (PODS, scheduler.groups, *dict.fromkeys(kind.resource for kind in workloads.ALL))
        async with (
            asyncio.timeout(operator.limit(LONGEST_SECONDS)),
            Client(connection, user_agent="test") as client,
            UnreliableProxy(connection, random.Random(chance.random())) as proxy,
            record_history(client, NAMESPACE, resources, history),
        ):
            users = Users(client, history, chance)
            with behind_proxy(operator, plane, proxy.url, flags) as process:
                async with asyncio.TaskGroup() as group:
                    for number in range(GANGS):
                        workload = workloads.ALL[number % len(workloads.ALL)]
                        group.create_task(users.live(workload, f"gang-{number}"))
                        await asyncio.sleep(chance.uniform(0, 0.5))
                await history.until("all PodGroups deleted", lambda: not groups(history))
                log = process.log.read_text()

    sys.stdout.write(f"{GANGS} gangs, {proxy.broken} of {proxy.broken + proxy.passed} calls broken\n")
    times = list(partly_bound(history.timed))
    late = [found for found in times if found.seconds > BINDING_SECONDS]
    assert not late, "\n".join(map(str, late))
    assert len({found.job for found in times}) > GANGS / 2  # their pods are bound one by one
    assert proxy.broken > GANGS / 2
    assert "Traceback" not in log
    assert "is forbidden" not in log


def groups(history: History) -> list[str]:
    return [name for kind, name in history.now if kind == "PodGroup"]
