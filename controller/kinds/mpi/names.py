"""What the children of an MPIJob are called, in every flavor."""

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
    """The index of the worker of that name; None if the job has no pod of such a name."""
    text = pod.removeprefix(f"{job}-{WORKER.lower()}-")
    index = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
    return index if index is not None and pod == child_name(job, WORKER.lower(), index) else None


def config_name(job: MPIJob) -> str:
    return f"{job.metadata.name}-config"


def slots(job: MPIJob) -> int:
    """Ranks that one host may run."""
    return 1 if job.spec.slots_per_worker is None else job.spec.slots_per_worker
