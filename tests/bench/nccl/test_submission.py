"""A job from submission to removal, on a site of this process, with a script in the worker's place."""

import argparse
import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from api.meta import CONFIG_MAPS, PODS, Resource
from bench.nccl import measurement, submission
from bench.nccl.cluster import Cluster, cluster
from bench.nccl.log_parser import Gathering
from bench.nccl.schema import Asked
from bench.nccl.submission import RESOURCES
from bench.nccl.worker.messages import MARK
from controller.kube.errors import AlreadyExists, Forbidden, Invalid, ServerError

pytestmark = pytest.mark.looptime(False)

WORLD = MARK + '{"say":"world","ranks":2}'
RANK = MARK + '{"say":"rank","rank":0,"local_rank":0,"host":"run-master-0","gpu":""}'
POINT = (
    MARK
    + '{"say":"point","collective":"all_reduce","dtype":"float32","in_place":true,"size_bytes":8,"elements":2,"times_us":[1.0],"wrong":0}'
)
END = MARK + '{"say":"end"}'


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """A site, on which nothing of a run is left in the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(submission, "LAST_WORDS_SECONDS", 0.3)
    monkeypatch.setattr(submission, "LOOK_SECONDS", 0.05)
    flags = argparse.Namespace(kubeconfig="", in_cluster=False, namespace="", isolation="loopback")
    async with cluster(flags) as site:
        yield site
        for resource in (RESOURCES["pytorchjob"], CONFIG_MAPS, PODS):
            left = orjson.loads(await site.client.list(resource, "default"))["items"]
            assert [
                one["metadata"]["name"] for one in left if one["metadata"]["name"].startswith("run")
            ] == []


class Run:
    """A run of a script; each node is given its number as $RANK."""

    def __init__(self, here: Cluster, folder: Path, asked: Asked) -> None:
        self._here = here
        self._folder = folder
        self._asked = asked
        self.news: list[str] = []
        self.heard: Callable[[str], None] = self.news.append

    async def __call__(self, *lines: str, **flags: Any) -> tuple[Gathering, str]:
        script = self._folder / "worker.sh"
        script.write_text("\n".join(["#!/bin/sh", *lines]))
        script.chmod(0o755)
        chosen = {
            "manifest": None,
            "name": "run",
            "python": str(script),
            "start_timeout": 60,
            "timeout": 60,
            "gpu_resource": "nvidia.com/gpu",
            **flags,
        }
        return await measurement.measure(
            self._here, argparse.Namespace(**chosen), self._asked, {}, self.heard
        )


@pytest.fixture
def run(here: Cluster, tmp_path: Path, asked: Callable[..., Asked]) -> Run:
    return Run(here, tmp_path, asked(backend="gloo", gpus=1))


def says(*lines: str) -> str:
    return "\n".join(f"echo '{line}'" for line in lines)


async def test_a_whole_run(run: Run) -> None:
    gathering, why = await run('[ "$RANK" = 1 ] && exit 0', says("NCCL INFO", WORLD, RANK, POINT, END))

    assert why == ""
    assert [one.size_bytes for one in gathering.points] == [8]
    assert gathering.record().ranks[0].node == "local"
    assert run.news[0].startswith("PyTorchJob default/run on this machine")


async def test_a_rank_that_dies(run: Run) -> None:
    gathering, why = await run('[ "$RANK" = 1 ] && { sleep 1; exit 3; }', says(WORLD, POINT), "sleep 60")

    assert why.startswith("pod run-worker-0 has failed with exit code 3")
    assert len(gathering.points) == 1, "what was measured before is kept"


async def test_what_a_rank_says_before_it_dies(run: Run) -> None:
    error = MARK + '{"say":"error","rank":0,"why":"RuntimeError: unhandled cuda error"}'

    _, why = await run('[ "$RANK" = 1 ] && sleep 60', says(WORLD, error), "exit 1")

    assert "rank 0: RuntimeError: unhandled cuda error" in why
    assert "the log ends with" not in why


async def test_a_worker_that_ends_without_having_said_all(run: Run) -> None:
    _, why = await run('[ "$RANK" = 1 ] && sleep 60', says("ModuleNotFoundError: No module named torch"))

    assert "pod run-master-0 has ended before the worker was done" in why
    assert "the log ends with:\nModuleNotFoundError: No module named torch" in why


async def test_a_job_that_never_starts(
    here: Cluster, tmp_path: Path, asked: Callable[..., Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why is told while it waits, by those who know."""
    monkeypatch.setattr(submission, "PATIENT_SECONDS", 0.0)
    run = Run(here, tmp_path, asked(nodes=1, gpus=8))

    def hear(line: str) -> None:
        if line.startswith("waiting: run-master-0: Unschedulable: 0/1 nodes are available"):
            here.stop.set()

    run.heard = hear
    gathering, why = await run("exit 0")

    assert why == "interrupted"
    assert gathering.record(why).state == "partial"


async def test_an_interruption(run: Run, here: Cluster) -> None:
    def hear(line: str) -> None:
        run.news.append(line)
        if "all_reduce" in line:
            here.stop.set()

    run.heard = hear
    gathering, why = await run(says(WORLD, POINT), "sleep 60")

    assert why == "interrupted"
    assert len(gathering.points) == 1


async def test_a_run_that_takes_too_long(run: Run) -> None:
    _, why = await run(says(WORLD), "sleep 60", timeout=1)

    assert "it is not done after 1 s" in why


async def test_somebody_deletes_the_job(run: Run, here: Cluster) -> None:
    submitted = asyncio.Event()

    async def delete() -> None:
        await submitted.wait()
        await here.client.delete(RESOURCES["pytorchjob"], "default", "run")

    run.heard = lambda _: submitted.set()
    _, (_, why) = await asyncio.gather(delete(), run(says(WORLD), "sleep 60"))

    assert why == "somebody has deleted the job"


async def test_a_name_that_is_taken(run: Run, here: Cluster) -> None:
    """Whoever has it keeps it."""
    theirs = {"metadata": {"name": "run"}}
    await here.client.create(CONFIG_MAPS, "default", orjson.dumps(theirs))

    with pytest.raises(AlreadyExists):
        await run("exit 0")

    await here.client.get(CONFIG_MAPS, "default", "run")
    await here.client.delete(CONFIG_MAPS, "default", "run")


async def test_an_account_without_rights(run: Run, here: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told so at once: nothing was made, so nothing is removed."""
    calls = list[str]()

    async def refuse(resource: Resource, *_: Any, **__: Any) -> bytes:
        calls.append(resource.plural)
        raise Forbidden(403, "Forbidden", "cannot create resource")

    monkeypatch.setattr(here.client, "create", refuse)
    monkeypatch.setattr(here.client, "delete", refuse)

    with pytest.raises(Forbidden):
        await run("exit 0")

    assert calls == ["configmaps"]


async def test_a_log_that_breaks_off(run: Run, here: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read on from there: no point counts twice."""
    whole, broken = here.client.stream, list[str]()

    @asynccontextmanager
    async def stream(*words: Any, **flags: Any) -> AsyncGenerator[Any]:
        async with whole(*words, **flags) as lines:
            yield lines if broken else Breaking(lines, broken)

    monkeypatch.setattr(here.client, "stream", stream)

    gathering, why = await run('[ "$RANK" = 1 ] && exit 0', says(WORLD, POINT, POINT, END))

    assert (why, broken) == ("", ["broken"])
    assert len(gathering.points) == 2


class Breaking:
    """Two lines, and the connection is gone."""

    def __init__(self, lines: Any, broken: list[str]) -> None:
        self._lines, self._broken, self._left = lines, broken, 2

    async def readline(self) -> Any:
        if not self._left:
            self._broken.append("broken")
            raise aiohttp.ClientPayloadError
        self._left -= 1
        return await self._lines.readline()


async def test_a_cluster_that_does_not_answer(
    run: Run, here: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment, which changes nothing, or for good."""
    monkeypatch.setattr(submission, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(submission, "REMOVAL_SECONDS", 0.5)
    real, away = here.client.get, list[int]()

    async def get(*words: Any, **flags: Any) -> bytes:
        if away:
            raise ServerError(503, "ServiceUnavailable", "etcdserver: leader changed")
        return await real(*words, **flags)

    def hear(line: str) -> None:
        run.news.append(line)
        if "all_reduce" in line:
            away.append(503)

    monkeypatch.setattr(here.client, "get", get)
    run.heard = hear
    gathering, why = await run(says(WORLD, POINT), "sleep 60")

    assert why.startswith("the cluster has not answered for 0.5 s: etcdserver: leader changed")
    assert len(gathering.points) == 1


async def test_a_removal_that_takes_two_tries(
    run: Run, here: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was gathered is kept."""
    real, refused = here.client.delete, list[str]()

    async def delete(*words: Any, **flags: Any) -> bytes:
        if not refused:
            refused.append("once")
            raise ServerError(503, "ServiceUnavailable", "try again")
        return await real(*words, **flags)

    monkeypatch.setattr(here.client, "delete", delete)
    gathering, why = await run('[ "$RANK" = 1 ] && exit 0', says(WORLD, POINT, END))

    assert (why, refused) == ("", ["once"])
    assert len(gathering.points) == 1


async def test_a_name_that_the_cluster_refuses(run: Run) -> None:
    with pytest.raises(Invalid):
        await run("exit 0", name="Run")
