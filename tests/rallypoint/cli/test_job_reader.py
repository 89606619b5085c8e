"""What ``rallypoint why`` reads from an API server and from the log folder of a local cluster."""

import os
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from api.labels import JOB_NAME
from api.meta import EVENTS, PODS, VOLCANO_POD_GROUPS, OwnerReference
from api.queues import VOLCANO_QUEUES
from api.v1.pytorchjob import RESOURCE
from controller.crds import all_crds
from controller.kinds.mxnet import MXNET
from controller.kinds.tensorflow import TENSORFLOW
from controller.kube.client import Client
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.job_reader import JobReader, parse_log
from rallypoint.diagnosis import ArchivedPod, JobSnapshot, LastLines
from rallypoint.local import log_archive
from rallypoint.local.apiserver.serving.interceptor import Call
from rallypoint.local.log_archive import LogArchive
from tests.support.definitions import open_definition
from tests.support.faults import Fault, Refuse, Rule
from tests.support.harness import NAMESPACE, Harness, start_harness

GPU = "nvidia.com/gpu"
OTHER = "other"
TIME = "2026-01-01T11:59:00.123456789Z"


class InAllNamespaces(Rule):
    """The fault of calls for all namespaces."""

    @override
    def fits(self, call: Call, content: bytes) -> bool:
        return not call.namespace and super().fits(call, content)


@asynccontextmanager
async def user(harness: Harness, archive: LogArchive | None = None) -> AsyncGenerator[Cluster]:
    """Yield the cluster as a user of the namespace sees it."""
    async with Client(harness.connection, user_agent="rallypoint-cli") as client:
        resources = await clusters.discover(client)
        yield Cluster(client, "", NAMESPACE, resources, archive)


async def snapshot(cluster: Cluster) -> JobSnapshot:
    """Return what is read for the job ``train``."""
    reader = JobReader(cluster)
    (train,) = (job for job in await reader.unfinished() if job["metadata"]["name"] == "train")
    await reader.read_related([train])
    return await reader.snapshot(train)


async def create_pod(
    harness: Harness,
    job: dict[str, Any],
    name: str,
    *,
    node: str = "",
    message: str = "",
    namespace: str = "",
    labels: dict[str, str] | None = None,
) -> None:
    """Create a pod with a GPU, on a node or refused by the scheduler with that message."""
    owner = OwnerReference(
        api_version=RESOURCE.api_version,
        kind=RESOURCE.kind,
        name=job["metadata"]["name"],
        uid=job["metadata"]["uid"],
        controller=True,
    ).to_wire()
    container = {"name": "pytorch", "image": "img", "resources": {"limits": {GPU: "1"}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "ownerReferences": [owner], "labels": labels or {}},
        "spec": spec,
    }
    await harness.create(PODS, body, namespace)
    if message:
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        await harness.change(PODS, name, {"status": {"conditions": [refused]}}, "status")


async def create_holders(harness: Harness) -> None:
    """A pod of ``train`` lacks a GPU, which a finished job of the namespace and one of another namespace hold."""
    train = await harness.submit()
    await create_pod(
        harness, train, "train-worker-0", message=f"0/1 nodes are available: 1 Insufficient {GPU}."
    )
    old = await harness.submit("old")
    ended = {"type": "Succeeded", "status": "True", "reason": "PyTorchJobSucceeded"}
    await harness.change(RESOURCE, "old", {"status": {"conditions": [ended]}}, "status")
    await create_pod(harness, old, "old-worker-0", node="a")
    await create_pod(
        harness, await harness.submit("far", namespace=OTHER), "far-worker-0", node="a", namespace=OTHER
    )


@pytest.mark.parametrize(
    ("plural", "forbidden"),
    [
        pytest.param("mxjobs", [], id="an opt-in kind, whose component grants the rights"),
        pytest.param("tfjobs", ["tfjobs"], id="another kind"),
    ],
)
async def test_a_kind_that_the_user_may_not_read(plural: str, forbidden: list[str]) -> None:
    refuses = Rule(Refuse(403, "Forbidden"), verb="list", plural=plural)
    async with start_harness(refuses) as harness:
        await harness.define(all_crds(kinds=[MXNET, TENSORFLOW]))
        async with user(harness) as cluster:
            reader = JobReader(cluster)
            await reader.unfinished()

    assert refuses.met
    assert reader.forbidden == forbidden


async def test_holders_of_a_missing_resource_are_read_in_all_namespaces() -> None:
    async with start_harness(auto_namespaces=True) as harness, user(harness) as cluster:
        await create_holders(harness)

        found = await snapshot(cluster)

        assert sorted(pod["metadata"]["name"] for pod in found.holders) == ["far-worker-0", "old-worker-0"]
        assert sorted(job["metadata"]["name"] for job in found.owners.values()) == ["far", "old"]
        assert found.holders_known


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Refuse(403, "Forbidden"), id="no permission"),
        pytest.param(Refuse(500, "InternalError"), id="another error"),
    ],
)
async def test_a_tenant_sees_the_holders_of_the_namespace(fault: Fault) -> None:
    refuses = InAllNamespaces(fault, verb="list", plural="pods")
    async with start_harness(refuses, auto_namespaces=True) as harness, user(harness) as cluster:
        await create_holders(harness)

        found = await snapshot(cluster)

        assert [pod["metadata"]["name"] for pod in found.holders] == ["old-worker-0"]
        assert not found.holders_known


async def test_holders_are_read_for_pods_of_the_selected_jobs_only() -> None:
    async with start_harness(auto_namespaces=True) as harness, user(harness) as cluster:
        await harness.submit()
        lacks = f"0/1 nodes are available: 1 Insufficient {GPU}."
        await create_pod(harness, await harness.submit("other"), "other-worker-0", message=lacks)

        await snapshot(cluster)

        assert not [call for call in harness.calls if call.plural == "pods" and not call.namespace]


async def test_without_a_missing_resource_no_other_namespace_is_read() -> None:
    async with start_harness(auto_namespaces=True) as harness, user(harness) as cluster:
        await create_pod(harness, await harness.submit(), "train-worker-0", node="a")

        found = await snapshot(cluster)

        assert found.holders == []
        assert not [call for call in harness.calls if call.plural == "pods" and not call.namespace]


async def snapshot_of_gang(*queues: str, rules: tuple[Rule, ...] = ()) -> JobSnapshot:
    """Return what is read for a job whose PodGroup names the queue ``research`` and needs GPUs, one of which another job holds."""
    async with start_harness(*rules) as harness:
        await harness.define(
            [
                open_definition(VOLCANO_POD_GROUPS, has_status=False),
                open_definition(VOLCANO_QUEUES, has_status=False),
            ]
        )
        await create_pod(harness, await harness.submit("other"), "other-worker-0", node="a")
        job = await harness.submit()
        owner = {
            "apiVersion": RESOURCE.api_version,
            "kind": RESOURCE.kind,
            "name": "train",
            "uid": job["metadata"]["uid"],
        }
        metadata = {"name": "train", "ownerReferences": [owner]}
        kind = {"apiVersion": VOLCANO_POD_GROUPS.api_version}
        await harness.create(
            VOLCANO_POD_GROUPS,
            {
                **kind,
                "kind": "PodGroup",
                "metadata": metadata,
                "spec": {"queue": "research", "minResources": {GPU: "2"}},
            },
        )
        for name in queues:
            await harness.create(VOLCANO_QUEUES, {**kind, "kind": "Queue", "metadata": {"name": name}})
        async with user(harness) as cluster:
            return await snapshot(cluster)


async def queues_of(*queues: str, rules: tuple[Rule, ...] = ()) -> dict[str, Any]:
    return dict((await snapshot_of_gang(*queues, rules=rules)).queues)


async def test_the_holders_of_what_a_gang_needs_are_read() -> None:
    found = await snapshot_of_gang("research")

    assert [pod["metadata"]["name"] for pod in found.holders] == ["other-worker-0"]


async def test_the_queue_of_a_gang_is_read() -> None:
    found = await queues_of("research")

    assert found["research"]["metadata"]["name"] == "research"


async def test_a_missing_queue_is_known_to_be_missing() -> None:
    assert await queues_of("another") == {"research": {}}


async def test_a_forbidden_queue_is_unknown() -> None:
    assert (
        await queues_of("research", rules=(Rule(Refuse(403, "Forbidden"), verb="get", plural="queues"),))
        == {}
    )


async def test_logs_of_deleted_pods_of_the_job_are_read(tmp_path: Path) -> None:
    async with start_harness() as harness, user(harness, LogArchive(tmp_path)) as cluster:
        job = await harness.submit()
        owner, created = job["metadata"]["uid"], job["metadata"]["creationTimestamp"]

        def write(pod: str, text: str, *, owner: str = owner, name: str = job["metadata"]["name"]) -> None:
            pod_name, uid = pod.split("_")
            folder = tmp_path / f"{NAMESPACE}_{pod}"
            (folder / "pytorch").mkdir(parents=True)
            (folder / "pytorch" / "0.log").write_text(text)
            reference = {"kind": "PyTorchJob", "name": name, "uid": owner, "controller": True}
            metadata = {"name": pod_name, "namespace": NAMESPACE, "uid": uid, "ownerReferences": [reference]}
            later = {"second": "2999-01-01T00:00:00Z", "third": "2999-01-02T00:00:00Z"}
            times = {"creationTimestamp": later.get(uid, created)}
            pod_of = {"metadata": metadata | times, "spec": {"containers": [{"name": "pytorch"}]}}
            (folder / "pod.json").write_bytes(log_archive.record(pod_of))

        write("train-worker-0_first", "older\n")
        write("train-worker-0_second", "\x1b[31mno luck\n\n")
        write("train-worker-0_third", "")
        (tmp_path / f"{NAMESPACE}_train-worker-0_third" / "pytorch" / "0.log").unlink()
        write("train-worker-1_of-an-earlier-job", "long ago\n", owner="earlier")
        write("other-worker-0_x", "another job\n", owner="other", name="other")

        found = await snapshot(cluster)

        assert {key: lines.lines for key, lines in found.lines_of_deleted_pods.items()} == {
            ("train-worker-0", "pytorch"): ("no luck",)
        }


@pytest.mark.parametrize(
    ("logs", "quote"),
    [
        pytest.param(("init", "proxy", "pytorch"), "of pytorch", id="the default container"),
        pytest.param(("init", "proxy"), "of proxy", id="another container"),
        pytest.param(("init",), "of init", id="an init container, at which the pod ended"),
    ],
)
async def test_a_deleted_pod_is_quoted_by_its_most_important_container(
    tmp_path: Path, logs: Sequence[str], quote: str
) -> None:
    async with start_harness() as harness, user(harness, LogArchive(tmp_path)) as cluster:
        job = await harness.submit()
        folder = tmp_path / f"{NAMESPACE}_train-worker-0_u"
        for name in logs:
            (folder / name).mkdir(parents=True)
            (folder / name / "0.log").write_text(f"of {name}\n")
        metadata = {
            "name": "train-worker-0",
            "namespace": NAMESPACE,
            "uid": "u",
            "annotations": {log_archive.DEFAULT_CONTAINER: "pytorch"},
            "ownerReferences": [
                {"kind": "PyTorchJob", "name": "train", "uid": job["metadata"]["uid"], "controller": True}
            ],
            "creationTimestamp": job["metadata"]["creationTimestamp"],
        }
        spec = {"initContainers": [{"name": "init"}], "containers": [{"name": "proxy"}, {"name": "pytorch"}]}
        (folder / "pod.json").write_bytes(log_archive.record({"metadata": metadata, "spec": spec}))

        found = await snapshot(cluster)

    assert found.last_line_of_deleted_pod("train-worker-0") == quote


@pytest.mark.parametrize(
    ("runs", "quote"),
    [
        pytest.param((("first", "boom"), ("second", "loading")), "boom", id="the pod before it"),
        pytest.param((("second", "boom"), ("second", "loading")), "boom", id="the run before it"),
        pytest.param((("second", "loading"),), "loading", id="the only run"),
    ],
)
async def test_a_start_that_was_killed_does_not_hide_the_one_that_failed(
    tmp_path: Path, runs: Sequence[tuple[str, str]], quote: str
) -> None:
    async with start_harness() as harness, user(harness, LogArchive(tmp_path)) as cluster:
        job = await harness.submit()
        for number, (uid, line) in enumerate(runs):
            folder = tmp_path / f"{NAMESPACE}_train-worker-0_{uid}"
            (folder / "pytorch").mkdir(parents=True, exist_ok=True)
            (folder / "pytorch" / f"{number}.log").write_text(f"{line}\n")
            owner = {
                "kind": "PyTorchJob",
                "name": "train",
                "uid": job["metadata"]["uid"],
                "controller": True,
            }
            metadata = {"name": "train-worker-0", "namespace": NAMESPACE, "uid": uid}
            times = {"ownerReferences": [owner], "creationTimestamp": f"2999-01-01T00:00:0{number}Z"}
            pod_of = {"metadata": metadata | times, "spec": {"containers": [{"name": "pytorch"}]}}
            (folder / "pod.json").write_bytes(log_archive.record(pod_of))
        involved = {"kind": "Pod", "namespace": NAMESPACE, "name": "train-worker-0", "uid": "second"}
        event = {"metadata": {"name": "killed"}, "involvedObject": involved, "reason": "Killing"}
        message = "Stopping container pytorch"
        await harness.create(EVENTS, {"apiVersion": "v1", "kind": "Event", "message": message, **event})
        job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
        reader = JobReader(cluster)
        await reader.read_related([job])
        found = await reader.snapshot(job)

    assert found.last_line_of_deleted_pod("train-worker-0") == quote


async def test_what_belongs_to_one_job_is_read_alone(tmp_path: Path) -> None:
    """The result is that of a read for all jobs."""
    async with start_harness() as harness, user(harness) as cluster:
        jobs = {name: await harness.submit(name=name) for name in ("train", "other")}
        for name, job in jobs.items():
            await create_pod(harness, job, f"{name}-worker-0", labels={JOB_NAME: name})
            for about, uid in ((f"{name}-worker-0", "deleted"), (name, job["metadata"]["uid"])):
                kind = "Pod" if about != name else "PyTorchJob"
                involved = {"kind": kind, "namespace": NAMESPACE, "name": about, "uid": uid}
                event = {"metadata": {"name": f"{about}.1"}, "involvedObject": involved, "reason": about}
                await harness.create(EVENTS, {"apiVersion": "v1", "kind": "Event", **event})
        alone = JobReader(cluster, only_timeline=True)
        await alone.read_related([jobs["train"]], by_label=True)
        narrow = await alone.snapshot(jobs["train"])

        wide = await snapshot(cluster)

    assert jobs["other"]["metadata"]["uid"] not in alone._pods
    assert [pod["metadata"]["name"] for pod in narrow.pods] == ["train-worker-0"]
    assert {event["reason"] for event in narrow.events} == {"train", "train-worker-0"}
    assert {event["reason"] for event in wide.events} == {"train", "train-worker-0"}


async def test_events_are_listed_once_whatever_the_number_of_pods() -> None:
    """A list with a field selector costs the server as much as one without."""
    async with start_harness() as harness, user(harness) as cluster:
        job = await harness.submit(workers=31)
        reader = JobReader(cluster)
        await reader.read_related([job], by_label=True)
        lists = harness.faults.count("list", "events")
        await reader.read_related([job], by_label=True, events=[])

    assert (lists, harness.faults.count("list", "events")) == (1, 1)


async def test_a_timeline_reads_nothing_about_blockers() -> None:
    async with start_harness() as harness, user(harness) as cluster:
        job = await harness.submit()
        await create_pod(harness, job, "train-worker-0", message="no room", labels={JOB_NAME: "train"})
        before = len(harness.calls)
        reader = JobReader(cluster, only_timeline=True)
        await reader.read_related([job], by_label=True)
        await reader.snapshot(job)

    assert sorted(call.plural for call in harness.calls[before:]) == ["events", "jobs", "pods"]


async def test_the_times_of_archived_pods_are_read(tmp_path: Path) -> None:
    async with start_harness() as harness, user(harness, LogArchive(tmp_path)) as cluster:
        job = await harness.submit()
        for name, lines in (("train-worker-0", ["said", "more"]), ("train-worker-1", [])):
            folder = tmp_path / f"{NAMESPACE}_{name}_{name}"
            (folder / "pytorch").mkdir(parents=True)
            for number, line in enumerate(lines):
                log = folder / "pytorch" / f"{number}.log"
                log.write_text(line)
                os.utime(log, (4e9, 4e9))
                times = log.with_suffix(".times")
                times.write_bytes(struct.pack("Q", 0) + struct.pack("d", 3e9 + number))
                os.utime(times, (4e9, 4e9 + number))
            owner = {"kind": "PyTorchJob", "name": "train", "uid": job["metadata"]["uid"], "controller": True}
            metadata = {"name": name, "namespace": NAMESPACE, "uid": name, "ownerReferences": [owner]}
            metadata |= {"creationTimestamp": "2999-01-01T00:00:00Z"}
            pod = {"metadata": metadata, "spec": {"containers": [{"name": "pytorch"}]}}
            (folder / "pod.json").write_bytes(log_archive.record(pod))
            if not lines:
                last_state = log_archive.record_of_deleted({**pod, "status": {"phase": "Pending"}})
                (folder / "deleted.json").write_bytes(last_state)
                os.utime(folder / "deleted.json", (5e9, 5e9))

        found = await snapshot(cluster)

    created, ended, deleted = datetime(2999, 1, 1, tzinfo=UTC), *map(_at, (4e9, 5e9))
    first, second = found.archived_pods
    runs = {"pytorch": [(_at(3e9), _at(4e9)), (_at(3e9 + 1), _at(4e9 + 1))]}
    assert first == ArchivedPod("train-worker-0", "train-worker-0", created, created, ended, runs=runs)
    assert (second.name, second.started, second.ended, second.deleted) == (
        "train-worker-1",
        None,
        None,
        deleted,
    )
    assert second.last_state
    assert second.last_state["status"] == {"phase": "Pending"}


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(
    ("log", "lines"),
    [
        pytest.param(f"{TIME} one\n{TIME} two\n", ("one", "two"), id="lines"),
        pytest.param(f"{TIME} 50%\r60%\r100%\r\n", ("100%",), id="a progress bar"),
        pytest.param(f"{TIME} a\fb\u2028c\x85d\n", ("abcd",), id="other line separators"),
        pytest.param(f"{TIME} \x1b[31mred\x1b[0m\x07\n", ("red",), id="terminal escape sequences"),
        pytest.param(f"{TIME} last\n{TIME} \n{TIME}   \n", ("last",), id="empty lines"),
        pytest.param(f"{TIME} {'x' * 1000}\n", (f"{'x' * 300}…",), id="a long line"),
    ],
)
def test_the_last_lines_of_a_log(log: str, lines: tuple[str, ...]) -> None:
    parsed = parse_log(log, 10)

    assert parsed == LastLines(datetime(2026, 1, 1, 11, 59, 0, 123456, tzinfo=UTC), lines)


def test_a_line_can_begin_with_any_kubernetes_time() -> None:
    parsed = parse_log("2026-01-01t11:59:00.123456789z one\n2026-01-01 two\n", 10)

    assert parsed == LastLines(datetime(2026, 1, 1, 11, 59, 0, 123456, tzinfo=UTC), ("one",))


@pytest.mark.parametrize("log", ["", f"{TIME} \n"])
def test_an_empty_log_has_no_lines(log: str) -> None:
    assert parse_log(log, 1) == LastLines(None, ())


@pytest.mark.parametrize(
    "log", ["unable to retrieve container logs for containerd://0123", "failed to open log file"]
)
def test_an_answer_without_a_log_is_unknown(log: str) -> None:
    assert parse_log(log, 1) is None
