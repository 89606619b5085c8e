"""The job of a run, from a manifest for these nodes or from nothing, with what only the bench knows put in."""

import shlex
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.nccl import worker_files
from bench.nccl.run_config import perf_arguments
from bench.nccl.schema import Asked
from bench.nccl.worker.messages import MARK

API = {"pytorchjob": ("kubeflow.org/v1", "PyTorchJob"), "mpijob": ("kubeflow.org/v2beta1", "MPIJob")}
READY = Path(__file__).parents[1] / "manifests"
GPU = "nvidia.com/gpu"
PORT = 29_577
"""Of the first rank of an MPIJob. A PyTorchJob has its own."""
KEPT_SECONDS = 3600
"""A job whose bench was killed goes by itself, so long after its end."""
NONE = "none"
"""The image where nothing says which: pods of local mode have none."""


class Unfit(Exception):
    """A manifest has no job of this kind, or not of a form that can be filled in."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the job is called and how it is run, beside what is asked for."""

    name: str
    python: str = "python"
    """Interpreter in the image."""
    timeout_seconds: int = 3600
    gpu_resource: str = GPU
    """What pods ask for so many of; empty where their GPUs come by claims, or are all of the node's anyway."""


def read(path: Path, via: str) -> dict[str, Any]:
    """The job of that kind among a file's documents; ``h200-ib`` is one of those that come with the bench.

    Raises:
        Unfit: there is none, or the file cannot be read.
    """
    ours = READY / f"{path}.yaml"
    path = ours if not path.exists() and ours.exists() else path
    try:
        documents = [one for one in yaml.safe_load_all(path.read_text()) if isinstance(one, dict)]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Unfit(f"{path}: {error}") from error
    for one in documents:
        if (one.get("apiVersion"), one.get("kind")) == API[via]:
            return one
    raise Unfit(f"{path}: no {API[via][1]} of {API[via][0]} in it")


def job(
    asked: Asked, shape: Shape, task: dict[str, Any], base: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A manifest's own settings stay; name, numbers, commands and the worker's files are the bench's.

    Raises:
        Unfit: the manifest has no templates where they must be.
    """
    version, kind = API[asked.via]
    made: dict[str, Any] = deepcopy(dict(base or {}))
    made |= {
        "apiVersion": version,
        "kind": kind,
        "metadata": {**made.get("metadata", {}), "name": shape.name},
    }
    spec = made.setdefault("spec", {})
    spec["runPolicy"] = {
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "activeDeadlineSeconds": shape.timeout_seconds,
        **spec.get("runPolicy", {}),
    }
    fill = _pytorch if asked.via == "pytorchjob" else _mpi
    try:
        fill(spec, asked, shape, task)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise Unfit(f"the manifest's templates are not as those of a {kind}: {error!r}") from error
    return made


def _pytorch(spec: dict[str, Any], asked: Asked, shape: Shape, task: dict[str, Any]) -> None:
    given = spec.get("pytorchReplicaSpecs") or {}
    first = given.get("Master") or given.get("Worker") or {}
    command = [
        shape.python,
        "-m",
        "torch.distributed.run",
        f"{worker_files.FOLDER}/{worker_files.START}",
        f"{worker_files.FOLDER}/{worker_files.TASK}",
    ]
    spec["nprocPerNode"] = str(asked.gpus)
    roles = {"Master": 1, "Worker": asked.nodes - 1}
    spec["pytorchReplicaSpecs"] = {
        role: {
            "replicas": count,
            "restartPolicy": "Never",
            "template": _filled(
                (given.get(role) or first).get("template"),
                "pytorch",
                asked,
                shape,
                task,
                command=command,
                gpus=True,
            ),
        }
        for role, count in roles.items()
        if count
    }


def _mpi(spec: dict[str, Any], asked: Asked, shape: Shape, task: dict[str, Any]) -> None:
    given = spec.get("mpiReplicaSpecs") or {}
    spec["slotsPerWorker"] = asked.gpus
    spec.setdefault("launcherCreationPolicy", "WaitForWorkersReady")
    launcher = _filled(
        (given.get("Launcher") or {}).get("template"), "launcher", asked, shape, task, command=[], gpus=False
    )
    container = launcher["spec"]["containers"][0]
    container["command"], container["args"] = ["/bin/sh", "-c"], [_script(asked, shape, container)]
    worker = _filled(
        (given.get("Worker") or {}).get("template"), "worker", asked, shape, task, command=None, gpus=True
    )
    spec["mpiReplicaSpecs"] = {
        "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
        "Worker": {"replicas": asked.nodes, "restartPolicy": "Never", "template": worker},
    }


def _script(asked: Asked, shape: Shape, container: Mapping[str, Any]) -> str:
    """What the launcher's shell runs: the worker, or the programs of nccl-tests one by one."""
    start = mpirun(asked.nodes * asked.gpus, [one["name"] for one in container.get("env") or ()])
    if not asked.nccl_tests:
        # Neither variables nor names of pods reach a rank by themselves, whatever starts it.
        master = f"{shape.name}-worker-0.{shape.name}:{PORT}"
        worker = [
            shape.python,
            f"{worker_files.FOLDER}/{worker_files.START}",
            f"{worker_files.FOLDER}/{worker_files.TASK}",
            "--master",
            master,
        ]
        return f"exec {shlex.join([*start, *worker])}"
    lines = ["set -e"]
    for collective in asked.collectives:
        for dtype in asked.dtypes:
            lines.append(_says(f'{{"say":"nccl-tests","collective":"{collective}","dtype":"{dtype}"}}'))
            program = f"{asked.nccl_tests.rstrip('/')}/{collective}_perf"
            lines.append(shlex.join([*start, program, *perf_arguments(asked, dtype)]))
    return "\n".join([*lines, _says('{"say":"end"}')])


def mpirun(ranks: int, variables: Sequence[str] = ()) -> list[str]:
    """Open MPI's, handing on variables that ranks are to see."""
    handed = [part for name in variables for part in ("-x", name)]
    return ["mpirun", "-np", str(ranks), "--allow-run-as-root", "--bind-to", "none", *handed]


def _says(line: str) -> str:
    return f"printf '\\n%s\\n' {shlex.quote(MARK + line)}"


def _filled(
    template: Mapping[str, Any] | None,
    container_name: str,
    asked: Asked,
    shape: Shape,
    task: dict[str, Any],
    *,
    command: list[str] | None,
    gpus: bool,
) -> dict[str, Any]:
    """A pod template with the worker's files; without a command where the operator or the manifest gives one."""
    made: dict[str, Any] = deepcopy(dict(template or {}))
    spec = made.setdefault("spec", {})
    container = spec.setdefault("containers", [{}])[0]
    if container_name == "pytorch" or "name" not in container:
        container["name"] = container_name
    container["image"] = asked.image or container.get("image") or NONE
    if command is not None:
        container["command"] = command
        container.pop("args", None)
    mount = {"name": "rallypoint-bench", "mountPath": worker_files.FOLDER, "readOnly": True}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    spec["volumes"] = [*(spec.get("volumes") or ()), worker_files.volume(shape.name, task)]
    if gpus and asked.backend == "nccl" and shape.gpu_resource:
        limits = container.setdefault("resources", {}).setdefault("limits", {})
        limits[shape.gpu_resource] = 1 if asked.share_gpu else asked.gpus
        container["resources"].get("requests", {}).pop(shape.gpu_resource, None)
    return made
