"""``kill -9`` at random moments: started processes end by themselves, in both isolations; no acknowledged write is lost.

``RALLYPOINT_KILLS`` says how many times (50 in a measurement), ``RALLYPOINT_SEED`` repeats a run.
"""

import asyncio
import contextlib
import itertools
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import yaml

from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.testing.http_trace import MERGE, RawClient, Step
from rallypoint.testing.up import RALLYPOINT, Up, has, up

ROUNDS = int(os.environ.get("RALLYPOINT_KILLS", "3"))
SEED = int(os.environ.get("RALLYPOINT_SEED", random.randrange(2**32)))
LONGEST_SECONDS = 4.0
"""By then all pods run; earlier kills meet the start of each part."""
TIMEOUT_SECONDS = 30.0
ROOT = Path(__file__).parents[3]
COMMAND = [*RALLYPOINT, "run"]
JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"


def job(folder: Path) -> str:
    """Three pods, each with a process that leaves its group and one that does not listen, and volumes of all kinds."""
    script = "(setsid sleep 1000 &) ; trap '' TERM; while :; do sleep 0.05; done"
    container = {
        "name": "pytorch",
        "image": "none",
        "command": ["sh", "-c", script],
        "env": [{"name": "D", "value": "/data /secret"}],
        "volumeMounts": [
            {"name": "memory", "mountPath": "/dev/shm"},
            {"name": "scratch", "mountPath": "/data"},
            {"name": "secret", "mountPath": "/secret"},
        ],
    }
    volumes = [
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "secret", "secret": {"secretName": "s"}},
    ]
    template = {"spec": {"containers": [container], "volumes": volumes}}
    replicas = {"Master": {"template": template}, "Worker": {"replicas": 2, "template": template}}
    documents = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": "value"}},
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "job"},
            "spec": {"pytorchReplicaSpecs": replicas},
        },
    ]
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return str(file)


def test_a_killed_run_leaves_nothing(
    tmp_path: Path, left: Callable[[], list[str]], isolation: IsolationMode
) -> None:
    chance = random.Random(SEED)
    print(f"RALLYPOINT_SEED={SEED}")  # noqa: T201 - shown when it fails
    file, before = job(tmp_path), machine()
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        moment = chance.uniform(0, LONGEST_SECONDS)
        run_and_kill([*COMMAND, file, "--isolation", isolation, "--run-dir", str(folder)], moment)
        until(lambda: not left(), f"after {moment:.3f} s these are left: {left()}")
        until(partial(no_volumes, folder), f"after {moment:.3f} s volumes are left")
        assert machine() == before


@pytest.mark.looptime(False)
async def test_a_killed_cluster_loses_no_acknowledged_write(
    tmp_path: Path, left: Callable[[], list[str]], isolation: IsolationMode
) -> None:
    """Every acknowledged write survives the restart, and every job still reaches its end."""
    chance = random.Random(SEED)
    print(f"RALLYPOINT_SEED={SEED}")  # noqa: T201 - shown when it fails
    before, acknowledged = machine(), AcknowledgedWrites()
    arguments = ["--data", str(tmp_path / "data"), "--isolation", isolation]
    for number in range(ROUNDS):
        async with up(*arguments, folder=tmp_path) as cluster:
            await acknowledged.holds_for(cluster)
            users = [
                asyncio.create_task(acknowledged.use(cluster.client, f"r{number}u{user}"))
                for user in range(2)
            ]
            await asyncio.sleep(moment := chance.uniform(0, LONGEST_SECONDS))
            await cluster.stop(signal.SIGKILL)
            await asyncio.gather(*users)
        until(lambda: not left(), f"after {moment:.3f} s these are left: {left()}")
        assert machine() == before
    async with up(*arguments, folder=tmp_path) as cluster:
        await acknowledged.holds_for(cluster)
        for name in acknowledged.there:
            await cluster.until(f"{JOBS}/{name}", has("Succeeded"))
        await cluster.stop()

    assert acknowledged.there
    assert not left()
    assert machine() == before


class AcknowledgedWrites:
    """The writes that the API server acknowledged: existing jobs with their last change, and deleted jobs."""

    def __init__(self) -> None:
        self.there: dict[str, int] = {}
        self.gone: set[str] = set()

    async def use(self, client: RawClient, user: str) -> None:
        """Create jobs, change each, delete every third; until the server stops."""
        with contextlib.suppress(aiohttp.ClientError):
            for number in itertools.count():
                name = f"{user}n{number}"
                await self._say(client, Step("POST", JOBS, quick_job(name), 201))
                self.there[name] = 0
                for change in (1, 2):
                    patch = {"metadata": {"labels": {"change": str(change)}}}
                    await self._say(client, Step("PATCH", f"{JOBS}/{name}", patch, type=MERGE))
                    self.there[name] = change
                if number % 3 == 0:
                    del self.there[name]  # A request without a response can have been executed or not.
                    await self._say(client, Step("DELETE", f"{JOBS}/{name}"))
                    self.gone.add(name)
                await asyncio.sleep(0.2)

    async def holds_for(self, cluster: Up) -> None:
        listed = (await cluster.client.send(Step("GET", JOBS))).body["items"]
        changes = {job["metadata"]["name"]: int(job["metadata"]["labels"]["change"]) for job in listed}
        assert not self.gone & set(changes)
        lost = {name: change for name, change in self.there.items() if changes.get(name, -1) < change}
        assert not lost

    async def _say(self, client: RawClient, step: Step) -> None:
        assert (await client.send(step)).code == step.code


def quick_job(name: str) -> dict[str, Any]:
    """A pod that soon ends by itself, and has a child that does not."""
    script = "setsid sleep 1000 & sleep 0.3"
    container = {"name": "pytorch", "image": "none", "command": ["sh", "-c", script]}
    master = {"template": {"spec": {"containers": [container]}}, "restartPolicy": "OnFailure"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "labels": {"change": "0"}},
        "spec": {"pytorchReplicaSpecs": {"Master": master}},
    }


def no_volumes(folder: Path) -> bool:
    return not list(folder.glob("volumes-*"))


def run_and_kill(command: list[str], moment: float) -> None:
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def until(holds: Callable[[], bool], otherwise: str) -> None:
    """Wait until the condition holds; children of a killed process end shortly after it."""
    late = time.monotonic() + TIMEOUT_SECONDS
    while not holds():
        assert time.monotonic() < late, otherwise
        time.sleep(0.02)


def machine() -> tuple[str, list[str]]:
    """What could be left beside processes: mounts and links."""
    return Path("/proc/self/mounts").read_text(), sorted(psutil.net_if_addrs())
