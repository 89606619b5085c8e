"""Scenarios as data; a name defines a scenario completely."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from api.services import ServiceMode
from bench.controlplane.job_kinds import JOB_KINDS, MPI, JobKind

NODES = ("node-0", "node-1")
EXIT_ANNOTATIONS = {"rallypoint.testing/exit-code": "0"}
"""Annotations that make a simulated pod succeed as soon as it runs."""
FEWER_SERVICES = (ServiceMode.ADDRESSED, ServiceMode.PER_JOB)
"""With each of them a PyTorchJob that is not elastic has one Service: of its master, or of all pods."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """``jobs`` jobs submitted together: PyTorchJobs, each with a master and ``replicas`` - 1 workers."""

    jobs: int
    replicas: int
    mixed: bool = False
    """Whether the jobs alternate between kinds."""
    mpi: bool = False
    """Whether they are MPIJobs v2beta1 with a launcher and ``replicas`` workers."""
    quick: bool = False
    """Whether pods (of MPIJobs: launchers) end as soon as they run; otherwise leaders end when all jobs run."""
    service_mode: ServiceMode = ServiceMode.PER_REPLICA

    @property
    def name(self) -> str:
        words = [word for word in ("mixed", "mpi", "quick") if getattr(self, word)]
        if self.service_mode is not ServiceMode.PER_REPLICA:
            words.append(self.service_mode)
        return "-".join((f"{self.jobs}x{self.replicas}", *words))

    @property
    def pods(self) -> int:
        return self.jobs * (MPI if self.mpi else JOB_KINDS[0]).pods(self.replicas)

    @property
    def services(self) -> int:
        if self.service_mode is not ServiceMode.PER_REPLICA:
            return self.jobs
        return self.jobs * (MPI if self.mpi else JOB_KINDS[0]).services(self.replicas)

    def job_names(self, run: str) -> list[str]:
        """Return the names of a run's jobs, of the same length in all runs of a scenario."""
        return [f"{run}-{index:04}" for index in range(self.jobs)]

    def job_kind(self, name: str) -> JobKind:
        """Return the kind of the job with this name."""
        if self.mpi:
            return MPI
        return JOB_KINDS[int(name[-4:]) % len(JOB_KINDS)] if self.mixed else JOB_KINDS[0]


class Preexisting(StrEnum):
    """Objects in the cluster when a controller starts."""

    FOREIGN = "foreign"
    """Pods of others."""
    FINISHED = "finished"
    """Jobs of one pod that have succeeded, with their pods and Services."""
    OWN = "own"
    """Running pods of jobs, with their Services."""


@dataclass(frozen=True, slots=True)
class Start:
    """A controller starts among ``count`` existing objects while a job waits for it."""

    count: int
    preexisting: Preexisting

    @property
    def name(self) -> str:
        return f"{self.count}-{self.preexisting}"


@dataclass(frozen=True, slots=True)
class Large:
    """One job of ``pods`` pods with one Service, beside small jobs."""

    pods: int

    @property
    def name(self) -> str:
        return f"{self.pods}-large"

    @property
    def job(self) -> Jobs:
        return Jobs(1, self.pods, service_mode=ServiceMode.PER_JOB)


Scenario = Jobs | Start | Large


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario with a value of ``--events``."""

    scenario: Scenario
    events: str = "full"
    calls_only: bool = False
    """Whether the case only counts calls."""

    @property
    def name(self) -> str:
        return f"{self.scenario.name} {self.events}"

    @property
    def baseline(self) -> bool:
        """Whether a baseline follows each run. Quick jobs have none: their status writes bound them."""
        return isinstance(self.scenario, Jobs) and not self.scenario.quick and not self.calls_only

    @property
    def per_replica(self) -> "Case":
        """The same with a Service for each replica."""
        if not isinstance(self.scenario, Jobs):
            return self
        return replace(self, scenario=replace(self.scenario, service_mode=ServiceMode.PER_REPLICA))

    @property
    def should_time_callbacks(self) -> bool:
        """Whether to time callbacks in one more run, because many objects arrive at once."""
        if isinstance(self.scenario, Jobs):
            return self.events == "full" and self.scenario.pods > 64
        return isinstance(self.scenario, Start)


def parse(name: str) -> Scenario:
    """Parse a name such as ``1x64``, ``100x8-mixed``, ``100x8-per-job``, ``200x2-quick``, ``10000-foreign`` or ``10000-large``.

    Raises:
        ValueError: for other names.
    """
    if match := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)(?:(-mixed)|(-mpi))?(-quick)?", name):
        mixed, mpi, quick = map(bool, match.groups()[2:])
        return Jobs(int(match[1]), int(match[2]), mixed=mixed, mpi=mpi, quick=quick)
    if match := re.fullmatch(rf"([1-9]\d*)x([1-9]\d*)-({'|'.join(FEWER_SERVICES)})", name):
        return Jobs(int(match[1]), int(match[2]), service_mode=ServiceMode(match[3]))
    if match := re.fullmatch(rf"([1-9]\d*)-({'|'.join(Preexisting)})", name):
        return Start(int(match[1]), Preexisting(match[2]))
    if match := re.fullmatch(r"([1-9]\d*)-large", name):
        return Large(int(match[1]))
    raise ValueError(
        f"{name}: expected JOBSxREPLICAS[-mixed|-mpi][-quick], JOBSxREPLICAS-{'|'.join(FEWER_SERVICES)}, "
        f"COUNT-{'|'.join(Preexisting)} or COUNT-large"
    )


def take_turns(cases: Iterable[Case]) -> list[list[Case]]:
    """Group the cases that differ in the Services alone: their runs alternate and share a baseline.

    The first case of a group creates a Service for each replica, as its baseline does; it is added if it is missing.
    """
    groups: dict[Case, list[Case]] = {}
    for case in cases:
        group = groups.setdefault(case.per_replica, [case.per_replica])
        if case not in group:
            group.append(case)
    return list(groups.values())


CASES = (
    *(Case(parse(name)) for name in ("1x1", "1x8", "1x64", "1x256")),
    *(Case(parse(name), "compact", calls_only=True) for name in ("1x8", "1x64", "1x256")),
    *(Case(parse("100x8"), events) for events in ("full", "compact", "off")),
    *(Case(parse(f"100x8-{mode}"), "compact") for mode in FEWER_SERVICES),
    Case(parse("100x8-mixed")),
    Case(parse("500x2")),
    Case(parse("200x2-quick")),
    *(Case(parse(name)) for name in ("1x8-mpi", "1x64-mpi", "50x8-mpi")),
    *(Case(parse(name)) for name in ("1000-finished", "10000-foreign", "10000-own")),
)
"""The default cases."""


def manifest(scenario: Jobs, name: str, nodes: tuple[str, str] = NODES) -> dict[str, Any]:
    """Return one job. Its leader is bound to the first node, its workers to the second, so that no scheduler is needed."""
    job_kind, annotations = scenario.job_kind(name), EXIT_ANNOTATIONS if scenario.quick else {}
    if job_kind.has_launcher:
        launcher = _role(job_kind, 1, nodes[0], annotations)
        roles = {job_kind.leader: launcher, job_kind.worker: _role(job_kind, scenario.replicas, nodes[1], {})}
    elif job_kind.leader == job_kind.worker:
        roles = {job_kind.worker: _role(job_kind, scenario.replicas, nodes[1], annotations)}
    else:
        roles = {job_kind.leader: _role(job_kind, 1, nodes[0], annotations)}
        if scenario.replicas > 1:
            roles[job_kind.worker] = _role(job_kind, scenario.replicas - 1, nodes[1], annotations)
    return {
        "apiVersion": job_kind.resource.api_version,
        "kind": job_kind.resource.kind,
        "metadata": {"name": name},
        "spec": {job_kind.replicas_field: roles},
    }


def _role(job_kind: JobKind, replicas: int, node: str, annotations: dict[str, str]) -> dict[str, Any]:
    container = {"name": job_kind.container, "image": "train:1", "command": ["train"]}
    return {
        "replicas": replicas,
        "restartPolicy": "OnFailure",
        "template": {
            "metadata": {"annotations": annotations},
            "spec": {"nodeName": node, "containers": [container]},
        },
    }


def container_status(container: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return a status as a kubelet writes it for a container that is not ready."""
    status = {"name": container, "image": "train:1", "imageID": "", "ready": False, "restartCount": 0}
    return {**status, "state": state}
