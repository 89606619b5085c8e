"""The steps of a case: how long each waits, its requests, and its errors."""

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
from controller.shadow.defaults import Object
from tests.support.parity.audit import AuditLog
from tests.support.parity.case import Case, Step
from tests.support.parity.case_run import CaseFailed, CaseRun
from tests.support.parity.observer import ObservedJob
from tests.support.parity.resources import Owners

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


Start = Callable[..., CaseRun]


@pytest.fixture
async def client() -> AsyncIterator[Recorder]:
    async with Recorder() as client:
        yield client


@pytest.fixture
async def observed_job() -> ObservedJob:
    return ObservedJob(asyncio.get_running_loop().time)


@pytest.fixture
async def case_run(client: Recorder, observed_job: ObservedJob, tmp_path: Path) -> Start:
    def start(*steps: Step) -> CaseRun:
        case = Case("kind/case", "default", (JOB,), steps, frozenset(), ())
        audit = AuditLog(tmp_path / "audit.log", Owners(["job"]))
        return CaseRun(case, client, observed_job, audit, asyncio.get_running_loop().time)

    return start


def observe_job(observed_job: ObservedJob, **status: Any) -> None:
    resource = Case("", "", (JOB,), (), frozenset(), ()).resource
    observed_job.take(resource, {**JOB, "status": status}, gone=False)


def observe_pod(observed_job: ObservedJob, name: str, phase: str = "Pending", *, gone: bool = False) -> None:
    pod = {"metadata": {"name": name}, "spec": {"containers": []}, "status": {"phase": phase}}
    observed_job.take(PODS, pod, gone=gone)


async def elapsed(case_run: CaseRun) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await case_run.run()
    return loop.time() - began


async def test_an_unchanged_job_settles_after_the_settle_time(
    case_run: Start, observed_job: ObservedJob
) -> None:
    observe_job(observed_job, startTime="")

    assert await elapsed(case_run(Step("settle"))) == pytest.approx(1.5, abs=0.11)


async def test_a_job_without_a_status_settles_later(case_run: Start, observed_job: ObservedJob) -> None:
    observe_job(observed_job)

    assert await elapsed(case_run(Step("settle"))) == pytest.approx(5.0, abs=0.11)


async def test_a_change_restarts_the_settle_time(case_run: Start, observed_job: ObservedJob) -> None:
    observe_job(observed_job, startTime="")
    asyncio.get_running_loop().call_later(1.0, observe_pod, observed_job, "job-worker-0")

    assert await elapsed(case_run(Step("settle"))) == pytest.approx(2.5, abs=0.11)


async def test_a_deleted_job_settles_after_its_children_are_gone(
    case_run: Start, observed_job: ObservedJob
) -> None:
    observe_pod(observed_job, "job-worker-0")
    asyncio.get_running_loop().call_later(8.0, lambda: observe_pod(observed_job, "job-worker-0", gone=True))

    assert await elapsed(case_run(Step("settle"))) == pytest.approx(9.5, abs=0.2)


async def test_settling_has_a_timeout(case_run: Start, observed_job: ObservedJob) -> None:
    observe_pod(observed_job, "job-worker-0")

    assert await elapsed(case_run(Step("settle"))) == pytest.approx(20.0, abs=0.11)
    assert await elapsed(case_run(Step("settle", {"max": 5}))) == pytest.approx(5.0, abs=0.11)


async def test_pods_change_in_reverse_order_and_finished_pods_do_not(
    case_run: Start, observed_job: ObservedJob, client: Recorder
) -> None:
    for name, phase in (("job-master-0", "Running"), ("job-worker-0", "Failed"), ("job-worker-1", "Running")):
        observe_pod(observed_job, name, phase)

    await case_run(Step("pods", {"job-*": "Succeeded"}), Step("pods", {"job-worker-0": "Running"})).run()

    pods = "/api/v1/namespaces/golden/pods"
    assert [path for _, path, _ in client.sent] == [
        f"{pods}/job-worker-1/status",
        f"{pods}/job-master-0/status",
        f"{pods}/job-worker-0/status",
    ]


async def test_a_step_waits_for_its_pods(
    case_run: Start, observed_job: ObservedJob, client: Recorder
) -> None:
    asyncio.get_running_loop().call_later(4.0, observe_pod, observed_job, "job-worker-0")

    assert await elapsed(case_run(Step("pods", {"job-*": "Running"}))) == pytest.approx(4.0)
    assert len(client.sent) == 1


async def test_a_failed_step_is_named(case_run: Start) -> None:
    with pytest.raises(CaseFailed, match=r"step 2, pods \{'job-\*': 'Running'\}: TimeoutError"):
        await case_run(Step("wait", 1), Step("pods", {"job-*": "Running"})).run()


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
            id="the deletion of a pod",
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
async def test_the_request_of_a_step(
    case_run: Start, client: Recorder, step: Step, sent: tuple[str, str, Object]
) -> None:
    await case_run(step).run()

    assert client.sent == [sent]
