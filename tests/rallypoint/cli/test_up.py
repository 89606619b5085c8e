"""``rallypoint up`` as a process: authentication, persistent data, and files that it does not overwrite."""

import argparse
import asyncio
import os
import re
import signal
import socket
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import psutil
import pytest
import yaml

from controller.telemetry import build
from rallypoint.cli import main
from rallypoint.cli import up as commands
from rallypoint.cli.ui.server import PageServer
from rallypoint.testing.http_trace import RawClient, Step
from rallypoint.testing.up import COMMAND, TIMEOUT_SECONDS, has, up
from tests.support.harness import start_harness

pytestmark = pytest.mark.looptime(False)

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PODS = "/api/v1/namespaces/default/pods"


def job(script: str, **replica: Any) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "none", "command": ["sh", "-c", script]}
    master = {"replicas": 1, "template": {"spec": {"containers": [container]}}, **replica}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "job"},
        "spec": {"pytorchReplicaSpecs": {"Master": master}},
    }


def is_running(pod: Any) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


async def test_the_written_kubeconfig_allows_running_a_job(tmp_path: Path) -> None:
    async with up("--kubeconfig-out", "here.yaml", folder=tmp_path) as cluster:
        await cluster.client.send(Step("POST", JOBS, job("echo done")))
        await cluster.until(f"{JOBS}/job", has("Succeeded"))
        log = await cluster.client.send(Step("GET", f"{PODS}/job-master-0/log"))
        status = await cluster.stop()

    assert cluster.kubeconfig == tmp_path / "here.yaml"
    assert cluster.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert cluster.client.url.startswith("https://127.0.0.1:")
    assert log.text == "done\n"
    assert status == 0


async def test_the_page_is_served_by_default(tmp_path: Path) -> None:
    async with up("--ui-port", "0", folder=tmp_path) as cluster, aiohttp.ClientSession() as session:
        address, _, token = cluster.page.partition("#token=")
        headers = {"Authorization": f"Bearer {token}"}
        async with session.get(f"{address}api/cluster", headers=headers) as answer:
            about = await answer.json()

    assert about["server"] == cluster.client.url
    assert about["history"]


async def test_without_a_page(tmp_path: Path) -> None:
    async with up("--no-ui", folder=tmp_path) as cluster:
        assert cluster.page == ""


@asynccontextmanager
async def page_of(tmp_path: Path) -> AsyncGenerator[str]:
    """Serve the page of a cluster without a node."""
    async with start_harness() as harness:
        node = SimpleNamespace(logs=SimpleNamespace(folder=tmp_path / "logs"), gpus_of_running_pods=dict)
        local: Any = SimpleNamespace(node=node, connection=harness.connection, server=harness.server.url)
        async with commands._page(argparse.Namespace(ui=True, ui_port=0), local) as url:
            yield url


async def test_a_defect_of_the_page_does_not_end_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refuse(server: PageServer) -> None:
        await asyncio.sleep(0.2)
        raise OverflowError("a defect")

    monkeypatch.setattr(PageServer, "follow_jobs", refuse)
    text = ""
    async with page_of(tmp_path) as url, asyncio.timeout(20):
        while "the web UI stopped" not in text:
            await asyncio.sleep(0.05)
            text += capsys.readouterr().err

    assert url.startswith("http://127.0.0.1:")
    assert "the cluster keeps running" in text


async def test_the_page_ends_with_its_block(tmp_path: Path) -> None:
    async with page_of(tmp_path) as url, aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(url)


async def test_a_taken_port_of_the_page(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = await asyncio.create_subprocess_exec(*COMMAND, "--ui-port", port, cwd=tmp_path, stderr=PIPE)
        _, errors = await process.communicate()

    assert process.returncode == 1
    assert "address already in use" in errors.decode().lower()


async def test_a_shell_understands_the_line_with_the_kubeconfig(tmp_path: Path) -> None:
    folder = tmp_path / "my $HOME isn't here"
    folder.mkdir()
    async with up(folder=folder) as cluster:
        assert cluster.kubeconfig.is_relative_to(folder)


async def test_the_log_starts_with_the_version_and_signals_dump_stacks_and_change_its_level(
    tmp_path: Path,
) -> None:
    async with up(folder=tmp_path) as cluster:
        log = cluster.kubeconfig.with_name("controller.log")
        for number, expected in (
            (signal.SIGUSR2, ("log level changed", "to=debug")),
            (signal.SIGUSR1, ("Current thread", "task stack")),
        ):
            cluster.process.send_signal(number)
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not all(text in (found := log.read_text()) for text in expected):
                    assert cluster.process.returncode is None, found
                    await asyncio.sleep(0.05)
        status = await cluster.stop()

    assert "controller starting" in found.splitlines()[0]
    assert f"version={build.operator_version()}" in found
    assert status == 0


async def test_a_wrong_token_is_rejected(tmp_path: Path) -> None:
    async with up(folder=tmp_path) as cluster:
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        config["users"][0]["user"]["token"] = "guessed"
        async with RawClient.from_kubeconfig(config) as stranger:
            reply = await stranger.send(Step("GET", PODS))

    assert reply.code == 401


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
async def test_jobs_continue_after_a_restart(tmp_path: Path, number: signal.Signals) -> None:
    """As after a reboot of the node: the container is lost and starts again, and the job ends after the restart."""
    marker = tmp_path / "again"
    script = f"if [ -e {marker} ]; then exit 0; fi; touch {marker}; echo begun; exec sleep 1000"
    data = tmp_path / "data"
    async with up("--data", str(data), folder=tmp_path) as cluster:
        await cluster.client.send(Step("POST", JOBS, job(script, restartPolicy="OnFailure")))
        before = await cluster.until(f"{PODS}/job-master-0", is_running)
        await cluster.until(f"{PODS}/job-master-0/log", lambda log: log == "begun\n")
        await cluster.stop(number)
    async with up("--data", str(data), folder=tmp_path) as cluster:
        await cluster.until(f"{JOBS}/job", has("Succeeded"))
        after = (await cluster.client.send(Step("GET", f"{PODS}/job-master-0"))).body
        first = await cluster.client.send(Step("GET", f"{PODS}/job-master-0/log?previous=true"))
        await cluster.stop()
    (container,) = after["status"]["containerStatuses"]

    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert container["restartCount"] == 1
    assert container["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert first.text == "begun\n"
    assert not [process for process in psutil.process_iter() if str(marker) in " ".join(_command(process))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


async def test_logs_of_finished_pods_survive_a_restart(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    async with up("--data", data, folder=tmp_path) as cluster:
        await cluster.client.send(Step("POST", JOBS, job("echo done")))
        await cluster.until(f"{JOBS}/job", has("Succeeded"))
        await cluster.stop()
    async with up("--data", data, folder=tmp_path) as cluster:
        log = await cluster.client.send(Step("GET", f"{PODS}/job-master-0/log?timestamps=true"))

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\S+Z done\n", log.text)


def test_a_foreign_kubeconfig_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    theirs = tmp_path / "config"
    theirs.write_text("clusters: [{name: production}]")

    assert main(["up", "--kubeconfig-out", str(theirs)]) == 1
    assert "was not written by this command" in capsys.readouterr().err
    assert theirs.read_text() == "clusters: [{name: production}]"


async def test_a_data_folder_has_a_single_process(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    async with up("--data", data, folder=tmp_path):
        second = await asyncio.create_subprocess_exec(
            *COMMAND, "--data", data, cwd=tmp_path, stderr=PIPE, env=dict(os.environ)
        )
        _, errors = await second.communicate()

    assert second.returncode == 1
    assert "another process uses it" in errors.decode()


async def test_a_taken_port(tmp_path: Path) -> None:
    async with up(folder=tmp_path) as cluster:
        port = cluster.client.url.rpartition(":")[2]
        second = await asyncio.create_subprocess_exec(*COMMAND, "--port", port, cwd=tmp_path, stderr=PIPE)
        _, errors = await second.communicate()

    assert second.returncode == 1
    assert "address already in use" in errors.decode().lower()


@pytest.mark.parametrize("wrong", ["65536", "-1", "x"])
def test_an_invalid_port(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["up", f"--port={wrong}"])

    assert ended.value.code == 2
    assert f"{wrong}: must be from 0 to 65535" in capsys.readouterr().err
