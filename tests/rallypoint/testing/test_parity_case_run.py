"""The steps of a case: how long one waits, what it sends, and how one that cannot be carried out is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from typing_extensions import override

from api.meta import PODS
from controller.kube.client import Client
from controller.kube.connect import Connection
from rallypoint.testing.parity.audit import AuditLog
from rallypoint.testing.parity.case import Case, Step
from rallypoint.testing.parity.case_run import NotPlayed, Play
from rallypoint.testing.parity.defaults import Object
from rallypoint.testing.parity.observer import Scene
from rallypoint.testing.parity.owners import Owners

JOB: Object = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "job"},
    "spec": {"pytorchReplicaSpecs": {}},
}
RESOURCE = "/apis/kubeflow.org/v1/namespaces/golden/pytorchjobs"


class Recorder(Client):
    """A client that notes what would be sent, and answers with the body."""

    def __init__(self) -> None:
        super().__init__(Connection("http://nowhere"))
        self.sent: list[tuple[str, str, Any]] = []

    @override
    async def request(self, method: str, path: str, **options: Any) -> bytes:
        body = options.get("body") or b"{}"
        self.sent.append((method, path, orjson.loads(body)))
        return bytes(orjson.dumps({"metadata": {"uid": "u"}, "items": []}))


Start = Callable[..., Play]


@pytest.fixture
async def client() -> AsyncIterator[Recorder]:
    async with Recorder() as client:
        yield client


@pytest.fixture
async def scene() -> Scene:
    return Scene(asyncio.get_running_loop().time)


@pytest.fixture
async def play(client: Recorder, scene: Scene, tmp_path: Path) -> Start:
    def start(*steps: Step) -> Play:
        case = Case("kind/case", "default", (JOB,), steps, frozenset(), ())
        audit = AuditLog(tmp_path / "audit.log", Owners(["job"]))
        return Play(case, client, scene, audit, asyncio.get_running_loop().time)

    return start


def seen_job(scene: Scene, **status: Any) -> None:
    resource = Case("", "", (JOB,), (), frozenset(), ()).resource
    scene.take(resource, {**JOB, "status": status}, gone=False)


def seen_pod(scene: Scene, name: str, phase: str = "Pending", *, gone: bool = False) -> None:
    pod = {"metadata": {"name": name}, "spec": {"containers": []}, "status": {"phase": phase}}
    scene.take(PODS, pod, gone=gone)


async def elapsed(play: Play) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await play.run()
    return loop.time() - began


async def test_a_job_at_rest_has_settled_after_the_quiet_time(play: Start, scene: Scene) -> None:
    seen_job(scene, startTime="")

    assert await elapsed(play(Step("settle"))) == pytest.approx(1.5, abs=0.11)


async def test_a_job_without_a_status_is_given_time(play: Start, scene: Scene) -> None:
    seen_job(scene)

    assert await elapsed(play(Step("settle"))) == pytest.approx(5.0, abs=0.11)


async def test_a_change_begins_the_quiet_time_anew(play: Start, scene: Scene) -> None:
    seen_job(scene, startTime="")
    asyncio.get_running_loop().call_later(1.0, seen_pod, scene, "job-worker-0")

    assert await elapsed(play(Step("settle"))) == pytest.approx(2.5, abs=0.11)


async def test_children_of_a_job_that_is_gone_are_waited_for(play: Start, scene: Scene) -> None:
    seen_pod(scene, "job-worker-0")
    asyncio.get_running_loop().call_later(8.0, lambda: seen_pod(scene, "job-worker-0", gone=True))

    assert await elapsed(play(Step("settle"))) == pytest.approx(9.5, abs=0.2)


async def test_what_never_settles_is_left_at_last(play: Start, scene: Scene) -> None:
    seen_pod(scene, "job-worker-0")

    assert await elapsed(play(Step("settle"))) == pytest.approx(20.0, abs=0.11)
    assert await elapsed(play(Step("settle", {"max": 5}))) == pytest.approx(5.0, abs=0.11)


async def test_pods_change_in_reverse_order_and_ended_ones_not_at_all(
    play: Start, scene: Scene, client: Recorder
) -> None:
    for name, phase in (("job-master-0", "Running"), ("job-worker-0", "Failed"), ("job-worker-1", "Running")):
        seen_pod(scene, name, phase)

    await play(Step("pods", {"job-*": "Succeeded"}), Step("pods", {"job-worker-0": "Running"})).run()

    pods = "/api/v1/namespaces/golden/pods"
    assert [path for _, path, _ in client.sent] == [
        f"{pods}/job-worker-1/status",
        f"{pods}/job-master-0/status",
        f"{pods}/job-worker-0/status",
    ]


async def test_pods_that_are_not_there_yet_are_waited_for(
    play: Start, scene: Scene, client: Recorder
) -> None:
    asyncio.get_running_loop().call_later(4.0, seen_pod, scene, "job-worker-0")

    assert await elapsed(play(Step("pods", {"job-*": "Running"}))) == pytest.approx(4.0)
    assert len(client.sent) == 1


async def test_a_step_that_cannot_be_carried_out_is_named(play: Start) -> None:
    with pytest.raises(NotPlayed, match=r"step 2, pods \{'job-\*': 'Running'\}: TimeoutError"):
        await play(Step("wait", 1), Step("pods", {"job-*": "Running"})).run()


@pytest.mark.parametrize(
    ("step", "sent"),
    [
        pytest.param(
            Step("scale", {"Worker": 3}),
            ("PATCH", f"{RESOURCE}/job", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}}),
            id="a role",
        ),
        pytest.param(
            Step("scale", {"subresource": 3}),
            ("PATCH", f"{RESOURCE}/job/scale", {"spec": {"replicas": 3}}),
            id="the subresource",
        ),
        pytest.param(
            Step("patch-job", {"spec": {"x": 1}}),
            ("PATCH", f"{RESOURCE}/job", {"spec": {"x": 1}}),
            id="the job",
        ),
        pytest.param(
            Step("finish-delete", ["job-worker-0"]),
            (
                "DELETE",
                "/api/v1/namespaces/golden/pods/job-worker-0",
                {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0},
            ),
            id="the end of a pod",
        ),
        pytest.param(
            Step("delete", {"Service": "job-worker-0"}),
            (
                "DELETE",
                "/api/v1/namespaces/golden/services/job-worker-0",
                {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"},
            ),
            id="a child",
        ),
    ],
)
async def test_what_a_step_sends(
    play: Start, client: Recorder, step: Step, sent: tuple[str, str, Object]
) -> None:
    await play(step).run()

    assert client.sent == [sent]
