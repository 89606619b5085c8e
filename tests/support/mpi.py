"""Small and valid MPIJobs."""

from typing import Any

from api.mpijob import MPIJob


def container(name: str = "mpi", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "example/pi:1", "command": ["mpirun"], **fields}


def mpi_job(
    workers: int | None = 2,
    *,
    launcher: dict[str, Any] | None = None,
    worker: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> MPIJob:
    """``pi`` in ``hpc`` with two slots; ``launcher`` and ``worker`` are templates laid over one container each."""
    specs: dict[str, Any] = {
        "Launcher": {"template": {"spec": {"containers": [container()]}, **(launcher or {})}}
    }
    if workers is not None:
        template = {"spec": {"containers": [container(command=["sshd"])]}, **(worker or {})}
        specs["Worker"] = {"replicas": workers, "template": template}
    metadata = {"name": "pi", "namespace": "hpc", "uid": "pi-uid", "annotations": annotations}
    whole = {"slotsPerWorker": 2, "flavor": "v2beta1", "mpiReplicaSpecs": specs, **spec}
    return MPIJob.model_validate({"kind": "MPIJob", "metadata": metadata, "spec": whole})


def v1_template(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "mpi", "image": "example/hvd:1", **fields}]}}


def v1_job(
    launcher: dict[str, Any] | None = None, worker: dict[str, Any] | None = None, **spec: Any
) -> MPIJob:
    """``hvd`` in ``ml`` of the v1 flavor, with two workers; ``launcher`` and ``worker`` are laid over their replica specs."""
    roles = {
        "Launcher": {"template": v1_template(), **(launcher or {})},
        "Worker": {"template": v1_template(), "replicas": 2, **(worker or {})},
    }
    metadata = {"name": "hvd", "namespace": "ml", "uid": "u"}
    return MPIJob.model_validate(
        {"kind": "MPIJob", "metadata": metadata, "spec": {"mpiReplicaSpecs": roles, **spec}}
    )


HVD = v1_job(
    {"template": v1_template(command=["mpirun", "-np", "8", "python", "train.py"])},
    {"template": v1_template(resources={"limits": {"nvidia.com/gpu": 4}})},
    slotsPerWorker=4,
    cleanPodPolicy="Running",
)
"""The worked example of the v1 contract."""
