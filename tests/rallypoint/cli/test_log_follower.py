"""Following the logs of a job in a local cluster: later pods, later runs of a container, and the end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.meta import PODS, Resource
from controller.crds import all_crds
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.log_follower import JobLogFollower, _NewLines, newest_run
from rallypoint.local.cluster import LocalCluster, local_cluster

pytestmark = pytest.mark.looptime(False)

JOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(all_crds(), tmp_path / "local", isolation="loopback") as made:
        yield made


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
        meta = {"name": name, "ownerReferences": [self.owner], **metadata}
        await self.client.create(PODS, "default", orjson.dumps({"metadata": meta, "spec": spec}))

    async def finish(self) -> None:
        condition = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2100-01-01T00:00:00Z"}
        body = orjson.dumps({"status": {"conditions": [condition]}})
        await self.client.patch(JOBS, "default", "j", body, subresource="status")

    async def follower(self, local: LocalCluster) -> JobLogFollower:
        cluster = Cluster(self.client, local.server, "default", await clusters._discover(self.client))
        job = orjson.loads(await self.client.get(JOBS, "default", "j"))
        return JobLogFollower(
            cluster,
            cluster.find("pytorchjobs"),
            job,
            {"follow": "true"},
            container_of=lambda pod: "main",
            writer_of=lambda pod, container: self._writer(pod["metadata"]["name"]),
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
    async with asyncio.timeout(30):
        while "terminated" not in str(await local.client.get(PODS, "default", "j-worker-0")):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
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


def test_lines_that_are_already_written_are_not_repeated() -> None:
    """The node may have answered with a later run than the pod's status showed."""
    written: list[bytes] = []
    first = _NewLines(written.append, b"", stamped=False)
    first.add(b"2026-01-01T00:00:01.5Z one\n2026-01-01T00:00:02.0Z tw")
    first.add(b"o\nunable to retrieve\n")
    again = _NewLines(written.append, first.last, stamped=True)
    again.add(b"2026-01-01T00:00:02.0Z two\n2026-01-01T00:00:03.0Z 3")
    again.end()

    assert b"".join(written) == b"one\ntwo\nunable to retrieve\n2026-01-01T00:00:03.0Z 3\n"
