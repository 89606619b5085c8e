"""The lifecycle of a pod on a local cluster, with real processes and sockets: probes, sidecars, hooks, termination messages."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.meta import EVENTS, PODS, SERVICES
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.sandbox.selection import IsolationMode
from tests.support.local_harness import TIMEOUT_SECONDS, LocalHarness, phase, start_local_harness

pytestmark = pytest.mark.looptime(False)

SERVE = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        is_good = os.path.exists(sys.argv[1]) and self.headers["X-Ask"] == "yes" and self.path == "/ready?now"
        self.send_response(200 if is_good else 503)
        self.end_headers()
HTTPServer((os.environ["IP"], 0 if len(sys.argv) < 3 else int(sys.argv[2])), Answer).serve_forever()
"""
"""Good as soon as there is a file, for whoever asks as agreed."""
IP = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
QUICK = {"periodSeconds": 1, "timeoutSeconds": 10}
FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


@pytest.fixture
async def harness(tmp_path: Path, isolation: IsolationMode) -> AsyncIterator[LocalHarness]:
    async with start_local_harness(tmp_path, isolation) as harness:
        yield harness


def ended(pod: Manifest) -> dict[str, Any]:
    state: dict[str, Any] = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return state


def conditions(pod: Manifest) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in pod["status"].get("conditions") or ()}


async def events(harness: LocalHarness, reason: str) -> list[str]:
    """The messages of events with this reason, once there are any."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            listed = orjson.loads(await harness.client.list(EVENTS, "default"))
            if found := [event["message"] for event in listed["items"] if event["reason"] == reason]:
                return found
            await asyncio.sleep(0.05)


async def test_readiness_is_probed_over_http_in_the_network_of_the_pod(
    harness: LocalHarness, tmp_path: Path
) -> None:
    file = tmp_path / "ready"
    port = 8765
    probe = {
        "httpGet": {
            "path": "/ready?now",
            "port": "web",
            "httpHeaders": [{"name": "X-Ask", "value": "yes"}],
        },
        **QUICK,
    }
    await harness.pod(
        *("a", "python3", "-c", SERVE, str(file), str(port)),
        env=IP,
        ports=[{"name": "web", "containerPort": port}],
        readinessProbe=probe,
    )
    pod = await harness.wait_for("a", lambda pod: phase(pod) == "Running")
    (failed, *_) = await events(harness, "Unhealthy")
    assert failed.startswith(
        f'Readiness probe failed: Get "http://{pod["status"]["podIP"]}:{port}/ready?now"'
    ) or (failed == "Readiness probe failed: HTTP probe failed with statuscode: 503")
    assert conditions(pod)["Ready"] == "False"
    file.touch()
    await harness.wait_for("a", lambda pod: conditions(pod)["Ready"] == "True")
    file.unlink()
    pod = await harness.wait_for("a", lambda pod: conditions(pod)["Ready"] == "False")

    assert pod["status"]["containerStatuses"][0]["started"]


async def test_a_name_is_known_once_its_pod_is_ready(harness: LocalHarness, tmp_path: Path) -> None:
    """A worker that waits for its master's name waits for its readiness."""
    file = tmp_path / "ready"
    service = {"clusterIP": "None", "selector": {"app": "master"}}
    await harness.create(SERVICES, {"metadata": {"name": "master"}, "spec": service})
    probe = {"exec": {"command": ["test", "-e", str(file)]}, **QUICK}
    await harness.pod("master", "sh", "-c", FOREVER, readinessProbe=probe)
    loop = "until nslookup master; do sleep 2; done"
    wait = {"name": "wait", "image": "none", "command": ["sh", "-c", loop]}
    await harness.pod("worker", "test", "-e", str(file), spec={"initContainers": [wait]})
    await harness.wait_for("master", lambda pod: phase(pod) == "Running")
    await harness.wait_for("worker", lambda pod: "running" in str(pod["status"].get("initContainerStatuses")))
    assert harness.node.network.resolve("default", "master") == []
    file.touch()

    assert phase(await harness.wait_for_end("worker")) == "Succeeded"


async def test_a_container_with_failed_liveness_is_restarted(harness: LocalHarness, tmp_path: Path) -> None:
    """Its second run is left alone: the file that fails the first one is gone."""
    file = tmp_path / "sick"
    file.touch()
    command = ["sh", "-c", f"test ! -e {file} || (echo still sick; exit 1)"]
    probe = {"exec": {"command": command}, "failureThreshold": 1, **QUICK}
    script = f"trap 'rm -f {file}; exit 0' TERM; while :; do sleep 0.05; done"
    await harness.pod("a", "sh", "-c", script, livenessProbe=probe, spec={"restartPolicy": "OnFailure"})
    pod = await harness.wait_for(
        "a", lambda pod: (pod["status"].get("containerStatuses") or [{}])[0].get("restartCount")
    )

    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 0
    assert "Liveness probe failed: still sick\n" in await events(harness, "Unhealthy")
    assert "Container main failed liveness probe, will be restarted" in await events(harness, "Killing")


async def test_a_closed_port_fails_the_startup_probe(harness: LocalHarness) -> None:
    probe = {"tcpSocket": {"port": 8766}, **QUICK}
    await harness.pod("a", "sh", "-c", FOREVER, startupProbe=probe)
    pod = await harness.wait_for("a", lambda pod: phase(pod) == "Running")
    address = pod["status"]["podIP"]

    assert (await events(harness, "Unhealthy"))[0] == (
        f"Startup probe failed: dial tcp {address}:8766: connect: connection refused"
    )


async def test_a_sidecar_is_there_before_and_after_the_main_container(
    harness: LocalHarness, tmp_path: Path
) -> None:
    up, over = tmp_path / "up", tmp_path / "over"
    side = {
        "name": "side",
        "image": "none",
        "command": [
            "sh",
            "-c",
            f"touch {up}; trap 'touch {over}; exit 7' TERM; while :; do sleep 0.05; done",
        ],
        "restartPolicy": "Always",
        "startupProbe": {"exec": {"command": ["test", "-e", str(up)]}, **QUICK},
    }
    await harness.pod("a", "sh", "-c", f"test -e {up} && test ! -e {over}", spec={"initContainers": [side]})
    pod = await harness.wait_for_end("a")
    (status,) = pod["status"]["initContainerStatuses"]

    assert (phase(pod), ended(pod)["exitCode"], over.exists()) == ("Succeeded", 0, True)
    assert (status["state"]["terminated"]["exitCode"], status["restartCount"]) == (7, 0)


async def test_hooks_run_in_the_container(harness: LocalHarness, tmp_path: Path) -> None:
    came, left = tmp_path / "came", tmp_path / "left"
    hooks = {
        "postStart": {"exec": {"command": ["sh", "-c", f"echo $WHO > {came}"]}},
        "preStop": {"exec": {"command": ["sh", "-c", f"echo $WHO > {left}"]}},
    }
    env = [{"name": "WHO", "value": "me"}]
    script = f"trap 'test -e {left}; echo $? >> {left}; exit 0' TERM; while :; do sleep 0.05; done"
    await harness.pod("a", "sh", "-c", script, env=env, lifecycle=hooks)
    await harness.wait_for("a", lambda pod: phase(pod) == "Running")
    assert came.read_text() == "me\n"
    await harness.client.delete(PODS, "default", "a")
    await harness.wait_for_deletion("a")

    assert left.read_text() == "me\n0\n"


async def test_a_post_start_hook_that_fails_has_its_container_killed(harness: LocalHarness) -> None:
    await harness.pod("a", "sh", "-c", FOREVER, lifecycle={"postStart": {"exec": {"command": ["false"]}}})
    pod = await harness.wait_for_end("a")

    assert ended(pod)["exitCode"] == 0
    assert await events(harness, "FailedPostStartHook") == ["PostStartHook failed"]
    assert await events(harness, "Killing") == ["FailedPostStartHook"]


@pytest.mark.parametrize(
    ("script", "container", "words"),
    [
        pytest.param("echo said > /dev/termination-log", {}, "said\n", id="at the usual path"),
        pytest.param(
            "echo said > $WORDS",
            {"terminationMessagePath": "/nowhere/w", "env": [{"name": "WORDS", "value": "/nowhere/w"}]},
            "said\n",
            id="at a path of its own",
        ),
        pytest.param(
            "echo logged; exit 3",
            {"terminationMessagePolicy": "FallbackToLogsOnError"},
            "logged\n",
            id="from the log of a failure",
        ),
        pytest.param("echo logged; exit 3", {}, None, id="not from the log unless it is asked for"),
    ],
)
async def test_termination_messages(
    harness: LocalHarness, script: str, container: dict[str, Any], words: str | None
) -> None:
    await harness.pod("a", "sh", "-c", script, **container)

    assert ended(await harness.wait_for_end("a")).get("message") == words


async def test_a_readiness_gate_of_another_client(harness: LocalHarness) -> None:
    readiness_gate = {"conditionType": "example.com/connected"}
    await harness.pod("a", "sh", "-c", FOREVER, spec={"readinessGates": [readiness_gate]})
    pod = await harness.wait_for("a", lambda pod: conditions(pod).get("ContainersReady") == "True")
    assert conditions(pod)["Ready"] == "False"
    condition = {"type": "example.com/connected", "status": "True"}
    body = orjson.dumps({"status": {"conditions": [condition]}})
    merge = "application/strategic-merge-patch+json"
    await harness.client.patch(PODS, "default", "a", body, content_type=merge, subresource="status")
    pod = await harness.wait_for("a", lambda pod: conditions(pod)["Ready"] == "True")

    assert conditions(pod)["example.com/connected"] == "True"
    assert "reason" not in next(
        condition for condition in pod["status"]["conditions"] if condition["type"] == "Ready"
    )


async def test_a_grpc_probe_is_rejected_by_its_field(harness: LocalHarness) -> None:
    await harness.pod("a", "true", livenessProbe={"grpc": {"port": 1}})
    pod = await harness.wait_for("a", lambda pod: "Refused" in str(pod.get("status")))

    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["message"] == (
        "spec.containers[0].livenessProbe.grpc: local mode probes by exec, httpGet and tcpSocket"
    )
