"""A job that restarts as a whole, with real processes."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from api.labels import RESTART_ATTEMPT
from api.meta import PODS
from api.v1.pytorchjob import RESOURCE
from controller import app
from controller.crds import all_crds
from rallypoint.cli.local_flags import SETTINGS
from rallypoint.local.cluster import LocalCluster, local_cluster
from rallypoint.local.manifest import Manifest

pytestmark = pytest.mark.looptime(False)

TIMEOUT_SECONDS = 60.0
SCRIPT = """
touch {folder}/$RALLYPOINT_RESTART_ATTEMPT-$RANK
while [ $(ls {folder}/$RALLYPOINT_RESTART_ATTEMPT-* | wc -l) -lt 4 ]; do sleep 0.05; done
if [ $RALLYPOINT_RESTART_ATTEMPT = 0 ]; then
    if [ $RANK = 2 ]; then exit 7; fi
    while :; do sleep 0.05; done
fi
"""
"""Each rank waits for the others. In the first attempt one then fails and the others hang, as in a collective."""


def job(folder: Path, **policy: Any) -> Manifest:
    container = {
        "name": "pytorch",
        "image": "none",
        "command": ["sh", "-c", SCRIPT.format(folder=folder)],
    }
    roles = {
        role: {
            "replicas": count,
            "restartPolicy": "Never",
            "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}},
        }
        for role, count in (("Master", 1), ("Worker", 3))
    }
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [7]}},
        {"action": "RestartJob", "name": "seven"},
    ]
    return {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": {"name": "train"},
        "spec": {
            "pytorchReplicaSpecs": roles,
            "runPolicy": {"failurePolicy": {"maxRestarts": 1, "rules": rules, **policy}},
        },
    }


async def ended(cluster: LocalCluster) -> Manifest:
    """Return the status of the job once it has finished."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            status: Manifest = orjson.loads(await cluster.client.get(RESOURCE, "default", "train")).get(
                "status", {}
            )
            if "completionTime" in status:
                return status
            await asyncio.sleep(0.1)


async def test_all_ranks_begin_again_after_the_failure_of_one(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    async with (
        local_cluster(all_crds(), tmp_path / "cluster", isolation="loopback") as cluster,
        asyncio.TaskGroup() as tasks,
    ):
        controller = tasks.create_task(app.run(SETTINGS, cluster.connection))
        await cluster.client.create(RESOURCE, "default", orjson.dumps(job(marks)))
        status = await ended(cluster)
        controller.cancel()

    (attempt,) = status["attempts"]
    assert [condition["type"] for condition in status["conditions"] if condition["status"] == "True"][-1] == (
        "Succeeded"
    )
    assert (attempt["pod"], attempt["exitCode"], attempt["rule"]) == ("train-worker-1", 7, "seven")
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
    assert sorted(mark.name for mark in marks.iterdir()) == [
        f"{attempt}-{rank}" for attempt in (0, 1) for rank in range(4)
    ]


async def test_all_ranks_begin_again_in_their_pods(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    given = job(marks, restartStrategy="InPlaceRestart")
    async with (
        local_cluster(all_crds(), tmp_path / "cluster", isolation="loopback") as cluster,
        asyncio.TaskGroup() as tasks,
    ):
        controller = tasks.create_task(app.run(SETTINGS, cluster.connection))
        await cluster.client.create(RESOURCE, "default", orjson.dumps(given))
        status = await ended(cluster)
        pods = orjson.loads(await cluster.client.request("GET", PODS.path("default")))["items"]
        controller.cancel()

    (attempt,) = status["attempts"]
    assert (attempt["pod"], attempt["exitCode"], attempt["rule"]) == ("train-worker-1", 7, "seven")
    assert attempt["inPlace"]
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
    assert sorted(mark.name for mark in marks.iterdir()) == [
        f"{attempt}-{rank}" for attempt in (0, 1) for rank in range(4)
    ]
    assert {pod["metadata"]["labels"][RESTART_ATTEMPT] for pod in pods} == {"0"}
    restarts = {
        pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods
    }
    assert restarts == {"train-master-0": 0, "train-worker-0": 0, "train-worker-1": 1, "train-worker-2": 0}


async def test_no_process_outlives_its_pod(tmp_path: Path) -> None:
    """The command is in a session of its own and ignores SIGTERM, so that only SIGKILL ends it."""
    given = job(tmp_path, restartStrategy="InPlaceRestart")
    script = f"trap '' TERM; echo $$$$ > {tmp_path}/$RANK; while :; do sleep 0.05; done"
    for role in given["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["containers"][0]["command"][2] = script
    async with (
        local_cluster(all_crds(), tmp_path / "cluster", isolation="loopback") as cluster,
        asyncio.TaskGroup() as tasks,
    ):
        controller = tasks.create_task(app.run(SETTINGS, cluster.connection))
        await cluster.client.create(RESOURCE, "default", orjson.dumps(given))
        ranks = [tmp_path / str(rank) for rank in range(4)]
        await until(lambda: all(rank.exists() and rank.read_text() for rank in ranks))
        pids = [int(rank.read_text()) for rank in ranks]
        await cluster.client.delete(RESOURCE, "default", "train")
        await until(lambda: not any(map(is_alive, pids)))
        controller.cancel()


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110 - what other processes do sets no event
            await asyncio.sleep(0.05)
