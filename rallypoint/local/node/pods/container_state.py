"""The state of a container: waiting, running or terminated, its restarts and its back-off. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from api.times import parse_time
from rallypoint.local.node.pods.probes import HEALTHY, Health, KillCause, at_start

LOST = "ContainerStatusUnknown"
LOST_MESSAGE = "The container could not be located when the pod was terminated"
LOST_EXIT_CODE = 137
"""The reported termination of a container that ran when its node went down.

Source: Kubernetes, pkg/kubelet/kubelet_pods.go (convertToAPIContainerStatuses).
"""

FIRST_BACKOFF_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 300.0
RESET_SECONDS = 600.0
"""A container that ran for longer than this restarts with the shortest back-off."""


@dataclass(frozen=True, slots=True)
class Waiting:
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    since: datetime
    health: Health = HEALTHY
    is_stopping: bool = False
    """Whether it is being killed although the pod continues."""


@dataclass(frozen=True, slots=True)
class Terminated:
    exit_code: int
    reason: str
    started: datetime | None
    finished: datetime
    message: str = ""
    attempt: int = 0
    """The number of the run, from 0; part of the name of its log."""
    was_killed_by_probe: bool = False
    """A container that a probe killed is restarted whatever its exit code, unless the policy is Never."""

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
    """The delay of the next restart; 0 before the first one."""
    backoff_since: datetime | None = None
    """When ``backoff_seconds`` was last increased."""
    not_before: datetime | None = None
    """When a failed start is retried."""
    has_begun: bool = False
    """Whether this node process has started it."""

    @property
    def is_sidecar(self) -> bool:
        """Whether it is an init container that keeps running beside the main containers."""
        return self.is_init and self.spec.get("restartPolicy") == "Always"

    @property
    def ended(self) -> Terminated | None:
        """The last termination, unless the container runs again."""
        if isinstance(self.state, Running):
            return None
        return self.state if isinstance(self.state, Terminated) else self.last

    @property
    def health(self) -> Health | None:
        """The health of the current run; None if the container does not run."""
        return self.state.health if isinstance(self.state, Running) else None

    @property
    def has_started(self) -> bool:
        return self.health is not None and self.health.has_started

    @property
    def is_ready(self) -> bool:
        """An init container that is no sidecar is ready when it has succeeded."""
        if self.is_init and not self.is_sidecar:
            return isinstance(self.state, Terminated) and self.state.succeeded
        return self.health is not None and self.health.is_ready

    @property
    def shown(self) -> State:
        """The reported state: not Running before the postStart hook has finished."""
        if self.health is None or self.health.has_post_start_finished:
            return self.state
        return Waiting("ContainerCreating")


def of_pod(pod: Mapping[str, Any]) -> tuple[Container, ...]:
    """Return the containers of a pod that has not started, init containers first."""
    spec = pod["spec"]
    waits = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
    first = [
        Container(c["name"], c, is_init=True, state=Waiting("PodInitializing"))
        for c in spec.get("initContainers") or ()
    ]
    return (*first, *(Container(c["name"], c, state=Waiting(waits)) for c in spec["containers"]))


def restore(pod: Mapping[str, Any], now: datetime) -> tuple[Container, ...]:
    """Return the containers of a pod that an earlier process of this node started, as after a reboot.

    None of them runs any more. The restart policy decides whether they restart; if so, the init containers run again
    first.
    """
    status = pod.get("status") or {}
    statuses = {entry["name"]: entry for entry in status.get("containerStatuses") or ()}
    inits = {entry["name"]: entry for entry in status.get("initContainerStatuses") or ()}
    found = tuple(_restored_init(c, inits[c.name], now) if c.name in inits else c for c in of_pod(pod))
    mains = {
        c.name: _restored(c, statuses[c.name], now) for c in found if not c.is_init and c.name in statuses
    }
    begun = any(isinstance(c.state, Terminated) for c in mains.values())
    if begun and pod["spec"].get("restartPolicy") == "Never":
        completed = Terminated(0, "Completed", None, now)
        mains |= {c.name: replace(c, state=completed) for c in found if c.is_init and not c.is_sidecar}
    return tuple(mains.get(c.name, c) for c in found)


def _restored_init(init: Container, status: Mapping[str, Any], now: datetime) -> Container:
    left = _restored(init, status, now)
    return replace(left, state=init.state, last=left.ended)


def _restored(container: Container, status: Mapping[str, Any], now: datetime) -> Container:
    attempt = status.get("restartCount", 0)
    state, last = status.get("state") or {}, status.get("lastState") or {}
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
    """Return the container after its process has started; a restart increases the next back-off."""
    ended = container.ended
    running = Running(now, at_start(container.spec))
    if ended is None:
        return replace(container, state=running, not_before=None, has_begun=True)
    is_reset = container.backoff_since is None or ended.finished - container.backoff_since > timedelta(
        seconds=RESET_SECONDS
    )
    backoff = (
        FIRST_BACKOFF_SECONDS if is_reset else min(container.backoff_seconds * 2, LONGEST_BACKOFF_SECONDS)
    )
    return replace(
        container,
        state=running,
        last=ended,
        restarts=container.restarts + 1,
        backoff_seconds=backoff,
        backoff_since=now,
        not_before=None,
        has_begun=True,
    )


def postponed(container: Container, reason: str, message: str, until: datetime) -> Container:
    """Return the container after a start failed for a reason that may pass."""
    return replace(container, state=Waiting(reason, message), last=container.ended, not_before=until)


def terminated(
    container: Container, exit_code: int, now: datetime, *, reason: str = "", message: str = ""
) -> Container:
    """Return the container after its process has exited; ``reason`` overrides the one by exit code."""
    run = container.state if isinstance(container.state, Running) else None
    reason = reason or ("Completed" if exit_code == 0 else "Error")
    ended = Terminated(
        exit_code,
        reason,
        None if run is None else run.since,
        now,
        message,
        container.restarts,
        was_killed_by_probe=run is not None
        and run.health.kill_cause in (KillCause.STARTUP, KillCause.LIVENESS),
    )
    return replace(container, state=ended)


def with_health(container: Container, health: Health) -> Container:
    """Return the container with the health of its run; unchanged if it does not run."""
    if not isinstance(container.state, Running):
        return container
    return replace(container, state=replace(container.state, health=health))


def is_final(container: Container, policy: str) -> bool:
    """Return whether a container has terminated and will not restart; ``policy`` is the pod's.

    An init container that has succeeded never restarts.

    Source: Kubernetes, pkg/kubelet/container/helpers.go, ShouldContainerBeRestarted; of what a probe had killed,
    kuberuntime_manager.go, computePodActions.
    """
    end = container.state
    if not isinstance(end, Terminated) or container.is_sidecar:
        return False
    policy = container.spec.get("restartPolicy") or policy
    if container.is_init and end.succeeded:
        return True
    if any(_matches_rule(rule, end.exit_code) for rule in container.spec.get("restartPolicyRules") or ()):
        return False
    return policy == "Never" or (policy == "OnFailure" and end.succeeded and not end.was_killed_by_probe)


def _matches_rule(rule: Mapping[str, Any], exit_code: int) -> bool:
    exit_codes = rule.get("exitCodes") or {}
    is_listed = exit_code in (exit_codes.get("values") or ())
    return is_listed is (exit_codes.get("operator") == "In")


def next_start(container: Container, now: datetime) -> datetime:
    """Return when a terminated container may restart: at once the first time, then after its back-off.

    Source: Kubernetes, client-go/util/flowcontrol/backoff.go, IsInBackOffSince: counted from the end of the last run.
    """
    if container.not_before is not None:
        return container.not_before
    ended = container.ended
    if ended is None or container.backoff_since is None:
        return now
    if ended.finished - container.backoff_since > timedelta(seconds=RESET_SECONDS):
        return now
    if ended.was_killed_by_probe and ended is container.state and container.last is not None:
        # A probe killed it: the back-off counts from the end of the run before.
        return max(ended.finished, container.last.finished + timedelta(seconds=container.backoff_seconds))
    return ended.finished + timedelta(seconds=container.backoff_seconds)
