"""A session with kubectl on the embedded API server and on a real one: the same output, the same exit statuses.

What a real one cannot show without a kubelet (logs, commands in pods) runs on a local cluster, compared with the output of kubectl.
"""

import asyncio
import hashlib
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from controller.crds import all_crds
from controller.kube.client import Client
from controller.kube.connect import Connection
from controller.kube.tls import client_context
from rallypoint.local.apiserver import ApiServer
from rallypoint.local.apiserver.serving.certificates import identity
from rallypoint.local.batch.jobs import Jobs
from rallypoint.local.cluster import ServerConfig, local_cluster
from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.testing.controlplane import ControlPlane, binaries
from tests.support.port_forward import free_port

SCRIPT = yaml.safe_load(Path(__file__).with_name("kubectl.yaml").read_text())

NORMAL = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w+ \d{4} \d\d:\d\d:\d\d \+\d{4}"), "<time>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"(?m)\b(\d+[smhd])+(?= |$|\))"), "<age>"),
    (re.compile(r'(?i)(resource ?version: +)"?\d+"?'), r"\1<version>"),
    (re.compile(r"(?m)^ *serviceAccount(Name)?: default\n|^Service Account: .*\n"), ""),
    (re.compile(r"\(x\d+ over [^)]*\)"), "(several)"),
    (re.compile(r"\bonce-[a-z0-9]{5}\b"), "once-<name>"),
    (re.compile(r"(?m)^-+( +-+)*$"), "---"),
    (re.compile(r" {2,}"), "  "),
    (re.compile(r"(?m) +$"), ""),
)


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str


class Kubectl:
    """The real kubectl, for one cluster and one namespace."""

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path) -> None:
        self._program = str(binaries.ensure(["kubectl"])["kubectl"])
        self._namespace = namespace
        self._folder = folder
        # Names of its own for what it finds out about a server, so that nothing of another run is believed.
        home = kubeconfig.parent / f"{kubeconfig.stem}-home"
        self._env = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home), "TZ": "UTC"}

    async def start(
        self, command: str, stdin: int = asyncio.subprocess.DEVNULL
    ) -> asyncio.subprocess.Process:
        filled = command.replace("FILES", str(self._folder)).replace("NAMESPACE", self._namespace)
        words = filled.split(" ") if '"' in filled else shlex.split(filled)
        return await asyncio.create_subprocess_exec(
            *(self._program, "--namespace", self._namespace, *words),
            env=self._env,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def __call__(self, command: str, given: bytes | None = None) -> Said:
        stdin = asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE
        process = await self.start(command, stdin)
        out, err = await process.communicate(given)
        assert process.returncode is not None
        return Said(process.returncode, out.decode(), err.decode())


@pytest.fixture
def folder(tmp_path: Path, namespace: str) -> Path:
    for name, manifest in SCRIPT["manifests"].items():
        (tmp_path / name).write_text(yaml.safe_dump(manifest).replace("NAMESPACE", namespace))
    return tmp_path


@pytest.fixture
async def embedded(tmp_path: Path, folder: Path, namespace: str) -> AsyncIterator[Kubectl]:
    server = ApiServer(crds=all_crds(), auto_namespaces=True)
    shown = identity(datetime.now(UTC))
    await server.start(tls=shown.tls, authority=shown.authority)
    path = tmp_path / "embedded.yaml"
    path.write_text(yaml.safe_dump(server.kubeconfig()))
    trusting = client_context(cadata=shown.authority.decode())
    connection = Connection(server=server.url, token=lambda: server.token, tls=lambda: trusting)
    async with Client(connection) as client:
        jobs = asyncio.create_task(Jobs(client).run())
        yield Kubectl(path, namespace, folder)
        jobs.cancel()
        await asyncio.gather(jobs, return_exceptions=True)
    await server.stop()


@pytest.fixture
def real(control_plane: ControlPlane, crds: list[Path], folder: Path, namespace: str) -> Kubectl:
    return Kubectl(control_plane.kubeconfig(), namespace, folder)


@pytest.mark.shipped
async def test_a_session_has_the_same_output_on_both_servers(embedded: Kubectl, real: Kubectl) -> None:
    found: list[str] = []
    for step in SCRIPT["session"]:
        ours, theirs = await asyncio.gather(embedded(step["run"]), real(step["run"]))
        wanted = 1 if step.get("fails") else 0
        if theirs.status != wanted:
            found.append(f"$ kubectl {step['run']}\n  a real one ends with {theirs.status}: {theirs.err}")
        if ours.status != theirs.status:
            found.append(f"$ kubectl {step['run']}\n  exit status {ours.status}: {ours.err}")
        elif not step.get("silent"):
            found += _differences(step, ours, theirs)

    assert not found, "\n".join(found)


def _differences(step: Mapping[str, Any], ours: Said, theirs: Said) -> list[str]:
    output: list[str] = []
    for name in ("out", "err"):
        our, their = (_normal(getattr(said, name), step) for said in (ours, theirs))
        if our != their:
            lines = [f"  - {line}" for line in their if line not in our]
            lines += [f"  + {line}" for line in our if line not in their]
            output.append("\n".join([f"$ kubectl {step['run']}", *(lines or ["  in another order"])]))
    return output


def _normal(text: str, step: Mapping[str, Any]) -> list[str]:
    for pattern, name in NORMAL:
        text = pattern.sub(name, text)
    lines = text.splitlines()
    return sorted(lines) if step.get("lines") == "sorted" else lines


@pytest.fixture
async def kubectl(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Kubectl]:
    """kubectl on a local cluster whose node runs pods; the parameter is the isolation."""
    isolation: IsolationMode = getattr(request, "param", "loopback")
    async with local_cluster(
        all_crds(), tmp_path / "site", isolation=isolation, server_config=ServerConfig(tls=True)
    ) as made:
        path = tmp_path / "site.yaml"
        path.write_text(yaml.safe_dump(dict(made.kubeconfig)))
        yield Kubectl(path, "default", tmp_path)


async def until(kubectl: Kubectl, command: str, holds: Callable[[str], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds((await kubectl(command)).out):  # noqa: ASYNC110 - it happens elsewhere
            await asyncio.sleep(0.1)


def run(name: str, script: str, *, restart: str = "Never") -> str:
    return f"run {name} --image=none --restart={restart} --labels=a={name} --command -- sh -c '{script}'"


async def test_logs_are_printed(kubectl: Kubectl) -> None:
    await kubectl(run("talks", "echo one; echo two; echo three"))
    await until(kubectl, "get pod talks -o jsonpath={.status.phase}", lambda phase: phase == "Succeeded")

    assert await kubectl("logs talks") == Said(0, "one\ntwo\nthree\n", "")
    assert await kubectl("logs talks --tail=1") == Said(0, "three\n", "")
    assert await kubectl("logs -f talks") == Said(0, "one\ntwo\nthree\n", "")
    assert await kubectl("logs -l a=talks --prefix --tail=1") == Said(0, "[pod/talks/talks] three\n", "")
    assert (await kubectl("logs talks --timestamps --tail=1")).out.endswith("Z three\n")
    previous = await kubectl("logs talks --previous")
    assert (previous.status, previous.out) == (1, "")
    assert 'previous terminated container "talks" in pod "talks" not found' in previous.err
    assert (await kubectl("logs missing")).status == 1


async def test_logs_of_the_previous_container_are_printed(kubectl: Kubectl, tmp_path: Path) -> None:
    script = f"if [ -e {tmp_path}/again ]; then echo second; exec sleep 1000; fi; touch {tmp_path}/again; echo first; exit 1"
    await kubectl(run("retries", script, restart="OnFailure"))
    await until(kubectl, "logs retries", lambda log: log == "second\n")

    assert await kubectl("logs retries --previous") == Said(0, "first\n", "")


async def test_exec_runs_commands_in_a_pod(kubectl: Kubectl) -> None:
    await kubectl(run("sleeps", "exec sleep 1000"))
    await kubectl("wait --for=condition=Ready pod/sleeps --timeout=30s")

    assert await kubectl("exec sleeps -- echo hello") == Said(0, "hello\n", "")
    assert await kubectl("exec sleeps -- sh -c 'echo out; echo err >&2; exit 7'") == Said(
        7, "out\n", "err\ncommand terminated with exit code 7\n"
    )
    assert await kubectl("exec -i sleeps -- cat", b"given") == Said(0, "given", "")
    assert (await kubectl("exec sleeps -- no-such-program")).status == 1
    assert (await kubectl("exec missing -- true")).status == 1
    assert (await kubectl("exec sleeps -c other -- true")).status == 1


@asynccontextmanager
async def forwarding(
    kubectl: Kubectl, pod: str, *ports: int
) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[int]]]:
    """Forward free local ports; yield the process and these ports."""
    process = await kubectl.start(f"port-forward pod/{pod} {' '.join(f':{port}' for port in ports)}")
    assert process.stdout is not None
    found: dict[int, int] = {}
    async with asyncio.timeout(60):
        while len(found) < len(ports):
            line = (await process.stdout.readline()).decode()
            match = re.fullmatch(r"Forwarding from 127\.0\.0\.1:(\d+) -> (\d+)\n", line)
            assert match or line.startswith("Forwarding from [::1]"), (await process.communicate())[1]
            if match:
                found[int(match[2])] = int(match[1])
    yield process, [found[port] for port in ports]
    if process.returncode is None:
        process.terminate()
    await process.communicate()


DIGEST = """
import asyncio, hashlib, sys
async def serve(reader, writer):
    digest = hashlib.sha256()
    while data := await reader.read(65536):
        digest.update(data)
    writer.write(digest.digest() * 8192)
    writer.close()
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=100) as server:
        print("digest", flush=True)
        await server.serve_forever()
asyncio.run(main())
"""
"""Answers with 256 KiB after the end of what it gets."""


@pytest.mark.parametrize("kubectl", ["loopback", "auto"], indirect=True)
async def test_port_forward_reaches_programs_in_a_pod(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "digest.py").write_text(DIGEST)
    (tmp_path / "index.html").write_text("a dashboard")
    web, digest, nothing = free_port(), free_port(), free_port()
    server = f"{sys.executable} -m http.server --bind localhost --directory {tmp_path} {web}"
    await kubectl(
        run("serves", f"{sys.executable} {tmp_path}/digest.py {digest} & PYTHONUNBUFFERED=1 exec {server}")
    )
    await until(kubectl, "logs serves", lambda log: "Serving HTTP" in log and "digest" in log)
    async with forwarding(kubectl, "serves", web, digest) as (_, (local_web, local_digest)):

        async def send(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", local_digest)
            writer.write(data)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            return answer

        sent = [bytes([number]) * 1_000_000 for number in range(20)]
        answers = await asyncio.gather(*map(send, sent))
        assert answers == [hashlib.sha256(data).digest() * 8192 for data in sent]
        url = f"http://127.0.0.1:{local_web}/index.html"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert await response.text() == "a dashboard"

    async with forwarding(kubectl, "serves", nothing) as (process, (local,)):
        reader, writer = await asyncio.open_connection("127.0.0.1", local)
        assert await reader.read() == b""
        writer.close()
        assert process.stderr is not None
        error = (await process.stderr.readline()).decode()
        assert error.endswith(': connection refused: no program in the pod listens on this port"\n'), error
        assert await process.wait() == 1


async def test_port_forward_of_pods_that_do_not_run(kubectl: Kubectl) -> None:
    await kubectl(run("ends", "true"))
    await until(kubectl, "get pod ends -o jsonpath={.status.phase}", lambda phase: phase == "Succeeded")

    assert await kubectl("port-forward pod/ends :80") == Said(
        1, "", "error: unable to forward port because pod is not running. Current status=Succeeded\n"
    )
    assert await kubectl("port-forward pod/missing :80") == Said(
        1, "", 'Error from server (NotFound): pods "missing" not found\n'
    )


async def test_a_batch_job_runs_to_its_end(kubectl: Kubectl) -> None:
    """A batch Job on a local cluster with its job controller, followed with kubectl."""
    assert (await kubectl("create job once --image=none -- echo done")).status == 0
    assert (await kubectl("wait --for=condition=Complete job/once --timeout=60s")).status == 0
    assert await kubectl("logs job/once") == Said(0, "done\n", "")
    assert (await kubectl("get job once -o jsonpath={.status.succeeded}")).out == "1"
    assert (await kubectl("delete job once")).status == 0
    await until(kubectl, "get pods -o name", lambda names: names == "")
