"""Who keeps the Workloads of queued jobs: Kueue itself, or the operator with ``--kueue``. Scenarios run under each."""

from asyncio import AbstractEventLoop
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from api.batch import BATCH_JOBS
from api.meta import PODS
from api.workloads import WORKLOADS
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import STANDALONE, Service, install
from tests.support.history import History, history_in_thread, loop_in_thread
from tests.support.schedulers.gangs import open_nodes
from tests.support.schedulers.kueue import kueue
from tests.support.schedulers.operator import Operator
from tests.support.schedulers.queues import (
    MPIJOB,
    V1_KINDS,
    Object,
    Queue,
    QueuedKind,
    graceful_stages,
    overlay,
    taint,
)
from tests.support.schedulers.quota import violations

FLAGS = ("--pytorch-init-container=off", "--mpi-ssh-check=false", "--log-level=debug")
"""No process answers in simulated pods."""
OTHER_FRAMEWORKS = ("batch/job", "pod")
RACKS = {"rack-a": (3, 4), "rack-b": (5, 6)}
"""The numbers of the nodes of the flavor ``racked``, with two CPUs each. Node 0 has no flavor."""
_FLAVORS = {"spot": (1,), "reserved": (2,), "racked": (3, 4, 5, 6)}


@dataclass(frozen=True, slots=True)
class Integrator:
    """``kinds`` are those whose Workloads it keeps."""

    name: str
    kinds: tuple[QueuedKind, ...]
    frameworks: tuple[str, ...]
    """Those that Kueue manages itself."""
    external: tuple[str, ...] = ()
    is_operator: bool = False

    @override
    def __str__(self) -> str:
        return self.name


KUEUE = Integrator(
    "Kueue",
    (*V1_KINDS, MPIJOB),
    (*OTHER_FRAMEWORKS, *(kind.framework for kind in (*V1_KINDS, MPIJOB))),
)
OPERATOR = Integrator(
    "the operator",
    V1_KINDS,
    (*OTHER_FRAMEWORKS, MPIJOB.framework),
    tuple(kind.external_framework for kind in V1_KINDS),
    is_operator=True,
)
INTEGRATORS = (KUEUE, OPERATOR)


@dataclass(frozen=True, slots=True)
class Environment:
    """A control plane with Kueue and the operator."""

    plane: ControlPlane
    integrator: Integrator
    overlay: Path
    loop: AbstractEventLoop
    """That of another thread, for watches."""

    def operator_keeps(self, kind: QueuedKind) -> bool:
        """Return whether the operator keeps the Workloads of this kind."""
        return self.integrator.is_operator and kind in self.integrator.kinds

    def operator(self, operator: Operator) -> AbstractContextManager[Service]:
        return operator.running(self.plane, FLAGS, overlay=self.overlay)

    @contextmanager
    def within_quota(self, queue: Queue, kind: QueuedKind, cpus: int) -> Generator[None]:
        """Require that no job of the queue ever has more pods than quota in this block, nor all of them together."""
        resources = (PODS, WORKLOADS, BATCH_JOBS, kind.resource)
        with history_in_thread(self.loop, self.plane.kubeconfig(), queue.name, resources) as history:
            yield
            queue.wait("all changes recorded", lambda: _is_complete(history, queue))
        by_status = not self.operator_keeps(kind)
        found = list(violations(history.changes, cpus, by_status=by_status))
        assert not found, "\n".join(found[:30])


def _is_complete(history: History, queue: Queue) -> bool:
    recorded = [obj for (kind, _), obj in history.now.items() if kind in {PODS.kind, WORKLOADS.kind}]
    return _versions(recorded) == _versions([*queue.pods(), *queue.workloads()])


def _versions(objects: list[Object]) -> set[str]:
    return {obj["metadata"]["resourceVersion"] for obj in objects}


@contextmanager
def environment(integrator: Integrator, operator: Operator, folder: Path) -> Generator[Environment]:
    """Run Kueue and the operator beside a control plane whose nodes have flavors."""
    with kueue_alone(integrator, folder) as running, running.operator(operator):
        yield running


@contextmanager
def kueue_alone(integrator: Integrator, folder: Path) -> Generator[Environment]:
    """Do the same without the operator, which is installed."""
    with (
        loop_in_thread() as loop,
        ControlPlane(nodes=7, scheduler=True, stages=graceful_stages(folder)) as plane,
    ):
        open_nodes(plane)
        label_nodes(plane)
        chosen = overlay(folder) if integrator.is_operator else STANDALONE
        install(plane, chosen)
        with kueue(plane, frameworks=integrator.frameworks, external=integrator.external):
            yield Environment(plane, integrator, chosen, loop)


def label_nodes(plane: ControlPlane) -> None:
    """Give nodes the labels and taints of flavors, and those of racks a size."""
    for flavor, numbers in _FLAVORS.items():
        for number in numbers:
            labels = {"instance": flavor, "kubernetes.io/hostname": f"node-{number}"}
            change = {"metadata": {"labels": labels}, "spec": {"taints": [taint(flavor)]}}
            plane.request("PATCH", f"/api/v1/nodes/node-{number}", change)
    for rack, numbers in RACKS.items():
        for number in numbers:
            path = f"/api/v1/nodes/node-{number}"
            plane.request("PATCH", path, {"metadata": {"labels": {"rack": rack}}})
            size = {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}}
            plane.request("PATCH", f"{path}/status", {"status": size})
