"""A job from submission to deletion, on a local cluster in this process, with a script as the worker."""

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
from bench.nccl.cluster import Cluster, connect
from bench.nccl.log_parser import LogParser
from bench.nccl.schema import RunConfig
from bench.nccl.submission import RESOURCES
from bench.nccl.worker.messages import PREFIX
from controller.kube.errors import AlreadyExists, Forbidden, Invalid, ServerError

pytestmark = pytest.mark.looptime(False)

WORLD = PREFIX + '{"type":"world","ranks":2}'
RANK = PREFIX + '{"type":"rank","rank":0,"local_rank":0,"host":"run-master-0","gpu":""}'
POINT = (
    PREFIX
    + '{"type":"point","collective":"all_reduce","dtype":"float32","in_place":true,"size_bytes":8,"elements":2,"times_us":[1.0],"wrong":0}'
)
END = PREFIX + '{"type":"end"}'


@pytest.fixture
async def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """A local cluster; at the end no object of the run remains."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(submission, "ERROR_GRACE_SECONDS", 0.3)
    monkeypatch.setattr(submission, "POLL_SECONDS", 0.05)
    flags = argparse.Namespace(kubeconfig="", in_cluster=False, namespace="", isolation="loopback")
    async with connect(flags) as target:
        yield target
        for resource in (RESOURCES["pytorchjob"], CONFIG_MAPS, PODS):
            remaining = orjson.loads(await target.client.list(resource, "default"))["items"]
            assert [
                pod["metadata"]["name"] for pod in remaining if pod["metadata"]["name"].startswith("run")
            ] == []


class Run:
    """Runs a script in the pods; $RANK is the number of the node."""

    def __init__(self, target: Cluster, folder: Path, config: RunConfig) -> None:
        self._target = target
        self._folder = folder
        self._config = config
        self.progress: list[str] = []
        self.on_progress: Callable[[str], None] = self.progress.append

    async def __call__(self, *lines: str, **flags: Any) -> tuple[LogParser, str]:
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
            self._target, argparse.Namespace(**chosen), self._config, {}, self.on_progress
        )


@pytest.fixture
def run(target: Cluster, tmp_path: Path, make_config: Callable[..., RunConfig]) -> Run:
    return Run(target, tmp_path, make_config(backend="gloo", gpus=1))


def says(*lines: str) -> str:
    return "\n".join(f"echo '{line}'" for line in lines)


async def test_a_whole_run(run: Run) -> None:
    log_parser, why = await run('[ "$RANK" = 1 ] && exit 0', says("NCCL INFO", WORLD, RANK, POINT, END))

    assert why == ""
    assert [point.size_bytes for point in log_parser.points] == [8]
    assert log_parser.record().ranks[0].node == "local"
    assert run.progress[0].startswith("PyTorchJob default/run on this machine")


async def test_a_rank_that_dies(run: Run) -> None:
    log_parser, why = await run('[ "$RANK" = 1 ] && { sleep 1; exit 3; }', says(WORLD, POINT), "sleep 60")

    assert why.startswith("pod run-worker-0 has failed with exit code 3")
    assert len(log_parser.points) == 1, "what was measured before is kept"


async def test_the_error_of_a_rank_that_dies(run: Run) -> None:
    error = PREFIX + '{"type":"error","rank":0,"why":"RuntimeError: unhandled cuda error"}'

    _, why = await run('[ "$RANK" = 1 ] && sleep 60', says(WORLD, error), "exit 1")

    assert "rank 0: RuntimeError: unhandled cuda error" in why
    assert "the log ends with" not in why


async def test_a_worker_that_ends_early(run: Run) -> None:
    _, why = await run('[ "$RANK" = 1 ] && sleep 60', says("ModuleNotFoundError: No module named torch"))

    assert "pod run-master-0 has ended before the worker was done" in why
    assert "the log ends with:\nModuleNotFoundError: No module named torch" in why


async def test_a_job_that_never_starts(
    target: Cluster, tmp_path: Path, make_config: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is reported while the job waits, in the words of scheduler and kubelet."""
    monkeypatch.setattr(submission, "PENDING_REPORT_SECONDS", 0.0)
    run = Run(target, tmp_path, make_config(nodes=1, gpus=8))

    def hear(line: str) -> None:
        if line.startswith("waiting: run-master-0: Unschedulable: 0/1 nodes are available"):
            target.stop.set()

    run.on_progress = hear
    log_parser, why = await run("exit 0")

    assert why == "interrupted"
    assert log_parser.record(why).state == "partial"


async def test_an_interruption(run: Run, target: Cluster) -> None:
    def hear(line: str) -> None:
        run.progress.append(line)
        if "all_reduce" in line:
            target.stop.set()

    run.on_progress = hear
    log_parser, why = await run(says(WORLD, POINT), "sleep 60")

    assert why == "interrupted"
    assert len(log_parser.points) == 1


async def test_a_run_that_takes_too_long(run: Run) -> None:
    _, why = await run(says(WORLD), "sleep 60", timeout=1)

    assert "not done after 1 s" in why


async def test_a_job_that_is_deleted(run: Run, target: Cluster) -> None:
    submitted = asyncio.Event()

    async def delete() -> None:
        await submitted.wait()
        await target.client.delete(RESOURCES["pytorchjob"], "default", "run")

    run.on_progress = lambda _: submitted.set()
    _, (_, why) = await asyncio.gather(delete(), run(says(WORLD), "sleep 60"))

    assert why == "the job was deleted"


async def test_a_name_that_is_taken(run: Run, target: Cluster) -> None:
    """The existing object stays."""
    theirs = {"metadata": {"name": "run"}}
    await target.client.create(CONFIG_MAPS, "default", orjson.dumps(theirs))

    with pytest.raises(AlreadyExists):
        await run("exit 0")

    await target.client.get(CONFIG_MAPS, "default", "run")
    await target.client.delete(CONFIG_MAPS, "default", "run")


async def test_an_account_without_permissions(
    run: Run, target: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run fails at once: nothing was created, so nothing is deleted."""
    calls = list[str]()

    async def refuse(resource: Resource, *_: Any, **__: Any) -> bytes:
        calls.append(resource.plural)
        raise Forbidden(403, "Forbidden", "cannot create resource")

    monkeypatch.setattr(target.client, "create", refuse)
    monkeypatch.setattr(target.client, "delete", refuse)

    with pytest.raises(Forbidden):
        await run("exit 0")

    assert calls == ["configmaps"]


async def test_a_log_that_breaks_off(run: Run, target: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading continues after the last line: no point counts twice."""
    whole, broken = target.client.stream, list[str]()

    @asynccontextmanager
    async def stream(*words: Any, **flags: Any) -> AsyncGenerator[Any]:
        async with whole(*words, **flags) as lines:
            yield lines if broken else Breaking(lines, broken)

    monkeypatch.setattr(target.client, "stream", stream)

    log_parser, why = await run('[ "$RANK" = 1 ] && exit 0', says(WORLD, POINT, POINT, END))

    assert (why, broken) == ("", ["broken"])
    assert len(log_parser.points) == 2


class Breaking:
    """Two lines, then the connection breaks."""

    def __init__(self, lines: Any, broken: list[str]) -> None:
        self._lines, self._broken, self._left = lines, broken, 2

    async def readline(self) -> Any:
        if not self._left:
            self._broken.append("broken")
            raise aiohttp.ClientPayloadError
        self._left -= 1
        return await self._lines.readline()


async def test_a_cluster_that_does_not_answer(
    run: Run, target: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short outage changes nothing; a long one ends the run."""
    monkeypatch.setattr(submission, "UNREACHABLE_SECONDS", 0.5)
    monkeypatch.setattr(submission, "REMOVAL_SECONDS", 0.5)
    real, away = target.client.get, list[int]()

    async def get(*words: Any, **flags: Any) -> bytes:
        if away:
            raise ServerError(503, "ServiceUnavailable", "etcdserver: leader changed")
        return await real(*words, **flags)

    def hear(line: str) -> None:
        run.progress.append(line)
        if "all_reduce" in line:
            away.append(503)

    monkeypatch.setattr(target.client, "get", get)
    run.on_progress = hear
    log_parser, why = await run(says(WORLD, POINT), "sleep 60")

    assert why.startswith("the cluster has not answered for 0.5 s: etcdserver: leader changed")
    assert len(log_parser.points) == 1


async def test_a_deletion_that_needs_a_retry(
    run: Run, target: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record has the points so far."""
    real, refused = target.client.delete, list[str]()

    async def delete(*words: Any, **flags: Any) -> bytes:
        if not refused:
            refused.append("once")
            raise ServerError(503, "ServiceUnavailable", "try again")
        return await real(*words, **flags)

    monkeypatch.setattr(target.client, "delete", delete)
    log_parser, why = await run('[ "$RANK" = 1 ] && exit 0', says(WORLD, POINT, END))

    assert (why, refused) == ("", ["once"])
    assert len(log_parser.points) == 1


async def test_a_name_that_the_cluster_rejects(run: Run) -> None:
    with pytest.raises(Invalid):
        await run("exit 0", name="Run")
