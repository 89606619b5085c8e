"""The examples of the repository, each with its framework, in pods on two nodes; their output shows that they learned."""

import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from api.labels import SERVICES
from rallypoint.testing.cluster import images, roots
from rallypoint.testing.cluster.workloads import Workloads, example

SECONDS = 600.0
"""For the longest; three programs that import torch at once take a minute of two cores."""
REACHED = re.compile(r"^accuracy ([0-9.]+) on .*\(target ([0-9.]+)\)", re.MULTILINE)
RESUMED = "goes on from its snapshot after"


@pytest.mark.parametrize(
    ("manifest", "framework"),
    [
        pytest.param("pytorch/digits.yaml", "demo"),
        pytest.param("jax/digits.yaml", "jax"),
        pytest.param("xgboost/cancer.yaml", "xgboost"),
        pytest.param("tensorflow/mirrored.yaml", "tensorflow", marks=pytest.mark.full),
        pytest.param("tensorflow/parameter-server.yaml", "tensorflow", marks=pytest.mark.full),
        pytest.param("paddle/digits.yaml", "paddle", marks=pytest.mark.full),
    ],
)
def test_an_example_trains(workloads: Workloads, manifest: str, framework: str) -> None:
    install(framework)
    (document,) = example(manifest)
    workloads.apply(document)
    name = document["metadata"]["name"]

    workloads.wait_for(document["kind"], name, "Succeeded", seconds=SECONDS)

    reached, target = accuracy(workloads, name)
    assert reached >= target
    assert workloads.nodes(name) == {"node-1", "node-2"}


@pytest.mark.full
@pytest.mark.parametrize("mode", ["addressed", "per-job"])
@pytest.mark.parametrize(
    ("manifest", "framework"),
    [
        ("pytorch/digits.yaml", "demo"),
        ("jax/digits.yaml", "jax"),
        ("xgboost/cancer.yaml", "xgboost"),
        ("tensorflow/parameter-server.yaml", "tensorflow"),
        ("paddle/digits.yaml", "paddle"),
    ],
)
def test_an_example_trains_with_fewer_services(
    workloads: Workloads, manifest: str, framework: str, mode: str
) -> None:
    install(framework)
    (document,) = example(manifest)
    document["metadata"].setdefault("annotations", {})[SERVICES] = mode
    workloads.apply(document)
    name = document["metadata"]["name"]

    workloads.wait_for(document["kind"], name, "Succeeded", seconds=SECONDS)

    reached, target = accuracy(workloads, name)
    assert reached >= target


@pytest.mark.full
def test_elastic_training_continues_when_a_worker_is_deleted(workloads: Workloads, volume: str) -> None:
    """From its snapshot, in a volume that both nodes have."""
    install("demo")
    claim, document = example("pytorch/elastic.yaml")
    claim["spec"]["volumeName"] = volume
    workloads.apply(claim)
    workloads.apply(document)
    workloads.wait("its third epoch", lambda: "epoch 3/" in logs(workloads, "elastic"), seconds=SECONDS)
    before = uids(workloads, "elastic")
    workloads.kubectl("delete", "pod", "elastic-worker-1")

    workloads.wait_for("PyTorchJob", "elastic", "Succeeded", seconds=SECONDS)

    assert RESUMED in logs(workloads, "elastic")
    after = uids(workloads, "elastic")
    assert {name for name in before if after[name] != before[name]} == {"elastic-worker-1"}
    reached, target = accuracy(workloads, "elastic")
    assert reached >= target


@pytest.fixture
def volume(workloads: Workloads, tmp_path: Path) -> Generator[str]:
    """A folder of this machine, which is the same on all nodes."""
    spec = {
        "capacity": {"storage": "100Mi"},
        "accessModes": ["ReadWriteMany"],
        "hostPath": {"path": str(tmp_path)},
    }
    name = f"{workloads.namespace}-snapshots"
    workloads.apply(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    )
    yield name
    workloads.kubectl("delete", "persistentvolume", name, "--wait=false")


def install(framework: str) -> None:
    """Its environment, unless it is there; as `make demo` and `make examples` do."""
    lock = f"requirements/{framework}.txt"
    command = [sys.executable, "tools/venv.py", str(images.environment(framework)), lock]
    subprocess.run(command, cwd=roots.REPOSITORY, check=True)


def uids(workloads: Workloads, job: str) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in workloads.pods(job).items()}


def logs(workloads: Workloads, job: str) -> str:
    return workloads.logs_of(f"training.kubeflow.org/job-name={job}")


def accuracy(workloads: Workloads, job: str) -> tuple[float, float]:
    """Return the accuracy on held-out data that a pod printed, and the target."""
    ((reached, target),) = REACHED.findall(logs(workloads, job))
    return float(reached), float(target)
