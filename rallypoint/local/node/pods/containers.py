"""What the node knows of a container: its states, how often it was started, and when it may start again. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from api.times import parse_time
from rallypoint.local.node.pods.probes import HEALTHY, Doom, Health, at_start

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
    health: Health = HEALTHY
    is_stopping: bool = False
    """Whether it has been told to end although the pod is wanted."""


@dataclass(frozen=True, slots=True)
class Terminated:
    exit_code: int
    reason: str
    started: datetime | None
    finished: datetime
    message: str = ""
    attempt: int = 0
    """The number of the run that ended, from 0; it names its log."""
    was_unhealthy: bool = False
    """Whether a probe had it killed: it is started again whatever its exit code, unless nothing ever is."""

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
    has_begun: bool = False
    """Whether it has been started since this node took up the pod."""

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

    @property
    def health(self) -> Health | None:
        """Of the run that is under way; None when nothing runs."""
        return self.state.health if isinstance(self.state, Running) else None

    @property
    def has_started(self) -> bool:
        return self.health is not None and self.health.has_started

    @property
    def is_ready(self) -> bool:
        """An init container that is to end is ready when it has succeeded."""
        if self.is_init and not self.is_sidecar:
            return isinstance(self.state, Terminated) and self.state.succeeded
        return self.health is not None and self.health.is_ready

    @property
    def shown(self) -> State:
        """What others are told: of a run only when its postStart hook is over."""
        if self.health is None or self.health.is_set_up:
            return self.state
        return Waiting("ContainerCreating")


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
    inits = {one["name"]: one for one in status.get("initContainerStatuses") or ()}
    found = tuple(_to_run_again(c, inits[c.name], now) if c.name in inits else c for c in of_pod(pod))
    mains = {c.name: _as_left(c, told[c.name], now) for c in found if not c.is_init and c.name in told}
    begun = any(isinstance(c.state, Terminated) for c in mains.values())
    if begun and pod["spec"].get("restartPolicy") == "Never":
        through = Terminated(0, "Completed", None, now)
        mains |= {c.name: replace(c, state=through) for c in found if c.is_init and not c.is_sidecar}
    return tuple(mains.get(c.name, c) for c in found)


def _to_run_again(init: Container, told: Mapping[str, Any], now: datetime) -> Container:
    left = _as_left(init, told, now)
    return replace(left, state=init.state, last=left.ended)


def _as_left(container: Container, told: Mapping[str, Any], now: datetime) -> Container:
    attempt = told.get("restartCount", 0)
    state, last = told.get("state") or {}, told.get("lastState") or {}
    if "running" in state:
        since = parse_time(state["running"]["startedAt"])
        ended = Terminated(LOST_EXIT_CODE, LOST, since, now, LOST_MESSAGE, attempt)
    elif end := state.get("terminated") or last.get("terminated"):
        start, finish = (parse_time(end[at]) for at in ("startedAt", "finishedAt"))
        ended = Terminated(end["exitCode"], end["reason"], start, finish, end.get("message", ""), attempt)
    else:
        return replace(container, restarts=attempt)
    return replace(container, state=ended, restarts=attempt)


def started(container: Container, now: datetime) -> Container:
    """``container`` as it is once its process runs; a restart counts, and lengthens the next back-off."""
    ended = container.ended
    running = Running(now, at_start(container.spec))
    if ended is None:
        return replace(container, state=running, not_before=None, has_begun=True)
    calm = container.backed_off is None or ended.finished - container.backed_off > timedelta(
        seconds=CALM_SECONDS
    )
    backoff = FIRST_BACKOFF_SECONDS if calm else min(container.backoff_seconds * 2, LONGEST_BACKOFF_SECONDS)
    return replace(
        container,
        state=running,
        last=ended,
        restarts=container.restarts + 1,
        backoff_seconds=backoff,
        backed_off=now,
        not_before=None,
        has_begun=True,
    )


def put_off(container: Container, reason: str, message: str, until: datetime) -> Container:
    """``container`` when it could not be started for a reason that may pass."""
    return replace(container, state=Waiting(reason, message), last=container.ended, not_before=until)


def terminated(
    container: Container, exit_code: int, now: datetime, *, reason: str = "", message: str = ""
) -> Container:
    """``container`` after its process has ended; ``reason`` is given where the exit code does not tell."""
    run = container.state if isinstance(container.state, Running) else None
    reason = reason or ("Completed" if exit_code == 0 else "Error")
    ended = Terminated(
        exit_code,
        reason,
        None if run is None else run.since,
        now,
        message,
        container.restarts,
        was_unhealthy=run is not None and run.health.doom in (Doom.STARTUP, Doom.LIVENESS),
    )
    return replace(container, state=ended)


def with_health(container: Container, health: Health) -> Container:
    """``container`` with the health of its run; unchanged when the run is over."""
    if not isinstance(container.state, Running):
        return container
    return replace(container, state=replace(container.state, health=health))


def is_final(container: Container, policy: str) -> bool:
    """Whether a container has ended and is not started again; ``policy`` is the pod's.

    An init container that has succeeded is done, whatever they say.

    Source: Kubernetes, pkg/kubelet/container/helpers.go, ShouldContainerBeRestarted; of what a probe had killed,
    kuberuntime_manager.go, computePodActions.
    """
    end = container.state
    if not isinstance(end, Terminated) or container.is_sidecar:
        return False
    policy = container.spec.get("restartPolicy") or policy
    if container.is_init and end.succeeded:
        return True
    if any(_applies(rule, end.exit_code) for rule in container.spec.get("restartPolicyRules") or ()):
        return False
    return policy == "Never" or (policy == "OnFailure" and end.succeeded and not end.was_unhealthy)


def _applies(rule: Mapping[str, Any], exit_code: int) -> bool:
    """Whether a rule of ``restartPolicyRules`` has this exit restarted."""
    asked = rule.get("exitCodes") or {}
    is_listed = exit_code in (asked.get("values") or ())
    return is_listed is (asked.get("operator") == "In")


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
    if ended.was_unhealthy and ended is container.state and container.last is not None:
        # Killed and started again in one go, as long as the run before has ended long enough ago.
        return max(ended.finished, container.last.finished + timedelta(seconds=container.backoff_seconds))
    return ended.finished + timedelta(seconds=container.backoff_seconds)
