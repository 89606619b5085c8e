"""A stopped rank on real kubelets: its hang is found in the logs, named by its stack, and the job restarts."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rallypoint.testing.cluster.cluster import Cluster
from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.workloads import Workloads, job
from rallypoint.testing.manifests import build
from rallypoint.testing.service import MANIFESTS, OPERATOR_NAMESPACE

PROGRAM = """
import faulthandler, os, signal, socket, time
faulthandler.register(signal.SIGUSR1)
rank, world, attempt = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "RALLYPOINT_RESTART_ATTEMPT"))

def connect():
    if rank == 0:
        server = socket.create_server(("", int(os.environ["MASTER_PORT"])))
        return [server.accept()[0] for _ in range(world - 1)]
    while True:
        try:
            return [socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))]
        except OSError:
            time.sleep(0.2)

def barrier():
    for link in links:
        link.sendall(b"x")
    for link in links:
        link.recv(1)

links = connect()
for step in range(1000 if attempt == 0 else 5):
    print("step", step, flush=True)
    if (rank, attempt, step) == (2, 0, 5):
        os.kill(os.getpid(), signal.SIGSTOP)
    barrier()
    time.sleep(0.2)
"""
"""Ranks that wait for each other in each step. Rank 2 of the first attempt stops."""
COMMAND = ["sh", "-c", f"python -u -c '{PROGRAM.replace(chr(39), chr(34))}' & wait $!"]
"""The first process of a container ignores SIGSTOP, so the program is another one."""


@pytest.fixture
def rights(cluster: Cluster) -> Iterator[None]:
    """What the components ``progress`` and ``progress-exec`` let the operator do besides."""
    documents: list[dict[str, Any]] = [
        *build(MANIFESTS / "components" / "progress"),
        *build(MANIFESTS / "components" / "progress-exec"),
    ]
    documents = json.loads(json.dumps(documents))
    for document in documents:
        for subject in document.get("subjects", ()):
            subject["namespace"] = OPERATOR_NAMESPACE
    cluster.plane.apply(*documents)
    yield
    for document in documents:
        cluster.kubectl("delete", document["kind"], document["metadata"]["name"])


def test_a_stopped_rank_is_named_with_its_stack_and_the_job_restarts(
    workloads: Workloads, rights: None
) -> None:
    role = {"image": BASE, "command": COMMAND, "pod": {"terminationGracePeriodSeconds": 1}}
    policy = {
        "progressDeadlineSeconds": 15,
        "progress": {"stackSignal": "SIGUSR1"},
        "failurePolicy": {"rules": [{"action": "RestartJob", "onReasons": ["NoProgress"]}]},
    }
    workloads.apply(
        job("PyTorchJob", "train", {"Master": role, "Worker": {**role, "replicas": 3}}, runPolicy=policy)
    )

    workloads.wait_for("PyTorchJob", "train", "Succeeded")

    (attempt,) = workloads.get("PyTorchJob", "train")["status"]["attempts"]
    assert (attempt["pod"], attempt["reason"]) == ("train-worker-1", "NoProgress")
    assert attempt["node"].startswith("node-")
    stopped, waiting = attempt["stacks"][:2]
    assert stopped["pods"] == ["train-worker-1"]
    assert ", stopped: python" in stopped["text"]
    assert " in barrier" in waiting["text"]
