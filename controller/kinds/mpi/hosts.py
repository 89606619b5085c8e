"""The lists of hosts: which workers they contain, in which order, and when they change.

New workers are added in batches, so that the start of a job costs two writes instead of one for each worker.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from api import conditions
from api.children import Pod
from api.job import ConditionType, JobStatus
from api.messages import first_of
from api.mpijob import MPIJob
from controller.domain import Problem, shortened
from controller.kind import Options
from controller.kinds.mpi.names import worker_name
from controller.kinds.mpi.options import MPIOptions

SETTLE_PERIOD = timedelta(seconds=5)
"""Workers that become ready within this time of each other are added together."""

WAIT_ANNOTATION: Final = "kubeflow.org/mpi-wait-for-workers"
"""Annotation: ``true`` starts the launcher when all workers are ready, ``false`` immediately."""

LATE_SECONDS = 30.0
"""How long workers may take to become ready before the status names the missing ones."""
MAX_CONFIG_MAP_BYTES: Final = 1024 * 1024
"""The largest ConfigMap data that the API server accepts.

Source: Kubernetes, pkg/apis/core/validation, ValidateConfigMap.
"""
ALWAYS_FITTING_WORKERS: Final = 1000
"""The lists of this many workers always fit: a host name has at most 253 characters and is in two lists."""
MAX_LISTED = 3
"""How many missing workers or failing init containers a message names."""


def should_wait_for_workers(job: MPIJob, options: Options, requested: bool = False) -> bool:
    """Return whether the launcher starts only when all workers are ready.

    The annotation wins over ``requested`` and over the flags.
    """
    annotation = (job.metadata.annotations or {}).get(WAIT_ANNOTATION)
    own = options.of(MPIOptions)
    return (
        annotation == "true"
        if annotation in {"true", "false"}
        else requested or own.wait_for_workers or bool(own.topology_label)
    )


def ready_workers(pods: Sequence[Pod]) -> list[Pod]:
    """Return the workers that can start ranks, sorted by index."""
    return sorted((pod for pod in pods if pod.ready and not pod.deleting), key=lambda pod: pod.index)


def missing_workers_message(job: MPIJob, present: Collection[int], desired: int) -> str:
    """Name the workers that are not among the ``present`` indices; empty if there are none."""
    names = [worker_name(job, index) for index in range(desired) if index not in present]
    return f"The launcher waits for {first_of(names, MAX_LISTED)}." if names else ""


def init_failures_message(pods: Iterable[Pod]) -> str:
    """Describe the pods that do not start because an init container fails; empty if there are none."""
    texts = [
        f"init container {done.container} of {pod.name} exited with code {done.code}{done.message and f': {shortened(done.message, 256)}'}"
        for pod in pods
        for done in pod.exits
        if done.init and done.code and pod.phase in {"Pending", "Failed"}
    ]
    return f"Pods do not start: {first_of(texts, MAX_LISTED, '; ')}." if texts else ""


def seconds_until_late(status: JobStatus | None, now: datetime) -> float:
    """Return the seconds until a missing worker is late; 0 or less if it is late already."""
    started = (status and status.start_time) or now
    return LATE_SECONDS - (now - started).total_seconds()


def advertised_workers(
    pods: Sequence[Pod], desired: int, now: datetime, running: datetime | None = None
) -> list[Pod]:
    """Return the workers that the list of hosts contains.

    These are all workers if all are ready; else the workers that became ready before the last quiet period, or before the job was
    ``running``. Workers that appear later or disappear do not remove others from the list.

    Differs: the originals rewrite the list for each worker that starts. See docs/decisions/0018-mpijob-v2beta1.md.
    """
    ready = ready_workers(pods)
    if len(ready) >= desired:
        return ready
    moments = sorted(_since(pod, now) for pod in ready)
    settled = [since for since, later in pairwise([*moments, now]) if later - since >= SETTLE_PERIOD]
    ends = [*settled[-1:], *([running] if running else ())]
    return [pod for pod in ready if any(_since(pod, now) <= end for end in ends)]


def worker_order(pods: Sequence[Pod], desired: int, node_domains: Mapping[str, str]) -> list[int]:
    """Return the indices of all workers in the order of the hostfile: grouped by topology domain, the domain of worker 0 first.

    The order is by index alone while a worker has no node or a node has no topology label.
    """
    where = {pod.index: node_domains.get(pod.node, "") for pod in pods if pod.node}
    if not node_domains or any(index not in where for index in range(desired)):
        return list(range(desired))
    first: dict[str, int] = {}
    for index in range(desired):
        first.setdefault(where[index], index)
    return sorted(range(desired), key=lambda index: (first[where[index]], index))


def running_since(job: MPIJob) -> datetime | None:
    """Return when the job became Running or Restarting, by its status; None if it is neither."""
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
    """Return the seconds until ready workers can be added to the list; None if it contains all of them."""
    ready = ready_workers(pods)
    if len(advertised_workers(pods, desired, now, running)) == len(ready):
        return None
    newest = max(_since(pod, now) for pod in ready)
    return max((newest + SETTLE_PERIOD - now).total_seconds(), 0.0)


def size_problems(
    workers: int, render: Callable[[Sequence[int]], Mapping[str, str]], path: str
) -> Iterator[Problem]:
    """Reject lists of hosts that do not fit into a ConfigMap. ``render`` returns the lists for workers with the given indices."""
    size = _size_bytes(workers, render) if workers > ALWAYS_FITTING_WORKERS else 0
    if size > MAX_CONFIG_MAP_BYTES:
        fitting = workers * MAX_CONFIG_MAP_BYTES // size
        text = (
            f"Invalid value: {workers}: the host lists take {size} bytes, but a ConfigMap holds at most {MAX_CONFIG_MAP_BYTES}: "
            f"use at most about {fitting} workers, or a shorter job name"
        )
        yield Problem(path, text)


def _size_bytes(workers: int, render: Callable[[Sequence[int]], Mapping[str, str]]) -> int:
    """Compute the size of the lists without building them: workers whose indices have the same number of digits take the same space."""

    def size_bytes(*indices: int) -> int:
        return sum(map(len, render(indices).values()))

    empty = size_bytes()
    firsts: list[int] = [0, *(10**digits for digits in range(1, len(str(workers - 1))))]
    return empty + sum(
        (end - first) * (size_bytes(first) - empty) for first, end in pairwise([*firsts, workers])
    )


def _since(pod: Pod, now: datetime) -> datetime:
    """Return when the pod started to run. A missing or future time counts as long ago, or as now."""
    return min(pod.running_since or now - SETTLE_PERIOD, now)
