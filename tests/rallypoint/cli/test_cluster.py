"""``get``, ``describe``, ``logs``, ``why``, ``delete`` and ``exec`` with a local cluster: output and exit status."""

import asyncio
import json
import pwd
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import orjson
import pytest
import yaml

from api.batch import BATCH_JOBS
from api.meta import EVENTS, PODS, Resource
from controller.crds import all_crds
from controller.kube.client import Client
from controller.kube.errors import ApiError
from rallypoint.cli import main
from rallypoint.local.cluster import LocalCluster, local_cluster
from rallypoint.testing.up import RALLYPOINT

pytestmark = pytest.mark.looptime(False)

CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
JOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
LAUNCHER = {"template": {"spec": {"containers": [{"name": "mpi", "image": "none"}]}}}


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str


Run = Callable[..., Awaitable[Ended]]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(all_crds(), tmp_path / "site", isolation="loopback") as made:
        yield made


@pytest.fixture
def run(cluster: LocalCluster, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs a command; what it prints goes through the descriptors, as bytes."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(dict(cluster.kubeconfig)))

    async def run(command: str, *arguments: str) -> Ended:
        given = [command, "--kubeconfig", str(kubeconfig), *arguments]
        status = await asyncio.to_thread(main, given)
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Ended(status, out.decode(), err.decode())

    return run


async def create(client: Client, resource: Resource, manifest: dict[str, Any]) -> None:
    await client.create(resource, "default", orjson.dumps(manifest))


async def pod(client: Client, name: str, script: str, *, until: str = "Running", **metadata: Any) -> None:
    container = {"name": "main", "image": "none", "command": ["sh", "-c", script]}
    spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    await create(client, PODS, {"metadata": {"name": name, **metadata}, "spec": spec})
    async with asyncio.timeout(30):
        phase = ""
        while phase != until:
            found = orjson.loads(await client.get(PODS, "default", name))
            phase = str((found.get("status") or {}).get("phase"))
            await asyncio.sleep(0.02)


async def test_get_prints_the_columns_of_the_server(cluster: LocalCluster, run: Run) -> None:
    await pod(cluster.client, "p", "exec sleep 100")
    shown = await run("get", "pods")
    wide = await run("get", "po", "p", "-o", "wide")

    title, row = shown.out.splitlines()
    assert title.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["p", "1/1", "Running", "0"]
    assert row.index("1/1") == title.index("READY")
    assert "NODE" in wide.out
    assert shown.status == wide.status == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["cm/c"], "c", id="a short name"),
        pytest.param(["ConfigMap", "c"], "c", id="a kind"),
        pytest.param(["configmaps.v1", "c"], "c", id="with its version"),
        pytest.param(["configmap", "-l", "a=b"], "c", id="by its labels"),
        pytest.param(["configmaps", "-A"], "default", id="everywhere"),
        pytest.param(["cm,svc"], "configmap/c", id="of several kinds"),
    ],
)
async def test_get_accepts_all_forms_of_resource_names(
    cluster: LocalCluster, run: Run, words: list[str], expected: str
) -> None:
    await create(cluster.client, CONFIG_MAPS, {"metadata": {"name": "c", "labels": {"a": "b"}}})
    shown = await run("get", "--no-headers", *words)

    assert shown.status == 0
    assert shown.out.split()[0] == expected


async def test_get_prints_whole_objects(cluster: LocalCluster, run: Run) -> None:
    await create(cluster.client, CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "b"}})
    single = await run("get", "cm/c", "-o", "yaml")
    many = await run("get", "cm", "-o", "json")
    name = await run("get", "cm", "-o", "name")

    assert yaml.safe_load(single.out)["data"] == {"a": "b"}
    assert json.loads(many.out)["kind"] == "List"
    assert json.loads(many.out)["items"][0]["kind"] == "ConfigMap"
    assert name.out == "configmap/c\n"


async def test_get_of_missing_objects(run: Run) -> None:
    nothing = await run("get", "cm")
    missing = await run("get", "pod", "none")
    unknown = await run("get", "spaceships")

    assert (nothing.status, nothing.err) == (0, "No resources found in default namespace.\n")
    assert (missing.status, missing.err) == (1, 'Error from server (NotFound): pods "none" not found\n')
    assert (unknown.status, unknown.err) == (
        1,
        'error: the server doesn\'t have a resource type "spaceships"\n',
    )


@pytest.mark.parametrize("output", [[], ["-o", "name"]], ids=["as a table", "as names"])
async def test_get_shows_those_of_the_named_objects_that_exist(
    cluster: LocalCluster, run: Run, output: list[str]
) -> None:
    await create(cluster.client, CONFIG_MAPS, {"metadata": {"name": "c"}})
    both = await run("get", "cm", "none", "c", *output)
    ignored = await run("get", "cm", "none", "c", "--ignore-not-found", *output)
    nothing = await run("get", "cm", "none", "--ignore-not-found", *output)

    assert (both.status, both.err) == (1, 'Error from server (NotFound): configmaps "none" not found\n')
    assert both.out.splitlines()[-1].split()[0].removeprefix("configmap/") == "c"
    assert (ignored.status, ignored.err) == (0, "")
    assert ignored.out == both.out
    assert (nothing.status, nothing.out, nothing.err) == (0, "", "")


async def test_get_prints_a_list_for_several_names(cluster: LocalCluster, run: Run) -> None:
    """Also if one of them exists, so that scripts get one form."""
    await create(cluster.client, CONFIG_MAPS, {"metadata": {"name": "c"}})
    shown = json.loads((await run("get", "cm", "none", "c", "-o", "json")).out)

    assert (shown["kind"], [item["metadata"]["name"] for item in shown["items"]]) == ("List", ["c"])


async def test_get_by_name_in_all_namespaces_is_an_error(run: Run) -> None:
    shown = await run("get", "cm", "c", "-A", "--ignore-not-found")

    assert (shown.status, shown.err) == (
        1,
        "error: a resource cannot be retrieved by name across all namespaces\n",
    )


async def test_describe_of_missing_objects(cluster: LocalCluster, run: Run) -> None:
    await create(cluster.client, CONFIG_MAPS, {"metadata": {"name": "c"}})
    nothing = await run("describe", "pytorchjob", "-n", "nothing")
    both = await run("describe", "cm", "none", "c")

    assert (nothing.status, nothing.out) == (0, "")
    assert nothing.err == "No resources found in nothing namespace.\n"
    assert (both.status, both.err) == (1, 'Error from server (NotFound): configmaps "none" not found\n')
    assert both.out.startswith("Name:")


async def test_describe_a_job(cluster: LocalCluster, run: Run) -> None:
    container = {"name": "pytorch", "image": "none", "command": ["true"]}
    template = {"spec": {"containers": [container]}}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}}
    await create(
        cluster.client,
        JOBS,
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}, "spec": spec},
    )
    condition = {"type": "Created", "status": "True", "reason": "New", "message": "is new"}
    status = {"conditions": [condition], "replicaStatuses": {"Worker": {"active": 1}}}
    await cluster.client.patch(JOBS, "default", "j", orjson.dumps({"status": status}), subresource="status")
    await pod(
        cluster.client, "j-worker-0", "exit 3", until="Failed", labels={"training.kubeflow.org/job-name": "j"}
    )
    shown = await run("describe", "pytorchjob", "j")
    lines = [line.split() for line in shown.out.splitlines()]

    assert shown.status == 0
    assert ["Name:", "j"] in lines
    assert ["Worker", "2", "1", "0", "0"] in lines
    assert ["j-worker-0", "Failed", "0", "local"] in lines
    assert ["Created", "True", "<none>", "New", "is", "new"] in lines


async def test_describe_a_job_with_several_versions(cluster: LocalCluster, run: Run) -> None:
    """The object is read in its storage version; its flavor determines its behavior."""
    jobs = Resource("kubeflow.org", "v2beta1", "MPIJob", "mpijobs")
    body = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"}}
    await create(cluster.client, jobs, {**body, "spec": {"mpiReplicaSpecs": {"Launcher": LAUNCHER}}})
    shown = await run("describe", "mpijob", "m")

    assert ["Flavor:", "v2beta1"] in [line.split() for line in shown.out.splitlines()]


async def test_describe_a_pod(cluster: LocalCluster, run: Run) -> None:
    await pod(cluster.client, "p", "exit 3", until="Failed")
    async with asyncio.timeout(20):
        shown = await run("describe", "pod/p")
        while "Scheduled" not in shown.out:
            shown = await run("describe", "pod/p")
    lines = [line.split() for line in shown.out.splitlines()]

    assert ["main", "Terminated", "Error", "(exit", "code", "3)", "0", "<none>"] in lines
    head = [line for line in shown.out.splitlines() if line.startswith(("Name:", "Labels:", "Annotations:"))]
    assert len({len(line) - len(line.split(None, 1)[1]) for line in head}) == 1


async def test_logs_of_a_launcher(cluster: LocalCluster, run: Run) -> None:
    """A batch Job owns its pod, and the MPIJob owns the batch Job."""
    jobs = Resource("kubeflow.org", "v2beta1", "MPIJob", "mpijobs")
    body = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"}}
    await create(cluster.client, jobs, {**body, "spec": {"mpiReplicaSpecs": {"Launcher": LAUNCHER}}})
    made = orjson.loads(await cluster.client.get(jobs, "default", "m"))
    reference = {**body, "name": "m", "uid": made["metadata"]["uid"]}
    del reference["metadata"]
    container = {"name": "mpi", "image": "none", "command": ["echo", "3.14"]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    launcher = {"name": "m-launcher", "ownerReferences": [reference]}
    await create(cluster.client, BATCH_JOBS, {"metadata": launcher, "spec": {"template": template}})
    async with asyncio.timeout(20):
        while "3.14" not in (shown := await run("logs", "mpijob/m")).out:
            pass

    assert re.fullmatch(r"\[m-launcher-\w{5}\] 3\.14\n", shown.out)


async def test_logs(cluster: LocalCluster, run: Run) -> None:
    for name in ("a", "b"):
        await pod(cluster.client, name, f"echo from {name}; echo last", until="Succeeded", labels={"x": "y"})
    single = await run("logs", "a")
    tail = await run("logs", "pod/a", "--tail", "1")
    many = await run("logs", "-l", "x=y", "--prefix")
    followed = await run("logs", "-f", "b")
    previous = await run("logs", "--previous", "a")

    assert single.out == "from a\nlast\n"
    assert tail.out == "last\n"
    assert "[pod/a/main] from a\n" in many.out
    assert "[pod/b/main] from b\n" in many.out
    assert followed.out == "from b\nlast\n"
    assert previous.status == 1
    assert 'previous terminated container "main" in pod "a" not found' in previous.err


async def job_of_workers(client: Client) -> dict[str, Any]:
    """Create the PyTorchJob ``j`` and return the owner reference of its pods."""
    container = {"name": "pytorch", "image": "none", "command": ["true"]}
    workers = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    spec = {"pytorchReplicaSpecs": {"Worker": workers}}
    await create(client, JOBS, {**body, "metadata": {"name": "j"}, "spec": spec})
    uid = orjson.loads(await client.get(JOBS, "default", "j"))["metadata"]["uid"]
    return {**body, "name": "j", "uid": uid, "controller": True}


async def test_logs_of_a_job_are_prefixed_by_pod(cluster: LocalCluster, run: Run) -> None:
    owner = await job_of_workers(cluster.client)
    for index in range(2):
        script = f"echo one {index}; printf 'two {index}'"
        await pod(cluster.client, f"j-worker-{index}", script, until="Succeeded", ownerReferences=[owner])
    shown = await run("logs", "pytorchjob/j")
    named = await run("logs", "pytorchjob/j", "--prefix", "--tail", "1")
    bare = await run("logs", "pytorchjob/j", "--no-prefix", "-c", "main")
    unknown = await run("logs", "pytorchjob/j", "-c", "other")
    earlier = await run("logs", "pytorchjob/j", "--previous")

    assert shown.out == ("[j-worker-0] one 0\n[j-worker-0] two 0\n[j-worker-1] one 1\n[j-worker-1] two 1\n")
    assert named.out == "[pod/j-worker-0/main] two 0\n[pod/j-worker-1/main] two 1\n"
    assert bare.out == "one 0\ntwo 0\none 1\ntwo 1\n"
    assert (unknown.status, unknown.err) == (
        1,
        "error: container other is not valid for any pod of pytorchjob/j\n",
    )
    assert (earlier.status, earlier.out) == (1, "")
    assert earlier.err == "".join(
        f'j-worker-{index}: previous terminated container "main" in pod "j-worker-{index}" not found\n'
        for index in range(2)
    )


async def test_a_container_that_only_some_pods_of_a_job_have(cluster: LocalCluster, run: Run) -> None:
    owner = await job_of_workers(cluster.client)
    await pod(cluster.client, "j-worker-0", "echo one", until="Succeeded", ownerReferences=[owner])
    container = {"name": "monitor", "image": "none", "command": ["echo", "two"]}
    metadata = {"name": "j-worker-1", "ownerReferences": [owner]}
    spec = {"containers": [container], "restartPolicy": "Never"}
    await create(cluster.client, PODS, {"metadata": metadata, "spec": spec})
    async with asyncio.timeout(20):
        while not (shown := await run("logs", "pytorchjob/j", "-c", "monitor")).out:
            pass

    assert (shown.status, shown.out, shown.err) == (0, "[j-worker-1] two\n", "")


async def test_logs_of_a_job_omit_pods_that_have_not_started(cluster: LocalCluster, run: Run) -> None:
    owner = await job_of_workers(cluster.client)
    await pod(cluster.client, "j-worker-0", "echo one", until="Succeeded", ownerReferences=[owner])
    too_much = {"requests": {"cpu": "1000"}}
    container = {"name": "main", "image": "none", "command": ["true"], "resources": too_much}
    metadata = {"name": "j-worker-1", "ownerReferences": [owner]}
    await create(cluster.client, PODS, {"metadata": metadata, "spec": {"containers": [container]}})
    await until_condition(cluster.client, "j-worker-1", "PodScheduled")
    shown = await run("logs", "pytorchjob/j")
    alone = await run("logs", "j-worker-1")
    where = PODS.path("default", "j-worker-1", "log")
    with pytest.raises(ApiError) as refused:
        await cluster.client.request("GET", where)

    reason = "is waiting to start: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu"
    assert (shown.status, shown.out) == (0, "[j-worker-0] one\n")
    assert shown.err.startswith(f'j-worker-1: pod "j-worker-1" {reason}')
    assert shown.err.endswith("\n'rallypoint why pytorchjob/j' says why\n")
    assert (alone.status, alone.out) == (1, "")
    assert alone.err.startswith(f'error: pod "j-worker-1" {reason}')
    assert refused.value.message.startswith(f'container "main" in pod "j-worker-1" {reason}')


async def until_condition(client: Client, name: str, type_: str) -> None:
    """Wait until the pod has this condition."""
    async with asyncio.timeout(20):
        found: list[str] = []
        while type_ not in found:
            status = orjson.loads(await client.get(PODS, "default", name)).get("status") or {}
            found = [condition["type"] for condition in status.get("conditions") or ()]
            await asyncio.sleep(0.02)


async def test_logs_of_a_pod_without_its_configmap_are_refused(cluster: LocalCluster, run: Run) -> None:
    owner = await job_of_workers(cluster.client)
    missing = {"configMapRef": {"name": "missing"}}
    container = {"name": "main", "image": "none", "command": ["true"], "envFrom": [missing]}
    metadata = {"name": "j-worker-0", "ownerReferences": [owner]}
    await create(cluster.client, PODS, {"metadata": metadata, "spec": {"containers": [container]}})
    async with asyncio.timeout(20):
        while "CreateContainerConfigError" not in (await run("get", "pods")).out:
            pass
    shown = await run("logs", "pytorchjob/j")

    assert (shown.status, shown.out) == (1, "")
    assert shown.err.splitlines() == [
        'j-worker-0: container "main" in pod "j-worker-0" is waiting to start: CreateContainerConfigError',
        "'rallypoint why pytorchjob/j' says why",
    ]


async def test_logs_of_a_job_without_pods_point_to_why(cluster: LocalCluster, run: Run) -> None:
    await job_of_workers(cluster.client)
    shown = await run("logs", "pytorchjob/j")

    assert (shown.status, shown.out) == (1, "")
    assert shown.err == "error: no pods found; 'rallypoint why pytorchjob/j' says why\n"


async def test_following_a_job_without_pods_says_that_it_waits(
    cluster: LocalCluster, run: Run, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    await job_of_workers(cluster.client)
    following = asyncio.ensure_future(run("logs", "-f", "pytorchjob/j"))
    shown = b""
    async with asyncio.timeout(20):
        while not shown.endswith(b"\n"):
            await asyncio.sleep(0.05)
            shown += capfdbinary.readouterr().err
    condition = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2100-01-01T00:00:00Z"}
    finished = orjson.dumps({"status": {"conditions": [condition]}})
    await cluster.client.patch(JOBS, "default", "j", finished, subresource="status")
    ended = await following
    again = await run("logs", "-f", "pytorchjob/j")

    assert shown == b"waiting for the first pod; 'rallypoint why pytorchjob/j' says why\n"
    assert ended == Ended(0, "", "")
    assert again == Ended(1, "", "error: no pods found; 'rallypoint why pytorchjob/j' says why\n")


async def test_logs_of_deleted_pods_come_from_the_folder_of_the_local_cluster(
    cluster: LocalCluster, run: Run
) -> None:
    owner = await job_of_workers(cluster.client)
    for index in range(2):
        name = f"j-worker-{index}"
        script = f"echo one; sleep 0.1; echo from {index}"
        await pod(
            cluster.client,
            name,
            script,
            until="Succeeded",
            ownerReferences=[owner],
            labels={"part": str(index)},
        )
    await cluster.client.delete(PODS, "default", "j-worker-1")
    async with asyncio.timeout(20):
        while "j-worker-1" in (await run("get", "pods")).out:
            pass
    of_job = await run("logs", "pytorchjob/j", "--tail", "1")
    of_pod = await run("logs", "j-worker-1")
    previous = await run("logs", "-p", "j-worker-1")
    none = await run("logs", "j-worker-2")
    stamped = await run("logs", "j-worker-1", "--timestamps")
    recent = await run("logs", "j-worker-1", "--since", "1h")
    selected = await run("logs", "-l", "part=1")
    selected_both = await run("logs", "-l", "part in (0,1)", "--tail", "1")
    (times,) = cluster.node.logs.folder.glob("*_j-worker-1_*/main/0.times")
    times.unlink()
    without_times = await run("logs", "j-worker-1", "--timestamps")
    await run("delete", "pytorchjob", "j")
    of_deleted_job = await run("logs", "-f", "pytorchjob/j")

    assert of_job.out == "[j-worker-1] from 1\n[j-worker-0] from 0\n"
    assert of_pod.out == recent.out == "one\nfrom 1\n"
    first, second = (line.split(" ", 1) for line in stamped.out.splitlines())
    assert (first[1], second[1], stamped.err) == ("one", "from 1", "")
    assert first[0] < second[0]
    note = "deleted pods with these labels: j-worker-1; 'rallypoint logs POD' shows their logs\n"
    assert (selected.status, selected.err) == (1, f"{note}error: no pods found\n")
    assert (selected_both.out, selected_both.err) == ("from 0\n", note)
    assert without_times.err.startswith("j-worker-1: the times of its lines are lost")
    assert "previous terminated container" in previous.err
    assert none.err == 'Error from server (NotFound): pods "j-worker-2" not found\n'
    assert (of_deleted_job.status, len(of_deleted_job.out.splitlines())) == (0, 4)


async def owned(client: Client, script: str, *, until: str = "Running", **metadata: Any) -> None:
    """The PyTorchJob ``j`` of a worker, and that pod."""
    container = {"name": "pytorch", "image": "none", "command": ["true"]}
    spec = {
        "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}
    }
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    await create(client, JOBS, {**body, "metadata": {"name": "j"}, "spec": spec})
    uid = orjson.loads(await client.get(JOBS, "default", "j"))["metadata"]["uid"]
    reference = {**body, "name": "j", "uid": uid, "controller": True}
    await pod(client, "j-worker-0", script, until=until, ownerReferences=[reference], **metadata)


async def set_condition(client: Client, type_: str) -> None:
    """Set this condition in the job's status."""
    since = "2100-01-01T00:00:00Z"
    condition = {"type": type_, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": since}
    body = orjson.dumps({"status": {"conditions": [condition]}})
    await client.patch(JOBS, "default", "j", body, subresource="status")


async def test_why_a_job_failed(cluster: LocalCluster, run: Run) -> None:
    await owned(cluster.client, "echo working; echo no luck; exit 3", until="Failed")
    await set_condition(cluster.client, "Failed")
    shown = await run("why", "pytorchjob/j")
    lines = [line.split() for line in shown.out.splitlines()]

    assert shown.status == 0
    assert lines[0][:3] == ["PyTorchJob", "default/j:", "Failed"]
    assert any(line[:1] == ["j-worker-0"] and line[-3:] == ["exit", "code", "3"] for line in lines)
    assert any(line[:1] == ["j-worker-0/main"] and line[2:] == ["working"] for line in lines)
    assert ["no", "luck"] in lines


async def test_why_uses_events_of_missing_pods(cluster: LocalCluster, run: Run) -> None:
    """It ignores pods of another job whose name has this job's name as prefix."""
    await owned(cluster.client, "true", until="Succeeded")
    await set_condition(cluster.client, "Failed")
    for name in ("j-worker-7", "j-2-worker-7"):
        about = {"kind": "Pod", "namespace": "default", "name": name, "uid": name}
        event = {"metadata": {"name": f"{name}.1"}, "involvedObject": about, "type": "Normal"}
        await create(cluster.client, EVENTS, {**event, "reason": "Killing", "message": "Stopping"})
    (report,) = json.loads((await run("why", "pytorchjob/j", "-o", "json")).out)

    assert [(cause["about"], cause["text"]) for cause in report["causes"][1:]] == [
        (["j-worker-7"], "no longer exists: Killing: Stopping")
    ]


async def test_why_of_all_unfinished_jobs(cluster: LocalCluster, run: Run) -> None:
    nothing = await run("why")
    await owned(cluster.client, "echo step 1; exec sleep 100")
    await set_condition(cluster.client, "Running")
    async with asyncio.timeout(20):
        while not (reports := json.loads((await run("why", "-A", "-o", "json")).out))[0]["lastLines"]:
            pass
    await set_condition(cluster.client, "Succeeded")
    finished = await run("why")

    assert nothing.out == finished.out == "No job is unfinished.\n"
    (found,) = reports
    assert (found["kind"], found["name"], found["state"], found["blocked"]) == (
        "PyTorchJob",
        "j",
        "Running",
        False,
    )
    assert found["lastLines"][0]["lines"] == ["step 1"]
    assert {phase["name"]: phase["done"] for phase in found["phases"]}["started"] == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param(
            ["pod/p"],
            "error: Pod is not a kind of job; the kinds are PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob, MPIJob, MXJob",
            id="no job",
        ),
        pytest.param(
            ["jaxjob/none"],
            'Error from server (NotFound): jaxjobs.kubeflow.org "none" not found',
            id="not there",
        ),
        pytest.param(
            ["-A", "jaxjob/none"],
            "error: a resource cannot be retrieved by name across all namespaces",
            id="by name in all namespaces",
        ),
    ],
)
async def test_why_of_missing_objects(run: Run, arguments: list[str], error: str) -> None:
    shown = await run("why", *arguments)

    assert (shown.status, shown.out, shown.err) == (1, "", f"{error}\n")


async def test_delete(cluster: LocalCluster, run: Run, tmp_path: Path) -> None:
    await pod(cluster.client, "p", "exec sleep 100")
    manifest = tmp_path / "c.yaml"
    manifest.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
    await create(cluster.client, CONFIG_MAPS, {"metadata": {"name": "c"}})
    gone = await run("delete", "pod", "p")
    listed = await run("get", "pods")
    by_file = await run("delete", "-f", str(manifest))
    again = await run("delete", "-f", str(manifest))
    forgiven = await run("delete", "-f", str(manifest), "--ignore-not-found")
    unnamed = await run("delete", "cm")

    assert (gone.status, gone.out) == (0, 'pod "p" deleted from default namespace\n')
    assert "No resources found" in listed.err
    assert by_file.out == 'configmap "c" deleted from default namespace\n'
    assert (again.status, again.err) == (1, 'Error from server (NotFound): configmaps "c" not found\n')
    assert (forgiven.status, forgiven.err) == (0, "")
    assert unnamed.status == 1


async def test_delete_by_file_uses_the_namespace_of_the_document(
    cluster: LocalCluster, run: Run, tmp_path: Path
) -> None:
    for namespace in ("default", "team-b"):
        await cluster.client.create(CONFIG_MAPS, namespace, orjson.dumps({"metadata": {"name": "c"}}))
    manifest = tmp_path / "c.yaml"
    manifest.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: team-b}}")
    refused = await run("delete", "-f", str(manifest), "-n", "default")
    done = await run("delete", "-f", str(manifest))
    left = await run("get", "cm", "-A", "--no-headers")

    assert (refused.status, refused.out) == (1, "")
    assert refused.err == (
        'error: the namespace from the provided object "team-b" does not match the namespace "default". '
        "You must pass '--namespace=team-b' to perform this operation.\n"
    )
    assert (done.status, done.out) == (0, 'configmap "c" deleted from team-b namespace\n')
    assert [line.split()[0] for line in left.out.splitlines()] == ["default"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(None, "No such file or directory", id="a file that does not exist"),
        pytest.param("a: [", "not YAML: line 1, column 5: ", id="no YAML"),
        pytest.param("{metadata: {name: c}}", "c: apiVersion: Required value", id="no kind"),
        pytest.param("{apiVersion: v1, kind: Pod}", "Pod: metadata.name: Required value", id="no metadata"),
        pytest.param(
            "{apiVersion: v1, kind: Pod, metadata: a}",
            "Pod: metadata: Invalid value: must be of type object, not string",
            id="metadata is no object",
        ),
        pytest.param(
            "{apiVersion: v1, kind: Pod, metadata: {generateName: g-}}",
            "Pod g-: metadata.name: Required value",
            id="a generated name",
        ),
    ],
)
async def test_delete_rejects_files_that_name_no_object(
    run: Run, tmp_path: Path, text: str | None, error: str
) -> None:
    manifest = tmp_path / "m.yaml"
    if text is not None:
        manifest.write_text(text)
    shown = await run("delete", "-f", str(manifest))

    assert (shown.status, shown.out) == (1, "")
    assert shown.err.startswith(f"error: {manifest}: {error}")


@pytest.mark.parametrize("command", ["get", "describe", "delete"])
@pytest.mark.parametrize(
    ("words", "error"),
    [
        pytest.param(["cm", "c"], "name cannot be provided when a selector is specified", id="KIND NAME"),
        pytest.param(
            ["cm/c"],
            "selectors and the all flag cannot be used when passing resource/name arguments",
            id="KIND/NAME",
        ),
    ],
)
async def test_a_name_and_a_selector_are_an_error(
    cluster: LocalCluster, run: Run, command: str, words: list[str], error: str
) -> None:
    await create(cluster.client, CONFIG_MAPS, {"metadata": {"name": "c"}})
    shown = await run(command, *words, "-l", "a=b")

    assert (shown.status, shown.out, shown.err) == (1, "", f"error: {error}\n")
    assert await cluster.client.get(CONFIG_MAPS, "default", "c")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param(
            ["cm", "c", "--all"], "name cannot be provided when a selector is specified", id="a name"
        ),
        pytest.param(
            ["cm", "--all", "-l", "a=b"], "cannot set --all and --selector at the same time", id="a selector"
        ),
        pytest.param(
            ["-f", "c.yaml", "-l", "a=b"],
            "cannot set --filename and --selector at the same time",
            id="a file and a selector",
        ),
    ],
)
async def test_delete_rejects_selections_that_contradict(
    cluster: LocalCluster, run: Run, arguments: list[str], error: str
) -> None:
    await create(cluster.client, CONFIG_MAPS, {"metadata": {"name": "c", "labels": {"a": "b"}}})
    shown = await run("delete", *arguments)

    assert (shown.status, shown.out, shown.err) == (1, "", f"error: {error}\n")
    assert await cluster.client.get(CONFIG_MAPS, "default", "c")


async def test_exec(cluster: LocalCluster, run: Run) -> None:
    await pod(cluster.client, "p", "exec sleep 100")
    said = await run("exec", "p", "--", "sh", "-c", "echo $HOSTNAME; echo problem >&2; exit 7")
    nothing = await run("exec", "p", "--", "no-such-program")
    nowhere = await run("exec", "p", "-c", "other", "--", "true")

    assert (said.status, said.out) == (7, "p\n")
    assert said.err == "problem\ncommand terminated with exit code 7\n"
    assert nothing.status == 1
    assert "executable file not found in $PATH" in nothing.err
    assert (nowhere.status, nowhere.err) == (1, "error: container other is not valid for pod p\n")


async def test_exec_chooses_a_running_pod_and_rejects_a_completed_one(
    cluster: LocalCluster, run: Run
) -> None:
    owner = await job_of_workers(cluster.client)
    await pod(cluster.client, "j-worker-0", "exit 3", until="Failed", ownerReferences=[owner])
    all_failed = await run("exec", "pytorchjob/j", "--", "true")
    await pod(cluster.client, "j-worker-1", "exec sleep 100", ownerReferences=[owner])
    of_job = await run("exec", "pytorchjob/j", "--", "sh", "-c", "echo $HOSTNAME")
    failed = await run("exec", "j-worker-0", "--", "true")

    error = "error: cannot exec into a container in a completed pod; current phase is Failed\n"
    assert (of_job.status, of_job.out) == (0, "j-worker-1\n")
    assert (failed.status, failed.err) == (1, error)
    assert (all_failed.status, all_failed.err) == (1, error)


async def test_exec_with_input(cluster: LocalCluster, run: Run, tmp_path: Path) -> None:
    """The command gets all input and its end; it runs in a separate process, because standard input belongs to the process."""
    await pod(cluster.client, "p", "exec sleep 100")
    given = bytes(range(256)) * 4096
    arguments = ["exec", "--kubeconfig", str(tmp_path / "kubeconfig"), "-i", "p", "--", "cat"]
    ended = await asyncio.to_thread(
        subprocess.run,
        [*RALLYPOINT, *arguments],
        input=given,
        capture_output=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout == given


def to_full_device(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    with Path("/dev/full").open("wb") as full:
        return subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["get", "pods"], id="get"),
        pytest.param(["get", "pods", "-o", "yaml"], id="get -o yaml"),
        pytest.param(["logs", "p"], id="logs"),
        pytest.param(["logs", "-f", "-l", "x=y"], id="logs -f -l"),
        pytest.param(["logs", "gone"], id="logs of a deleted pod"),
        pytest.param(["exec", "p", "--", "echo", "one"], id="exec"),
    ],
)
async def test_output_that_cannot_be_written_is_no_fault_of_the_server(
    cluster: LocalCluster, run: Run, tmp_path: Path, arguments: list[str]
) -> None:
    await pod(cluster.client, "gone", "echo one", until="Succeeded")
    await run("delete", "pod", "gone")
    await pod(cluster.client, "p", "echo one; exec sleep 100", labels={"x": "y"})
    command, *rest = arguments
    given = [*RALLYPOINT, command, "--kubeconfig", str(tmp_path / "kubeconfig"), *rest]
    ended = await asyncio.to_thread(to_full_device, given)

    assert ended.stderr == b"error: cannot write the output: No space left on device\n"
    assert ended.returncode == 1


async def test_a_cluster_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {"clusters": [cluster], "contexts": [context], "current-context": "c"}
    (tmp_path / "kubeconfig").write_text(
        yaml.safe_dump({**config, "users": [{"name": "u", "user": {"token": "t"}}]})
    )
    status = await asyncio.to_thread(main, ["get", "pods", "--kubeconfig", str(tmp_path / "kubeconfig")])

    assert status == 1
    assert capsys.readouterr().err == (
        "error: the server does not answer: cannot connect to 127.0.0.1:9: Connection refused; "
        "is the cluster running, and is this its kubeconfig?\n"
    )


def test_without_a_kubeconfig_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert main(["get", "pods"]) == 1
    assert capsys.readouterr().err.startswith("error: no cluster: no kubeconfig is given")


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        pytest.param([], "error: no cluster: no kubeconfig is given", id="without a kubeconfig"),
        pytest.param(["--kubeconfig", "/none"], "error: kubeconfig /none: ", id="with a kubeconfig"),
    ],
)
def test_a_user_without_a_home_directory(
    flags: list[str],
    error: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def no_entry(uid: int) -> NoReturn:
        raise KeyError(uid)

    for name in ("HOME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)

    assert main(["get", "pods", *flags]) == 1
    assert capsys.readouterr().err.startswith(error)
