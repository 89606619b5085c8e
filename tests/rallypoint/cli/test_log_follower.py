"""Following the logs of a job in a local cluster: later pods, later runs of a container, and the end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from typing_extensions import override

from api.labels import JOB_NAME
from api.meta import PODS, Resource
from controller.crds import all_crds
from controller.kube.client import Client
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, CommandError
from rallypoint.cli.log_follower import MAX_LINE_BYTES, JobLogFollower, NewLines, newest_run
from rallypoint.local.cluster import LocalCluster, local_cluster
from rallypoint.local.node.streams.logs import Log, Selection

pytestmark = pytest.mark.looptime(False)

JOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(all_crds(), tmp_path / "local", isolation="loopback") as made:
        yield made


class BreakingClient(Client):
    """A client whose streams can break."""

    _readers: dict[str, aiohttp.StreamReader] | None = None

    @override
    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], **options: Any
    ) -> AsyncGenerator[aiohttp.StreamReader]:
        async with super().stream(path, params, **options) as reader:
            self._readers = {**(self._readers or {}), path: reader}
            yield reader

    def break_stream(self, pod: str) -> None:
        assert self._readers is not None
        self._readers[PODS.path("default", pod, "log")].set_exception(aiohttp.ClientPayloadError("broken"))


class Job:
    """The PyTorchJob ``j`` without a controller, and what a follower writes of its pods."""

    def __init__(self, local: LocalCluster, uid: str) -> None:
        self.client = local.client
        self.owner = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "name": "j",
            "uid": uid,
            "controller": True,
        }
        self.written: dict[str, bytes] = {}

    async def start_pod(self, name: str, script: str, **metadata: Any) -> None:
        container = {"name": "main", "image": "none", "command": ["sh", "-c", script]}
        spec = {"containers": [container], "restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 0}
        labels = {JOB_NAME: "j"}
        meta = {"name": name, "labels": labels, "ownerReferences": [self.owner], **metadata}
        await self.client.create(PODS, "default", orjson.dumps({"metadata": meta, "spec": spec}))

    async def finish(self) -> None:
        condition = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2100-01-01T00:00:00Z"}
        body = orjson.dumps({"status": {"conditions": [condition]}})
        await self.client.patch(JOBS, "default", "j", body, subresource="status")

    async def follower(
        self, local: LocalCluster, client: Client | None = None, **query: str
    ) -> JobLogFollower:
        resources = await clusters.discover(self.client)
        cluster = Cluster(client or self.client, local.server, "default", resources)
        job = orjson.loads(await self.client.get(JOBS, "default", "j"))
        return JobLogFollower(
            cluster,
            cluster.find("pytorchjobs"),
            job,
            {"follow": "true", **query},
            container_of=lambda pod: "main",
            writer_of=lambda pod, container: self._writer(pod["metadata"]["name"]),
            settle_seconds=0.3,
        )

    def _writer(self, name: str) -> Callable[[bytes], None]:
        def add(data: bytes) -> None:
            self.written[name] = self.written.get(name, b"") + data

        return add

    async def until_written(self, name: str, text: bytes) -> None:
        async with asyncio.timeout(30):
            while text not in self.written.get(name, b""):  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.02)


@pytest.fixture
async def job(local: LocalCluster) -> Job:
    container = {"name": "pytorch", "image": "none", "command": ["true"]}
    workers = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}}
    made = orjson.loads(
        await local.client.create(
            JOBS, "default", orjson.dumps({**body, "spec": {"pytorchReplicaSpecs": {"Worker": workers}}})
        )
    )
    return Job(local, made["metadata"]["uid"])


async def until_shown(local: LocalCluster, state: str) -> None:
    """Wait until the status of j-worker-0 has this state."""
    async with asyncio.timeout(30):
        while f"{state}:" not in str(await local.client.get(PODS, "default", "j-worker-0")).replace('"', ""):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def until_logged(local: LocalCluster, text: bytes) -> None:
    path = PODS.path("default", "j-worker-0", "log")
    async with asyncio.timeout(30):
        while text not in await local.client.request("GET", path, accept="*/*"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_pods_and_runs_that_start_later_are_followed_until_the_job_has_finished(
    local: LocalCluster, job: Job, tmp_path: Path
) -> None:
    await job.start_pod("j-worker-0", "echo up; exec sleep 100")
    following = asyncio.create_task((await job.follower(local)).run())
    await job.until_written("j-worker-0", b"up\n")
    go = tmp_path / "go"
    once = f"[ -e {go} ] && echo again && exit 0; echo first; until [ -e {go} ]; do sleep 0.05; done; exit 3"
    await job.start_pod("j-worker-1", once)
    await job.start_pod("other", "echo not ours", ownerReferences=[])
    await job.until_written("j-worker-1", b"first\n")
    go.touch()
    await job.until_written("j-worker-1", b"again\n")
    assert not following.done()
    await job.finish()
    await following

    assert job.written == {"j-worker-0": b"up\n", "j-worker-1": b"first\nagain\n"}


async def test_the_logs_of_a_job_that_has_finished_are_shown_once(local: LocalCluster, job: Job) -> None:
    await job.start_pod("j-worker-0", "echo done")
    await job.finish()
    await until_shown(local, "terminated")
    await (await job.follower(local)).run()

    assert job.written == {"j-worker-0": b"done\n"}


async def test_following_ends_when_the_job_is_deleted(local: LocalCluster, job: Job) -> None:
    await job.start_pod("j-worker-0", "echo up; exec sleep 100")
    following = asyncio.create_task((await job.follower(local)).run())
    await job.until_written("j-worker-0", b"up\n")
    await local.client.delete(JOBS, "default", "j")
    await following

    assert job.written == {"j-worker-0": b"up\n"}


@pytest.mark.parametrize(
    ("status", "run"),
    [
        pytest.param({}, None, id="no status"),
        pytest.param({"state": {"waiting": {"reason": "ContainerCreating"}}}, None, id="not started"),
        pytest.param({"state": {"running": {}}}, 0, id="first run"),
        pytest.param(
            {"restartCount": 2, "state": {"waiting": {}}, "lastState": {"terminated": {}}},
            2,
            id="in a crash loop",
        ),
    ],
)
def test_the_newest_run_of_a_container(status: dict[str, Any], run: int | None) -> None:
    statuses = [{"name": "main", **status}] if status else []

    assert newest_run({"status": {"containerStatuses": statuses}}, "main") == run


def test_lines_of_an_earlier_stream_are_not_repeated() -> None:
    """A stream that broke is read again from the time of the last line, which several lines can have."""
    written: list[bytes] = []
    lines = NewLines(written.append, stamped=False)
    lines.add(b"2026-01-01T00:00:01.5Z one\n2026-01-01T00:00:02.0Z t")
    lines.add(b"wo\nunable to retrieve\n2026-01-01T00:00:02.0Z thr")
    lines.restart()
    lines.add(b"2026-01-01T00:00:01.5Z one\n2026-01-01T00:00:02.0Z two\n2026-01-01T00:00:02.0Z three\n")
    lines.restart()
    lines.add(b"2026-01-01T00:00:03.0Z four")
    lines.end()

    assert b"".join(written) == b"one\ntwo\nunable to retrieve\nthree\nfour\n"


def test_lines_with_their_times() -> None:
    written: list[bytes] = []
    lines = NewLines(written.append, stamped=True)
    lines.add(b"2026-01-01T00:00:03.0Z 3\n")

    assert b"".join(written) == b"2026-01-01T00:00:03.0Z 3\n"


def test_a_line_without_an_end_is_shown_from_its_last_carriage_return() -> None:
    written: list[bytes] = []
    lines = NewLines(written.append, stamped=False)
    lines.add(b"2026-01-01T00:00:03.0Z 0%")
    for _ in range(MAX_LINE_BYTES // 1000 + 1):
        lines.add(b"." * 996 + b"\r50%")

    assert written == [b"50%\n"]


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(b"".join(b"line %d\n" % number for number in range(10_000)), id="many lines"),
        pytest.param(b"x" * 200_000 + b"\nnext\n", id="a long line"),
        pytest.param(b"a\rb\n\x0b\x0c\nc\n", id="carriage returns"),
    ],
)
@pytest.mark.parametrize("is_closed", [True, False])
async def test_the_lines_of_a_log_arrive_unchanged(tmp_path: Path, output: bytes, is_closed: bool) -> None:
    log = Log(tmp_path / "0.log")
    log.write(output, datetime(2026, 1, 1, tzinfo=UTC))
    if is_closed:
        log.close()
    written: list[bytes] = []
    lines = NewLines(written.append, stamped=False)
    async for chunk in log.read(Selection(timestamps=True)):
        lines.add(chunk)
    log.close()

    assert b"".join(written) == output


async def test_a_stream_that_breaks_is_opened_again(local: LocalCluster, job: Job, tmp_path: Path) -> None:
    """Nothing is lost or repeated, and the streams of other pods go on."""
    go = tmp_path / "go"
    await job.start_pod(
        "j-worker-0", f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two; sleep 100"
    )
    await job.start_pod("j-worker-1", "echo up; exec sleep 100")
    async with BreakingClient(local.connection) as client:
        following = asyncio.create_task((await job.follower(local, client)).run())
        await job.until_written("j-worker-0", b"one\n")
        await job.until_written("j-worker-1", b"up\n")
        client.break_stream("j-worker-0")
        go.touch()
        await job.until_written("j-worker-0", b"two\n")
        await job.finish()
        await following

    assert job.written == {"j-worker-0": b"one\ntwo\n", "j-worker-1": b"up\n"}


async def test_the_last_lines_are_those_of_the_pods_that_exist_at_the_start(
    local: LocalCluster, job: Job
) -> None:
    await job.start_pod("j-worker-0", "echo one; echo two; exec sleep 100")
    await until_shown(local, "running")
    await until_logged(local, b"two\n")
    following = asyncio.create_task((await job.follower(local, tailLines="1")).run())
    await job.until_written("j-worker-0", b"two\n")
    await job.start_pod("j-worker-1", "echo three; echo four; exec sleep 100")
    await job.until_written("j-worker-1", b"four\n")
    await job.finish()
    await following

    assert job.written == {"j-worker-0": b"two\n", "j-worker-1": b"three\nfour\n"}


async def test_a_refused_list_is_an_error(local: LocalCluster, job: Job) -> None:
    follower = await job.follower(local)
    await local.client.delete(CRDS, "", "pytorchjobs.kubeflow.org")
    with pytest.raises(ExceptionGroup) as raised:
        await follower.run()

    assert raised.group_contains(CommandError, match="cannot watch pytorchjobs: ")


async def test_a_job_that_is_deleted_before_it_is_watched_has_finished(local: LocalCluster, job: Job) -> None:
    follower = await job.follower(local)
    await local.client.delete(JOBS, "default", "j")
    await follower.run()

    assert job.written == {}
