"""Jobs of an ordinary user and of root, in both isolations: what real training does with names, ports and paths."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.testing.http_trace import Step
from rallypoint.testing.rootfs import build
from rallypoint.testing.up import up
from tests.support.port_forward import forwarding, free_port
from tests.support.unprivileged_user import ROOT, TEST_UIDS, change_owner, command_as, uid_label

RUN = "import sys; from rallypoint.cli import main; sys.exit(main())"

RENDEZVOUS = """
import os, socket, time
port, rank, size = int(os.environ["MASTER_PORT"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    with socket.create_server(("0.0.0.0", port)) as server:
        peers = [server.accept()[0] for _ in range(size - 1)]
        print("together", sum(int(peer.recv(8)) for peer in peers), "uid", os.geteuid())
        for peer in peers:
            peer.sendall(b"go")
else:
    while True:
        try:
            master = socket.create_connection((os.environ["MASTER_ADDR"], port))
            break
        except OSError:
            time.sleep(0.05)
    master.sendall(str(rank).encode())
    assert master.recv(2) == b"go"
"""
"""What torch's store does: the first process listens on all addresses, the others look for it by its name."""


def job(name: str, script: str, workers: int = 2, **spec: Any) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "none", "command": ["python", "-c", script], **spec}
    template = {"spec": {"containers": [container]}}
    replicas = {"Master": {"template": template}, "Worker": {"replicas": workers, "template": template}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def run(
    folder: Path, uid: int, isolation: IsolationMode, *documents: dict[str, Any], flags: Sequence[str] = ()
) -> tuple[int, str]:
    """Exit status, and everything that was printed."""
    home = folder / "home"
    home.mkdir()
    file = home / "job.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    done = subprocess.run(
        [
            *command_as(home, RUN, uid),
            "run",
            str(file),
            "--isolation",
            isolation,
            "--run-dir",
            str(home / "run"),
            "--timeout=60",
            *flags,
        ],
        cwd=ROOT,
        env={**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("uid", TEST_UIDS, ids=uid_label)
def test_two_concurrent_jobs_can_use_the_same_port(
    tmp_path: Path, left: Callable[[], list[str]], uid: int, isolation: IsolationMode
) -> None:
    status, out = run(tmp_path, uid, isolation, job("one", RENDEZVOUS), job("two", RENDEZVOUS, workers=3))

    assert status == 0, out
    assert f"[one/master-0] together 3 uid {uid}\n" in out
    assert f"[two/master-0] together 6 uid {uid}\n" in out
    assert left() == []


ASK = """
import os, ssl, urllib.request
place = "/var/run/secrets/kubernetes.io/serviceaccount/"
token, context = open(place + "token").read(), ssl.create_default_context(cafile=place + "ca.crt")
asked = urllib.request.Request("https://kubernetes.default.svc/version", headers={"Authorization": "Bearer " + token})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
print("server answers", opener.open(asked).status)
open("/claimed/file", "w").write("kept")
"""
READ = "until cat /claimed/file 2>/dev/null; do sleep 0.1; done; echo; cat /etc/release; echo x > /tmp/x; mkdir -m 000 /tmp/closed"


@pytest.mark.parametrize("uid", TEST_UIDS, ids=uid_label)
def test_a_claim_an_image_and_the_api_server(
    tmp_path: Path, left: Callable[[], list[str]], uid: int, isolations: list[IsolationMode]
) -> None:
    """One job writes into a claim, the other reads it, in an image."""
    if "namespaces" not in isolations:
        pytest.skip("this machine forbids namespaces; test_choice asserts what happens then")
    claim_spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c"},
        "spec": claim_spec,
    }
    jobs = [
        job("one", ASK, workers=0, volumeMounts=[{"name": "v", "mountPath": "/claimed"}]),
        job(
            "two",
            "",
            workers=0,
            image="small",
            command=["sh", "-c", READ],
            volumeMounts=[{"name": "v", "mountPath": "/claimed"}],
        ),
    ]
    for job_manifest in jobs:
        pod = job_manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
        pod["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
        job_manifest["spec"]["pytorchReplicaSpecs"].pop("Worker")
    image = build(tmp_path / "small")
    change_owner(image, uid)
    status, out = run(tmp_path, uid, "namespaces", claim, *jobs, flags=[f"--image=small={image}"])

    assert status == 0, out
    assert "[one/master-0] server answers 200\n" in out
    assert "[two/master-0] kept\n" in out
    assert "[two/master-0] small\n" in out
    assert left() == []
    assert sorted(path.name for path in (tmp_path / "home" / "run").iterdir()) == ["controller.log", "logs"]


@pytest.mark.looptime(False)
async def test_a_port_of_a_pod_is_forwarded(tmp_path: Path, isolation: IsolationMode) -> None:
    """The sandbox daemon of an ordinary user enters the pod's network in its own user namespace."""
    home = tmp_path / "home"
    home.mkdir()
    port = free_port()
    serve = ["python", "-m", "http.server", "--bind", "localhost", str(port)]
    unbuffered = [{"name": "PYTHONUNBUFFERED", "value": "1"}]
    container = {"name": "main", "image": "none", "command": serve, "env": unbuffered}
    manifest = {"metadata": {"name": "web"}, "spec": {"containers": [container]}}
    command = [*command_as(home, RUN, TEST_UIDS[-1]), "up", "--isolation", isolation]
    async with up(folder=home, command=command) as cluster:
        pods = "/api/v1/namespaces/default/pods"
        await cluster.client.send(Step("POST", pods, manifest))
        await cluster.until(f"{pods}/web/log", lambda log: "Serving" in str(log))
        async with (
            forwarding(cluster.kubeconfig, "web", port) as forward,
            aiohttp.ClientSession() as session,
            session.get(forward.url) as response,
        ):
            assert response.status == 200
