"""The job of a run: a manifest, or an empty one, with name, commands and files of the worker."""

import shlex
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.nccl import worker_files
from bench.nccl.run_config import perf_arguments
from bench.nccl.schema import RunConfig
from bench.nccl.worker.messages import PREFIX

API = {"pytorchjob": ("kubeflow.org/v1", "PyTorchJob"), "mpijob": ("kubeflow.org/v2beta1", "MPIJob")}
MANIFESTS = Path(__file__).parents[1] / "manifests"
GPU = "nvidia.com/gpu"
PORT = 29_577
"""Port of the first rank of an MPIJob. A PyTorchJob sets its own."""
TTL_SECONDS = 3600
"""TTL of the job, in case the benchmark is killed before it deletes the job."""
NO_IMAGE = "none"
"""The default image: pods of local mode have none."""


class InvalidManifest(Exception):
    """The manifest has no job of this kind, or not in a form that can be filled in."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of the job besides the run's configuration."""

    name: str
    python: str = "python"
    """The interpreter in the image."""
    timeout_seconds: int = 3600
    gpu_resource: str = GPU
    """The resource that pods request for their GPUs; empty if they get GPUs in another way."""


def read(path: Path, via: str) -> dict[str, Any]:
    """Return the job of that kind in a file; ``h200-ib`` is a file that comes with the benchmark.

    Raises:
        InvalidManifest: there is none, or the file cannot be read.
    """
    ours = MANIFESTS / f"{path}.yaml"
    path = ours if not path.exists() and ours.exists() else path
    try:
        documents = [
            document for document in yaml.safe_load_all(path.read_text()) if isinstance(document, dict)
        ]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidManifest(f"{path}: {error}") from error
    for document in documents:
        if (document.get("apiVersion"), document.get("kind")) == API[via]:
            return document
    raise InvalidManifest(f"{path}: contains no {API[via][1]} of {API[via][0]}")


def job(
    config: RunConfig, options: JobOptions, task: dict[str, Any], base: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Fill in name, numbers, commands and the worker's files. Other settings of the manifest stay.

    Raises:
        InvalidManifest: the manifest has no templates where a job of this kind has them.
    """
    version, kind = API[config.via]
    job: dict[str, Any] = deepcopy(dict(base or {}))
    job |= {
        "apiVersion": version,
        "kind": kind,
        "metadata": {**job.get("metadata", {}), "name": options.name},
    }
    spec = job.setdefault("spec", {})
    spec["runPolicy"] = {
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": TTL_SECONDS,
        "activeDeadlineSeconds": options.timeout_seconds,
        **spec.get("runPolicy", {}),
    }
    fill = _pytorch if config.via == "pytorchjob" else _mpi
    try:
        fill(spec, config, options, task)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise InvalidManifest(f"the manifest's templates do not fit a {kind}: {error!r}") from error
    return job


def _pytorch(spec: dict[str, Any], config: RunConfig, options: JobOptions, task: dict[str, Any]) -> None:
    given = spec.get("pytorchReplicaSpecs") or {}
    first = given.get("Master") or given.get("Worker") or {}
    command = [
        options.python,
        "-m",
        "torch.distributed.run",
        f"{worker_files.FOLDER}/{worker_files.START}",
        f"{worker_files.FOLDER}/{worker_files.TASK}",
    ]
    spec["nprocPerNode"] = str(config.gpus)
    roles = {"Master": 1, "Worker": config.nodes - 1}
    spec["pytorchReplicaSpecs"] = {
        role: {
            "replicas": count,
            "restartPolicy": "Never",
            "template": _fill_template(
                (given.get(role) or first).get("template"),
                "pytorch",
                config,
                options,
                task,
                command=command,
                gpus=True,
            ),
        }
        for role, count in roles.items()
        if count
    }


def _mpi(spec: dict[str, Any], config: RunConfig, options: JobOptions, task: dict[str, Any]) -> None:
    given = spec.get("mpiReplicaSpecs") or {}
    spec["slotsPerWorker"] = config.gpus
    spec.setdefault("launcherCreationPolicy", "WaitForWorkersReady")
    launcher = _fill_template(
        (given.get("Launcher") or {}).get("template"),
        "launcher",
        config,
        options,
        task,
        command=[],
        gpus=False,
    )
    container = launcher["spec"]["containers"][0]
    container["command"], container["args"] = ["/bin/sh", "-c"], [_script(config, options, container)]
    worker = _fill_template(
        (given.get("Worker") or {}).get("template"), "worker", config, options, task, command=None, gpus=True
    )
    spec["mpiReplicaSpecs"] = {
        "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
        "Worker": {"replicas": config.nodes, "restartPolicy": "Never", "template": worker},
    }


def _script(config: RunConfig, options: JobOptions, container: Mapping[str, Any]) -> str:
    """Return the launcher's script: it runs the worker, or the programs of nccl-tests in turn."""
    start = mpirun(config.nodes * config.gpus, [variable["name"] for variable in container.get("env") or ()])
    if not config.nccl_tests:
        # mpirun passes on neither environment variables nor names of pods.
        master = f"{options.name}-worker-0.{options.name}:{PORT}"
        worker = [
            options.python,
            f"{worker_files.FOLDER}/{worker_files.START}",
            f"{worker_files.FOLDER}/{worker_files.TASK}",
            "--master",
            master,
        ]
        return f"exec {shlex.join([*start, *worker])}"
    lines = ["set -e"]
    for collective in config.collectives:
        for dtype in config.dtypes:
            lines.append(_printf(f'{{"type":"nccl-tests","collective":"{collective}","dtype":"{dtype}"}}'))
            program = f"{config.nccl_tests.rstrip('/')}/{collective}_perf"
            lines.append(shlex.join([*start, program, *perf_arguments(config, dtype)]))
    return "\n".join([*lines, _printf('{"type":"end"}')])


def mpirun(ranks: int, variables: Sequence[str] = ()) -> list[str]:
    """Return the command of Open MPI's mpirun, which passes the variables on to the ranks."""
    handed = [part for name in variables for part in ("-x", name)]
    return ["mpirun", "-np", str(ranks), "--allow-run-as-root", "--bind-to", "none", *handed]


def _printf(line: str) -> str:
    return f"printf '\\n%s\\n' {shlex.quote(PREFIX + line)}"


def _fill_template(
    template: Mapping[str, Any] | None,
    container_name: str,
    config: RunConfig,
    options: JobOptions,
    task: dict[str, Any],
    *,
    command: list[str] | None,
    gpus: bool,
) -> dict[str, Any]:
    """Return a pod template with the worker's files. Without ``command`` the operator or the manifest provides one."""
    filled: dict[str, Any] = deepcopy(dict(template or {}))
    spec = filled.setdefault("spec", {})
    container = spec.setdefault("containers", [{}])[0]
    if container_name == "pytorch" or "name" not in container:
        container["name"] = container_name
    container["image"] = config.image or container.get("image") or NO_IMAGE
    if command is not None:
        container["command"] = command
        container.pop("args", None)
    mount = {"name": "rallypoint-bench", "mountPath": worker_files.FOLDER, "readOnly": True}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    spec["volumes"] = [*(spec.get("volumes") or ()), worker_files.volume(options.name, task)]
    if gpus and config.backend == "nccl" and options.gpu_resource:
        limits = container.setdefault("resources", {}).setdefault("limits", {})
        limits[options.gpu_resource] = 1 if config.share_gpu else config.gpus
        container["resources"].get("requests", {}).pop(options.gpu_resource, None)
    return filled
