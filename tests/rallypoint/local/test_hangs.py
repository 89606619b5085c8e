"""Jobs that hang, with real processes: the embedded server's logs and commands, and a stopped rank."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.v1.pytorchjob import RESOURCE
from controller import app
from controller.crds import all_crds
from rallypoint.cli.local_flags import SETTINGS
from rallypoint.local.cluster import LocalCluster, local_cluster
from rallypoint.local.manifest import Manifest

pytestmark = pytest.mark.looptime(False)

TIMEOUT_SECONDS = 90.0
PROGRAM = """
import faulthandler, os, pathlib, signal, time
faulthandler.register(signal.SIGUSR1)
folder, rank, attempt = pathlib.Path({folder!r}), os.environ["RANK"], os.environ.get("RALLYPOINT_RESTART_ATTEMPT", "0")
(folder / f"pid-{{rank}}").write_text(str(os.getpid()))

def barrier(step):
    (folder / f"{{attempt}}-{{step}}-{{rank}}").touch()
    while len(list(folder.glob(f"{{attempt}}-{{step}}-*"))) < 4:
        time.sleep(0.05)

step = 0
while attempt == "0" or step < 3:
    print("step", step, flush=True)
    (folder / f"step-{{rank}}").write_text(str(step))
    barrier(step)
    step += 1
    time.sleep(0.2)
"""
"""Each rank waits in each step for the others, as in a collective."""


def job(folder: Path, **run_policy: Any) -> Manifest:
    container = {
        "name": "pytorch",
        "image": "none",
        "command": [sys.executable, "-c", PROGRAM.format(folder=str(folder))],
    }
    roles = {
        role: {
            "replicas": count,
            "restartPolicy": "Never",
            "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}},
        }
        for role, count in (("Master", 1), ("Worker", 3))
    }
    return {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": {"name": "train"},
        "spec": {"pytorchReplicaSpecs": roles, "runPolicy": {"progressDeadlineSeconds": 10, **run_policy}},
    }


async def stop_rank(folder: Path, rank: int) -> None:
    """Stop a rank once it has made a step."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            if (folder / f"0-3-{rank}").exists():
                os.kill(int((folder / f"pid-{rank}").read_text()), signal.SIGSTOP)
                return
            await asyncio.sleep(0.05)


async def ended(cluster: LocalCluster) -> Manifest:
    """Return the status of the job once it has finished."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            answer = await cluster.client.get(RESOURCE, "default", "train")
            status: Manifest = orjson.loads(answer).get("status", {})
            if "completionTime" in status:
                return status
            await asyncio.sleep(0.1)


async def run_with_stopped_rank(folder: Path, **run_policy: Any) -> Manifest:
    """Return the final status of a job whose rank 2 is stopped in its first attempt."""
    marks = folder / "marks"
    marks.mkdir()
    async with (
        local_cluster(all_crds(), folder / "cluster", isolation="loopback") as cluster,
        asyncio.TaskGroup() as tasks,
    ):
        controller = tasks.create_task(app.run(SETTINGS, cluster.connection))
        await cluster.client.create(RESOURCE, "default", orjson.dumps(job(marks, **run_policy)))
        await stop_rank(marks, 2)
        status = await ended(cluster)
        controller.cancel()
    return status


def last_condition(status: Manifest) -> tuple[str, str]:
    last = [condition for condition in status["conditions"] if condition["status"] == "True"][-1]
    return last["type"], last["reason"]


async def test_a_stopped_rank_is_named_with_its_stack_and_the_job_restarts(tmp_path: Path) -> None:
    rules = [{"action": "RestartJob", "onReasons": ["NoProgress"]}]
    status = await run_with_stopped_rank(
        tmp_path, failurePolicy={"rules": rules}, progress={"stackSignal": "SIGUSR1"}
    )

    (attempt,) = status["attempts"]
    assert last_condition(status) == ("Succeeded", "PyTorchJobSucceeded")
    assert (attempt["pod"], attempt["role"], attempt["reason"]) == ("train-worker-1", "Worker", "NoProgress")
    stopped, waiting = attempt["stacks"]
    assert stopped["pods"] == ["train-worker-1"]
    assert ", stopped: " in stopped["text"]
    assert sorted(waiting["pods"]) == ["train-master-0", "train-worker-0", "train-worker-2"]
    assert " in barrier" in waiting["text"] or "barrier (" in waiting["text"]


async def test_a_command_shows_progress_and_without_a_rule_the_job_fails(tmp_path: Path) -> None:
    command = ["sh", "-c", f"cat {tmp_path}/marks/step-*"]
    status = await run_with_stopped_rank(tmp_path, progress={"exec": {"command": command}})

    assert last_condition(status) == ("Failed", "PyTorchJobNoProgress")
    assert [attempt["pod"] for attempt in status["attempts"]] == ["train-worker-1"]
