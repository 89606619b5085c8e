"""From a tool in one pod to a process in another: streams, exit statuses, and termination."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import pytest

from api.meta import PODS
from rallypoint.local.cluster import LocalCluster, local_cluster
from rallypoint.local.node.remote.shim import SOCKET
from rallypoint.local.node.sandbox.selection import IsolationMode

pytestmark = pytest.mark.looptime(False)

TIMEOUT_SECONDS = 60.0
Left: TypeAlias = Callable[[], list[str]]
WAIT = ["sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 1000 & wait; done"]


class Bench:
    """A job's launcher, in which commands are run as a person does, and workers."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    async def pod(self, name: str, *command: str, job: str = "pi", **spec: Any) -> None:
        labels = {
            "training.kubeflow.org/operator-name": "mpi-operator",
            "training.kubeflow.org/job-name": job,
        }
        container = {"name": "main", "image": "none", "command": list(command) or WAIT}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "restartPolicy": "Never",
                "hostname": name,
                "subdomain": job,
                "containers": [container],
                **spec,
            },
        }
        await self.cluster.client.create(PODS, "default", orjson.dumps(manifest))

    async def until(self, phase: str, *names: str) -> None:
        for name in names:
            await until(partial(self._is, name, phase))

    async def _is(self, name: str, phase: str) -> bool:
        found = orjson.loads(await self.cluster.client.get(PODS, "default", name))
        return bool(found["status"].get("phase") == phase)

    async def begin(self, script: str) -> asyncio.subprocess.Process:
        """Run a script with the launcher's PATH; where that is needed to reach the node, nothing else is."""
        launcher = orjson.loads(await self.cluster.client.get(PODS, "default", "pi-launcher"))
        folder = self.cluster.node.isolation.folder / ".remote" / launcher["metadata"]["uid"]
        env = {"PATH": f"{folder / 'bin'}:{folder}:{os.environ['PATH']}"}
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", script, env=env, stdin=pipe, stdout=pipe, stderr=pipe
        )

    async def says(self, script: str, given: bytes = b"") -> tuple[int, str, str]:
        process = await self.begin(script)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            out, err = await process.communicate(given)
        return process.returncode or 0, out.decode(), err.decode()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.02)


async def there(left: Left, *lines: str) -> bool:
    return set(lines) <= set(left())


async def gone(left: Left, *lines: str) -> bool:
    return not set(lines) & set(left())


@pytest.fixture
async def bench(tmp_path: Path, isolation: IsolationMode, left: Left) -> AsyncIterator[Bench]:
    async with local_cluster([], tmp_path / ("deep" * 40), isolation=isolation) as cluster:
        bench = Bench(cluster)
        for name in ("pi-launcher", "pi-worker-0"):
            await bench.pod(name)
        await bench.until("Running", "pi-launcher", "pi-worker-0")
        yield bench


async def test_a_command_runs_in_the_other_pod(bench: Bench) -> None:
    """With that pod's environment, the caller's streams, and its exit status."""
    script = "ssh -x me@pi-worker-0.pi 'read a; echo $a $HOSTNAME; echo oops >&2; exit 7'"

    assert await bench.says(script, b"hello\n") == (7, "hello pi-worker-0\n", "oops\n")


async def test_large_streams_pass_in_both_directions(bench: Bench) -> None:
    much = os.urandom(1 << 20).hex().encode()

    assert await bench.says("ssh pi-worker-0.pi cat", much) == (0, much.decode(), "")


async def test_kubectl_exec_runs_a_command(bench: Bench) -> None:
    assert await bench.says("kubectl exec -i pi-worker-0 -- sh -c 'cat; exit 3'", b"in") == (
        3,
        "in",
        "command terminated with exit code 3\n",
    )
    assert (await bench.says("kubectl exec pi-worker-0 -- cat", b"in"))[1] == ""


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        pytest.param(
            "ssh x",
            255,
            "ssh: Could not resolve hostname x: Name or service not known\n",
            id="an unknown host",
        ),
        pytest.param(
            "ssh 'pi-worker-1.pi' true",
            255,
            "ssh: Could not resolve hostname pi-worker-1.pi: Name or service not known\n",
            id="a missing worker",
        ),
        pytest.param("ssh", 255, "usage: ssh [options] [user@]host [command]\n", id="no host"),
        pytest.param(
            "kubectl exec x -- true",
            1,
            'Error from server (NotFound): pods "x" not found\n',
            id="an unknown pod",
        ),
        pytest.param(
            "kubectl exec pi-worker-0 -- nosuch",
            1,
            "error: Internal error occurred: error executing command in container: "
            'exec: "nosuch": executable file not found in $PATH\n',
            id="an unknown program",
        ),
    ],
)
async def test_errors_have_the_words_of_the_real_tools(
    bench: Bench, script: str, status: int, said: str
) -> None:
    assert await bench.says(script) == (status, "", said)


async def test_words_that_are_not_utf_8_reach_the_command(bench: Bench) -> None:
    script = (
        "ssh pi-worker-0 \"printf 'caf$(printf '\\351')' | od -An -tx1\"; ssh pi-worker-0 'echo still here'"
    )

    assert await bench.says(script) == (0, " 63 61 66 e9\nstill here\n", "")


async def test_a_request_that_makes_no_sense_does_not_end_the_node(bench: Bench) -> None:
    """A program of a pod can write to the socket itself."""
    send = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "socket.send_fds(s, [(7).to_bytes(4, 'big') + b'a\\0bogus'], [0, 1, 2]); s.recv(1)"
    )
    folder = next(bench.cluster.node.isolation.folder.rglob(SOCKET)).parent
    assert await bench.says(f'cd {folder}; exec {sys.executable} -c "{send}" {SOCKET}') == (0, "", "")

    assert await bench.says("ssh pi-worker-0 'echo still here'") == (0, "still here\n", "")


async def test_pods_of_other_jobs_are_not_reachable(bench: Bench) -> None:
    await bench.pod("e-worker-0", job="e")
    await bench.until("Running", "e-worker-0")
    status, _, said = await bench.says("ssh e-worker-0.e true")

    assert (status, "only pods of their own job" in said) == (255, True)


async def test_a_command_waits_for_a_late_worker(bench: Bench) -> None:
    late = asyncio.create_task(bench.says("ssh -o ConnectionAttempts=50 pi-worker-1.pi 'echo $HOSTNAME'"))
    await asyncio.sleep(0)
    await bench.pod("pi-worker-1")

    assert await late == (0, "pi-worker-1\n", "")


async def test_a_finished_pod_rejects_commands(bench: Bench) -> None:
    await bench.pod("pi-worker-1", "true")
    await bench.until("Succeeded", "pi-worker-1")

    assert await bench.says("ssh pi-worker-1.pi true") == (
        255,
        "",
        "ssh: connect to host pi-worker-1.pi port 22: Connection refused\n",
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_the_command_ends_with_its_tool(bench: Bench, left: Left, number: signal.Signals) -> None:
    """Politely at first: a hang-up can be caught, and what ignores it is killed."""
    process = await bench.begin("exec ssh pi-worker-0.pi \"trap '' HUP; echo on; sleep 997; sleep 997\"")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"on\n"
    process.send_signal(number)
    await process.wait()
    await until(lambda: gone(left, "sleep 997"))

    assert await bench.says("ssh pi-worker-0.pi true") == (0, "", "")


async def test_background_processes_of_a_command_end_with_the_container(bench: Bench, left: Left) -> None:
    """As Open MPI's daemons do, which detach themselves."""
    begun = "setsid sleep 998 >/dev/null 2>&1 & sleep 999 >/dev/null 2>&1 & echo on"

    assert await bench.says(f"ssh pi-worker-0.pi '{begun}'") == (0, "on\n", "")
    await until(lambda: there(left, "sleep 998", "sleep 999"))
    await bench.cluster.client.delete(PODS, "default", "pi-worker-0", grace_period_seconds=1)
    await until(lambda: gone(left, "sleep 998", "sleep 999"))
