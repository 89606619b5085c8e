"""The names of an MPIJob's children, the same in every flavor."""

from typing import Final

from api.mpijob import MPIJob
from api.names import child_name

LAUNCHER: Final = "Launcher"
WORKER: Final = "Worker"


def launcher_name(job: MPIJob) -> str:
    return f"{job.metadata.name}-launcher"


def worker_name(job: MPIJob, index: int) -> str:
    return child_name(job.metadata.name, WORKER.lower(), index)


def worker_index(job: str, pod: str) -> int | None:
    """Return the index in the name of a worker pod; None if the name is not one of this job's workers."""
    text = pod.removeprefix(f"{job}-{WORKER.lower()}-")
    index = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
    return index if index is not None and pod == child_name(job, WORKER.lower(), index) else None


def config_name(job: MPIJob) -> str:
    return f"{job.metadata.name}-config"


def slots(job: MPIJob) -> int:
    """Return how many ranks one host can run."""
    return 1 if job.spec.slots_per_worker is None else job.spec.slots_per_worker
