"""Pods on a local cluster: the embedded API server and the node, with real processes and sockets."""

import asyncio
import base64
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import psutil
import pytest

from api.meta import EVENTS, PODS, SERVICES
from controller.kube.errors import ApiError, NotFound
from rallypoint.local.cluster import require_loopback
from rallypoint.local.log_archive import LogArchive
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.local.node.scheduler.scheduler import NODES
from rallypoint.local.node.volumes.manager import CONFIG_MAPS, SECRETS
from tests.support.local_harness import TIMEOUT_SECONDS, LocalHarness, phase, start_local_harness

pytestmark = pytest.mark.looptime(False)

PREFIX = {"loopback": "127.", "namespaces": "10.244."}
IN_MEMORY = {"name": "m", "emptyDir": {"medium": "Memory"}}
Left: TypeAlias = Callable[[], list[str]]


def ended(pod: Manifest) -> dict[str, Any]:
    state: dict[str, Any] = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return state


@pytest.fixture
async def harness(tmp_path: Path, isolation: IsolationMode) -> AsyncIterator[LocalHarness]:
    async with start_local_harness(tmp_path, isolation) as harness:
        yield harness


async def test_the_node_exists(harness: LocalHarness) -> None:
    node = orjson.loads(await harness.client.get(NODES, "", "local"))

    assert int(node["status"]["capacity"]["cpu"]) >= 1
    assert [c["type"] for c in node["status"]["conditions"] if c["status"] == "True"] == ["Ready"]


async def test_the_logs_keep_the_last_status_of_a_deleted_pod(harness: LocalHarness) -> None:
    """And when its runs started and ended."""
    script = "sleep 1; exit 3"
    await harness.pod("a", "sh", "-c", script, spec={"restartPolicy": "Always"})
    await harness.wait_for(
        "a", lambda pod: (pod.get("status", {}).get("containerStatuses") or [{}])[0].get("restartCount")
    )
    await harness.client.delete(PODS, "default", "a", grace_period_seconds=1)
    await harness.wait_for_deletion("a")
    archive = LogArchive(harness.node.logs.folder)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (state := archive.pods("default")[0].last_state()) is None:  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.02)

    (status,) = state[0]["status"]["containerStatuses"]
    assert (status["restartCount"], status["lastState"]["terminated"]["exitCode"]) == (1, 3)
    first, second = archive.pods("default")[0].ended_runs("main")
    assert first[0] <= first[1] <= second[0] <= second[1]


@pytest.mark.parametrize(
    ("code", "phase_", "reason"), [(0, "Succeeded", "Completed"), (3, "Failed", "Error")]
)
async def test_a_pod_runs(harness: LocalHarness, code: int, phase_: str, reason: str) -> None:
    env = [
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    await harness.pod("a", "sh", "-c", f"echo $NODE $IP $HOSTNAME; exit {code}", env=env)
    pod = await harness.wait_for_end("a")

    assert (phase(pod), ended(pod)["exitCode"], ended(pod)["reason"]) == (phase_, code, reason)
    assert pod["status"]["podIP"].startswith(PREFIX[harness.node.isolation.name])
    assert await harness.log("a") == f"local {pod['status']['podIP']} a\n"


async def test_a_missing_program(harness: LocalHarness) -> None:
    await harness.pod("a", "nosuch-program")
    pod = await harness.wait_for_end("a")

    assert (ended(pod)["exitCode"], ended(pod)["reason"]) == (128, "StartError")
    assert "nosuch-program" in await harness.log("a")


async def test_a_container_that_crashes_is_started_again(harness: LocalHarness, tmp_path: Path) -> None:
    script = f"echo run; mkdir {tmp_path}/once 2>/dev/null && exit 7; exit 0"
    await harness.pod("a", "sh", "-c", script, spec={"restartPolicy": "OnFailure"})
    pod = await harness.wait_for_end("a")
    (status,) = pod["status"]["containerStatuses"]

    assert (phase(pod), status["restartCount"]) == ("Succeeded", 1)
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert await harness.log("a", previous="true") == "run\n"


async def test_values_and_files_of_objects(harness: LocalHarness) -> None:
    await harness.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"LR": "0.1"}})
    await harness.create(
        SECRETS, {"metadata": {"name": "s"}, "data": {"key": base64.b64encode(b"shh").decode()}}
    )
    volumes = [{"name": "c", "configMap": {"name": "c"}}, {"name": "s", "secret": {"secretName": "s"}}]
    mounts = [{"name": "c", "mountPath": "/etc/c"}, {"name": "s", "mountPath": "/etc/s"}]
    await harness.pod(
        "a",
        *("sh", "-c", "echo $LR; cat /etc/c/LR /etc/s/key"),
        envFrom=[{"configMapRef": {"name": "c"}}],
        volumeMounts=mounts,
        spec={"volumes": volumes},
    )
    await harness.wait_for_end("a")

    assert await harness.log("a") == "0.1\n0.1shh"


async def test_a_late_config_map(harness: LocalHarness) -> None:
    await harness.pod("a", "sh", "-c", "echo $LR", envFrom=[{"configMapRef": {"name": "late"}}])

    def waits(pod: Manifest) -> bool:
        status = (pod["status"].get("containerStatuses") or [{}])[0]
        return (status.get("state") or {}).get("waiting") == {
            "reason": "CreateContainerConfigError",
            "message": 'configmap "late" not found',
        }

    await harness.wait_for("a", waits)
    await harness.create(CONFIG_MAPS, {"metadata": {"name": "late"}, "data": {"LR": "1"}})
    await harness.wait_for_end("a")

    assert await harness.log("a") == "1\n"


@pytest.mark.parametrize("isolation", ["loopback"])
async def test_an_unsupported_volume_is_rejected_by_name(harness: LocalHarness) -> None:
    await harness.pod(
        "a",
        "true",
        volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}],
        spec={"volumes": [{"name": "scratch", "emptyDir": {}}]},
    )
    pod = await harness.wait_for("a", lambda pod: "Refused" in str(pod.get("status")))

    assert phase(pod) == "Failed"
    assert 'volume "scratch"' in pod["status"]["message"]
    await harness.client.delete(PODS, "default", "a")
    await harness.wait_for_deletion("a")


async def test_a_pod_that_is_too_large_waits_until_there_is_room(harness: LocalHarness) -> None:
    cores = harness.node.machine.capacity["cpu"]
    large = {"requests": {"cpu": str(cores)}}
    await harness.pod("first", "sh", "-c", "sleep 1000", resources=large)
    await harness.wait_for("first", lambda pod: phase(pod) == "Running")
    await harness.pod("second", "true", resources=large)
    waiting = await harness.wait_for("second", lambda pod: pod["status"].get("conditions"))
    (condition,) = waiting["status"]["conditions"]

    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == "0/1 nodes are available: 1 Insufficient cpu."
    await harness.client.delete(PODS, "default", "first")
    assert phase(await harness.wait_for_end("second")) == "Succeeded"


async def test_deletion_sends_sigterm_to_processes(harness: LocalHarness) -> None:
    script = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    await harness.pod("a", "sh", "-c", script)
    await harness.wait_for_log("a", "up")
    path = harness.node.logs.path((await harness.wait_for("a", phase)), "main", 0)
    await harness.client.delete(PODS, "default", "a")
    await harness.wait_for_deletion("a")

    assert "asked\n" in path.read_text()


async def test_deletion_kills_processes_that_ignore_sigterm(left: Left, harness: LocalHarness) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    await harness.pod("a", "sh", "-c", script)
    await harness.wait_for_log("a", "up")
    assert any(script in line for line in left())
    await harness.client.delete(PODS, "default", "a", grace_period_seconds=1)
    await harness.wait_for_deletion("a")

    assert not any(script in line for line in left())


async def test_a_name_resolves_once_its_pod_runs(harness: LocalHarness) -> None:
    """As a worker of a PyTorchJob waits for its master."""
    loop = "for i in $(seq 100); do if nslookup server; then exit 0; fi; sleep 2; done; exit 1"
    init = {"name": "init", "image": "none", "command": ["sh", "-c", loop]}
    lookup = "import socket; print(socket.gethostbyname('server'))"
    await harness.pod("client", "python", "-c", lookup, spec={"initContainers": [init]})
    await harness.wait_for(
        "client", lambda pod: "startedAt" in str(pod["status"].get("initContainerStatuses"))
    )
    selector = {"app": "server"}
    await harness.create(
        SERVICES,
        {
            "metadata": {"name": "server"},
            "spec": {"clusterIP": "None", "selector": selector, "ports": [{"port": 1}]},
        },
    )
    await harness.pod("server", "sh", "-c", "sleep 1000")
    await harness.wait_for_end("client")
    server = await harness.wait_for("server", lambda pod: phase(pod) == "Running")

    assert await harness.log("client") == f"{server['status']['podIP']}\n"


async def test_the_deadline_of_a_pod(harness: LocalHarness) -> None:
    await harness.pod("a", "sh", "-c", "sleep 1000", spec={"activeDeadlineSeconds": 1})
    pod = await harness.wait_for_end("a")

    assert (phase(pod), pod["status"]["reason"], ended(pod)["exitCode"]) == (
        "Failed",
        "DeadlineExceeded",
        143,
    )


async def test_log_options(harness: LocalHarness) -> None:
    await harness.pod("a", "sh", "-c", "echo one; echo two; echo three")
    await harness.wait_for_end("a")

    assert await harness.log("a", tailLines="2") == "two\nthree\n"
    assert await harness.log("a", limitBytes="3") == "one"
    assert await harness.log("a", follow="true", container="main") == "one\ntwo\nthree\n"
    assert await harness.log("a", sinceTime="0000-01-01t00:00:00z") == "one\ntwo\nthree\n"
    assert [line.split(" ")[1] for line in (await harness.log("a", timestamps="true")).splitlines()] == [
        "one",
        "two",
        "three",
    ]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"container": "none"}, "container none is not valid for pod a"),
        ({"sinceTime": "2026-01-01T12:00:00"}, "is not a time of the form 2006-01-02T15:04:05Z"),
        ({"previous": "true"}, 'previous terminated container "main" in pod "a" not found'),
    ],
)
async def test_a_missing_log(harness: LocalHarness, params: dict[str, str], words: str) -> None:
    await harness.pod("a", "true")
    await harness.wait_for_end("a")

    with pytest.raises(ApiError, match=words):
        await harness.log("a", **params)


async def test_the_log_of_a_missing_pod(harness: LocalHarness) -> None:
    with pytest.raises(NotFound):
        await harness.log("none")


async def test_events_describe_the_lifecycle_of_a_pod(harness: LocalHarness) -> None:
    await harness.pod("a", "nosuch-program")
    await harness.wait_for_end("a")
    events: set[tuple[str, str]] = set()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(events) < 2:
            listed = orjson.loads(await harness.client.list(EVENTS, "default"))
            events = {(event["reason"], event["source"]["component"]) for event in listed["items"]}

    assert events == {("Scheduled", "default-scheduler"), ("Failed", "kubelet")}


async def test_a_killed_cluster_leaves_no_process_or_file(
    tmp_path: Path, left: Left, isolation: IsolationMode
) -> None:
    before = machine()
    async with start_local_harness(tmp_path, isolation) as harness:
        await harness.pod(
            *("a", "sh", "-c", "setsid sleep 1000 & echo up; trap '' TERM; while :; do sleep 0.05; done"),
            volumeMounts=[{"name": "v", "mountPath": "/tmp"}, {"name": "m", "mountPath": "/dev/shm"}],
            spec={"volumes": [{"name": "v", "hostPath": {"path": "/tmp"}}, IN_MEMORY]},
        )
        await harness.wait_for_log("a", "up")
        assert any("sleep 1000" in line for line in left())
        harness.node.kill()

    assert left() == []
    assert names(tmp_path) == ["logs"]
    assert machine() == before


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def machine() -> tuple[str, list[str]]:
    """What pods could leave beside processes: mounts and links."""
    return Path("/proc/self/mounts").read_text(), sorted(psutil.net_if_addrs())


async def test_a_working_directory_in_a_volume_is_made(harness: LocalHarness) -> None:
    await harness.pod(
        *("a", "sh", "-c", "echo mine > x && cat /nowhere-else/deep/er/x"),
        workingDir="/nowhere-else/deep/er",
        volumeMounts=[{"name": "v", "mountPath": "/nowhere-else"}],
        spec={"volumes": [{"name": "v", "emptyDir": {}}]},
    )
    await harness.wait_for_end("a")

    assert await harness.log("a") == "mine\n"


async def test_a_missing_working_directory_delays_the_container(harness: LocalHarness) -> None:
    await harness.pod("a", "pwd", workingDir="/nowhere-else")
    pod = await harness.wait_for(
        "a", lambda pod: "CreateContainerError" in str(pod["status"].get("containerStatuses"))
    )
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]

    assert waiting["message"] == 'chdir to cwd ("/nowhere-else"): no such file or directory'


WITHOUT_LOOPBACK = """
import asyncio, socket
from rallypoint.local.cluster import require_loopback
with socket.create_server(("127.0.0.1", 0)) as server:
    asyncio.run(require_loopback(f"http://127.0.0.1:{server.getsockname()[1]}"))
"""


def test_without_a_loopback_interface_the_error_says_so() -> None:
    """In a new network namespace the interface is down. A user that is not root needs a user namespace for it."""
    unshare = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine allows no network namespace")
    ended = subprocess.run(
        [*unshare, sys.executable, "-c", WITHOUT_LOOPBACK], check=False, capture_output=True, text=True
    )

    assert "NoLoopback: cannot connect to 127.0.0.1: " in ended.stderr
    assert "Local mode needs the loopback interface; 'ip link set lo up' starts it" in ended.stderr


async def test_another_error_of_a_connection_says_nothing_about_loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(ConnectionRefusedError):
        await require_loopback(f"http://127.0.0.1:{port}")
