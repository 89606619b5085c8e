"""Which workers may be told of as hosts, and when: not each time one comes up, so that a start costs two writes and not one a worker."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from api import conditions
from api.children import Pod
from api.job import ConditionType, JobStatus
from api.mpijob import MPIJob
from controller.domain import Problem, shortened
from controller.kind import Options
from controller.kinds.mpi.names import worker_name

QUIET_PERIOD = timedelta(seconds=5)
"""Workers that come up within so long of each other are told of together."""

WAIT_ANNOTATION: Final = "kubeflow.org/mpi-wait-for-workers"
"""Annotation: ``true`` starts the launcher once the workers are up, ``false`` at once."""

LATE_SECONDS = 30.0
"""How long workers may take to come up before the status names one that is missing."""
MAX_CONFIG_MAP_BYTES: Final = 1024 * 1024
"""What the API server takes of a ConfigMap's data.

Source: Kubernetes, pkg/apis/core/validation, ValidateConfigMap.
"""
ALWAYS_FITTING_WORKERS: Final = 1000
"""The lists of so many workers always fit: a host has at most 253 characters, and stands in two lists with a few more."""
MAX_LISTED = 3
"""Missing workers that are named, and init containers that fail."""


def should_wait_for_workers(job: MPIJob, options: Options, requested: bool = False) -> bool:
    """Whether the launcher starts only once all workers are up: as the annotation says, else if that is ``requested``, or by a flag."""
    annotation = (job.metadata.annotations or {}).get(WAIT_ANNOTATION)
    return (
        annotation == "true"
        if annotation in {"true", "false"}
        else requested or options.mpi_wait_for_workers or bool(options.mpi_topology_label)
    )


def ready_workers(pods: Sequence[Pod]) -> list[Pod]:
    """The workers that ranks can be started on, by index."""
    return sorted((pod for pod in pods if pod.ready and not pod.deleting), key=lambda pod: pod.index)


def missing_workers_message(job: MPIJob, present: Collection[int], desired: int) -> str:
    """What is said of a launcher that waits while only those workers are up, by index; empty if none is missing."""
    names = [worker_name(job, index) for index in range(desired) if index not in present]
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"The launcher waits for {', '.join(names[:MAX_LISTED])}{more}." if names else ""


def init_failures_message(pods: Iterable[Pod]) -> str:
    """What is said of pods that do not start because an init container fails; empty if there are none."""
    texts = [
        f"init container {done.container} of {pod.name} exited with code {done.code}{done.message and f': {shortened(done.message, 256)}'}"
        for pod in pods
        for done in pod.exits
        if done.init and done.code and pod.phase in {"Pending", "Failed"}
    ]
    more = f" and {len(texts) - MAX_LISTED} more" if len(texts) > MAX_LISTED else ""
    return f"Pods do not start: {'; '.join(texts[:MAX_LISTED])}{more}." if texts else ""


def seconds_until_late(status: JobStatus | None, now: datetime) -> float:
    """Seconds until a worker that is missing is late, 0 or less when it is."""
    started = (status and status.start_time) or now
    return LATE_SECONDS - (now - started).total_seconds()


def advertised_workers(
    pods: Sequence[Pod], desired: int, now: datetime, running: datetime | None = None
) -> list[Pod]:
    """The workers to tell of: all if all are up, else those that came up before the last quiet time, or until the job was ``running``.

    A pure function of what is there: who came up later, or went, does not take away from what was told before.

    Differs: the originals write the list anew for each worker that starts. See docs/decisions/0018-mpijob-v2beta1.md.
    """
    ready = ready_workers(pods)
    if len(ready) >= desired:
        return ready
    moments = sorted(_since(pod, now) for pod in ready)
    quiet = [since for since, later in pairwise([*moments, now]) if later - since >= QUIET_PERIOD]
    ends = [*quiet[-1:], *([running] if running else ())]
    return [pod for pod in ready if any(_since(pod, now) <= end for end in ends)]


def worker_order(pods: Sequence[Pod], desired: int, places: Mapping[str, str]) -> list[int]:
    """The indices of all workers, in the order in which they are listed: those of one place together, that of worker 0 first.

    By index alone while a worker has no node, or where nodes say nothing of their place.
    """
    where = {pod.index: places.get(pod.node, "") for pod in pods if pod.node}
    if not places or any(index not in where for index in range(desired)):
        return list(range(desired))
    first: dict[str, int] = {}
    for index in range(desired):
        first.setdefault(where[index], index)
    return sorted(range(desired), key=lambda index: (first[where[index]], index))


def running_since(job: MPIJob) -> datetime | None:
    """Since when the job has been running, or restarting some of what ran, as its status has it; None while it is neither."""
    given = (job.status and job.status.conditions) or ()
    found = [conditions.find(given, kind) for kind in (ConditionType.RUNNING, ConditionType.RESTARTING)]
    return next(
        (
            condition.last_transition_time
            for condition in found
            if condition and condition.status == conditions.TRUE
        ),
        None,
    )


def seconds_until_more(
    pods: Sequence[Pod], desired: int, now: datetime, running: datetime | None = None
) -> float | None:
    """Seconds until more workers may be told of, None if all that are up are told."""
    ready = ready_workers(pods)
    if len(advertised_workers(pods, desired, now, running)) == len(ready):
        return None
    newest = max(_since(pod, now) for pod in ready)
    return max((newest + QUIET_PERIOD - now).total_seconds(), 0.0)


def size_problems(
    workers: int, render: Callable[[Sequence[int]], Mapping[str, str]], path: str
) -> Iterator[Problem]:
    """Lists of hosts that no ConfigMap holds are refused before there is a pod. ``render`` returns those of the workers of such indices."""
    size = _size_bytes(workers, render) if workers > ALWAYS_FITTING_WORKERS else 0
    if size > MAX_CONFIG_MAP_BYTES:
        fitting = workers * MAX_CONFIG_MAP_BYTES // size
        text = (
            f"Invalid value: {workers}: the lists of hosts of {workers} workers take {size} bytes, and a ConfigMap holds {MAX_CONFIG_MAP_BYTES}: "
            f"ask for no more than about {fitting}, or give the job a shorter name"
        )
        yield Problem(path, text)


def _size_bytes(workers: int, render: Callable[[Sequence[int]], Mapping[str, str]]) -> int:
    """The size of the lists of so many workers, which are not built: workers whose indices have as many digits take as much each."""

    def size_bytes(*indices: int) -> int:
        return sum(map(len, render(indices).values()))

    empty = size_bytes()
    firsts: list[int] = [0, *(10**digits for digits in range(1, len(str(workers - 1))))]
    return empty + sum(
        (end - first) * (size_bytes(first) - empty) for first, end in pairwise([*firsts, workers])
    )


def _since(pod: Pod, now: datetime) -> datetime:
    """When it began to run; a node whose clock is ahead or that does not say is no reason to wait."""
    return min(pod.running_since or now - QUIET_PERIOD, now)
