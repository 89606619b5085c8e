"""What the node knows of a container: its states, how often it was started, and when it may start again. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

LOST = "ContainerStatusUnknown"
LOST_MESSAGE = "The container could not be located when the pod was terminated"
LOST_EXIT_CODE = 137
"""What is told of a container that ran when its node went down.

Source: Kubernetes, pkg/kubelet/kubelet_pods.go (convertToAPIContainerStatuses).
"""

FIRST_BACKOFF_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 300.0
CALM_SECONDS = 600.0
"""A container that ran for longer than this starts over with the shortest back-off."""


@dataclass(frozen=True, slots=True)
class Waiting:
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    since: datetime


@dataclass(frozen=True, slots=True)
class Terminated:
    exit_code: int
    reason: str
    started: datetime | None
    finished: datetime
    message: str = ""
    attempt: int = 0
    """The number of the run that ended, from 0; it names its log."""

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0


State: TypeAlias = Waiting | Running | Terminated


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod and its history."""

    name: str
    spec: Mapping[str, Any] = field(repr=False)
    is_init: bool = False
    state: State = Waiting("PodInitializing")
    last: Terminated | None = None
    restarts: int = 0
    backoff_seconds: float = 0.0
    """How long the next restart is held back; 0 before the first one, which is at once."""
    backed_off: datetime | None = None
    """When ``backoff_seconds`` was last made longer."""
    not_before: datetime | None = None
    """When a start that was not possible is tried again."""

    @property
    def is_sidecar(self) -> bool:
        """Whether this init container keeps running beside the main ones."""
        return self.is_init and self.spec.get("restartPolicy") == "Always"

    @property
    def ended(self) -> Terminated | None:
        """How the last run ended, unless the container runs again."""
        if isinstance(self.state, Running):
            return None
        return self.state if isinstance(self.state, Terminated) else self.last


def of_pod(pod: Mapping[str, Any]) -> tuple[Container, ...]:
    """The containers of a pod that has not started, the init containers first."""
    spec = pod["spec"]
    waits = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
    first = [
        Container(c["name"], c, is_init=True, state=Waiting("PodInitializing"))
        for c in spec.get("initContainers") or ()
    ]
    return (*first, *(Container(c["name"], c, state=Waiting(waits)) for c in spec["containers"]))


def left_by_another(pod: Mapping[str, Any], now: datetime) -> tuple[Container, ...]:
    """The containers of a pod that another life of this node has begun, as after a reboot; none of them runs.

    What ran is lost. Whether it starts again is the restart policy's matter; if anything does, the init containers
    run again before it.
    """
    status = pod.get("status") or {}
    told = {one["name"]: one for one in status.get("containerStatuses") or ()}
    found = of_pod(pod)
    mains = {c.name: _as_left(c, told[c.name], now) for c in found if not c.is_init and c.name in told}
    begun = any(isinstance(c.state, Terminated) for c in mains.values())
    if begun and pod["spec"].get("restartPolicy") == "Never":
        through = Terminated(0, "Completed", None, now)
        mains |= {c.name: replace(c, state=through) for c in found if c.is_init and not c.is_sidecar}
    return tuple(mains.get(c.name, c) for c in found)


def _as_left(container: Container, told: Mapping[str, Any], now: datetime) -> Container:
    attempt = told.get("restartCount", 0)
    state, last = told.get("state") or {}, told.get("lastState") or {}
    if "running" in state:
        since = datetime.fromisoformat(state["running"]["startedAt"])
        ended = Terminated(LOST_EXIT_CODE, LOST, since, now, LOST_MESSAGE, attempt)
    elif end := state.get("terminated") or last.get("terminated"):
        start, finish = (datetime.fromisoformat(end[at]) for at in ("startedAt", "finishedAt"))
        ended = Terminated(end["exitCode"], end["reason"], start, finish, end.get("message", ""), attempt)
    else:
        return replace(container, restarts=attempt)
    return replace(container, state=ended, restarts=attempt)


def started(container: Container, now: datetime) -> Container:
    """``container`` as it is once its process runs; a restart counts, and lengthens the next back-off."""
    ended = container.ended
    if ended is None:
        return replace(container, state=Running(now), not_before=None)
    calm = container.backed_off is None or ended.finished - container.backed_off > timedelta(
        seconds=CALM_SECONDS
    )
    backoff = FIRST_BACKOFF_SECONDS if calm else min(container.backoff_seconds * 2, LONGEST_BACKOFF_SECONDS)
    return replace(
        container,
        state=Running(now),
        last=ended,
        restarts=container.restarts + 1,
        backoff_seconds=backoff,
        backed_off=now,
        not_before=None,
    )


def put_off(container: Container, reason: str, message: str, until: datetime) -> Container:
    """``container`` when it could not be started for a reason that may pass."""
    return replace(container, state=Waiting(reason, message), last=container.ended, not_before=until)


def terminated(
    container: Container, exit_code: int, now: datetime, *, reason: str = "", message: str = ""
) -> Container:
    """``container`` after its process has ended; ``reason`` is given where the exit code does not tell."""
    start = container.state.since if isinstance(container.state, Running) else None
    reason = reason or ("Completed" if exit_code == 0 else "Error")
    return replace(container, state=Terminated(exit_code, reason, start, now, message, container.restarts))


def ready_again(container: Container, now: datetime) -> datetime:
    """When a container that has ended may start again: at once the first time, then held back.

    Source: Kubernetes, client-go/util/flowcontrol/backoff.go, IsInBackOffSince: counted from the end of the last run.
    """
    if container.not_before is not None:
        return container.not_before
    ended = container.ended
    if ended is None or container.backed_off is None:
        return now
    if ended.finished - container.backed_off > timedelta(seconds=CALM_SECONDS):
        return now
    return ended.finished + timedelta(seconds=container.backoff_seconds)
