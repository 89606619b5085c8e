"""Decides the next step of a pod: which containers to start or kill, and whether the pod is finished. Pure.

``worker`` executes it; ``status`` builds the status from the same state.

Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodActions and, of init containers and
sidecars, kuberuntime_container.go, computeInitContainerActions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from rallypoint.local.node.pods.container_state import (
    Container,
    Running,
    Terminated,
    Waiting,
    is_final,
    next_start,
)
from rallypoint.local.node.pods.probes import KillCause

DEFAULT_GRACE_SECONDS = 30.0
_PROBES = {KillCause.STARTUP: "startup probe", KillCause.LIVENESS: "liveness probe"}


@dataclass(frozen=True, slots=True)
class Kill:
    """A container to kill while the pod continues."""

    name: str
    message: str
    """The message of the event."""
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    containers: tuple[Container, ...]
    """The containers, updated for back-offs and kills."""
    start: tuple[str, ...] = ()
    """Containers to start now."""
    kill: tuple[Kill, ...] = ()
    wake_at: datetime | None = None
    """When the next back-off or the pod's deadline ends."""
    is_finished: bool = False
    """No main container runs or will restart. Sidecars may still run; they are stopped then."""
    has_expired: bool = False
    """The pod was active for longer than ``activeDeadlineSeconds``."""


def next_step(
    pod: Mapping[str, Any], containers: Sequence[Container], started: datetime, now: datetime
) -> Step:
    """Return the next step of a pod that is not being deleted."""
    deadline = _deadline(pod, started)
    if deadline is not None and now >= deadline:
        return Step(tuple(containers), is_finished=True, has_expired=True)
    policy = pod["spec"].get("restartPolicy") or "Always"
    inits = [c for c in containers if c.is_init]
    mains = [c for c in containers if not c.is_init]
    sidecars = [c for c in inits if c.is_sidecar]
    if mains and all(is_final(c, policy) for c in mains):
        return Step(tuple(containers), is_finished=True)
    # After initialization, a restarting sidecar blocks no other container.
    blocking = None if has_initialized(containers) else next((c for c in inits if not is_passed(c)), None)
    if blocking is None:
        candidates = [*sidecars, *mains]
    elif is_final(blocking, policy):
        return Step(tuple(containers), is_finished=True)
    else:
        candidates = [*(c for c in sidecars if c.has_begun), blocking]
    return _act(pod, containers, candidates, now, deadline)


def has_initialized(containers: Sequence[Container]) -> bool:
    """Return whether a main container has been started."""
    return any(c.has_begun for c in containers if not c.is_init)


def is_passed(init: Container) -> bool:
    """Return whether the next init container may start: a sidecar has started, another one has succeeded."""
    return init.has_started if init.is_sidecar else init.is_ready


def _act(
    pod: Mapping[str, Any],
    containers: Sequence[Container],
    candidates: Sequence[Container],
    now: datetime,
    deadline: datetime | None,
) -> Step:
    policy = pod["spec"].get("restartPolicy") or "Always"
    kill = {c.name: _kill(pod, c, policy) for c in containers if _needs_kill(c)}
    start: list[str] = []
    wakes = [] if deadline is None else [deadline]
    changed = {c.name: _stopping(c) for c in containers if c.name in kill}
    is_free = all(c.health is None or c.health.has_post_start_finished for c in containers)
    for container in candidates:
        if isinstance(container.state, Running) or is_final(container, policy):
            continue
        if next_start(container, now) > now:
            changed[container.name] = _in_backoff(pod, container)
            wakes.append(next_start(changed[container.name], now))
        elif is_free and container.name not in start:
            start.append(container.name)
            is_free = not _has_post_start(container)  # The next one starts after the hook.
    return Step(
        tuple(changed.get(c.name, c) for c in containers),
        tuple(start),
        tuple(kill.values()),
        min(wakes, default=None),
    )


def _needs_kill(container: Container) -> bool:
    state = container.state
    return isinstance(state, Running) and state.health.kill_cause is not None and not state.is_stopping


def _stopping(container: Container) -> Container:
    assert isinstance(container.state, Running)
    return replace(container, state=replace(container.state, is_stopping=True))


def _kill(pod: Mapping[str, Any], container: Container, policy: str) -> Kill:
    """Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container.go, setTerminationGracePeriod."""
    assert container.health is not None
    kill_cause = container.health.kill_cause
    seconds = grace_seconds(pod)
    if kill_cause is None or kill_cause is KillCause.POST_START:
        return Kill(container.name, "FailedPostStartHook", seconds)
    own = container.spec[kill_cause].get("terminationGracePeriodSeconds")
    kind = "Init container" if container.is_init else "Container"
    message = f"{kind} {container.name} failed {_PROBES[kill_cause]}"
    if policy != "Never" and not container.is_init:
        message += ", will be restarted"
    return Kill(container.name, message, seconds if own is None else float(own))


def grace_seconds(pod: Mapping[str, Any]) -> float:
    """Return the grace period of a pod; a negative one counts as one second."""
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    if seconds is None:
        return DEFAULT_GRACE_SECONDS
    return float(seconds) if seconds >= 0 else 1.0


def _has_post_start(container: Container) -> bool:
    return bool((container.spec.get("lifecycle") or {}).get("postStart"))


def _in_backoff(pod: Mapping[str, Any], container: Container) -> Container:
    if not isinstance(container.state, Terminated):
        return container
    message = (
        f"back-off {go_duration(container.backoff_seconds)} restarting failed container={container.name} "
        f"pod={pod_ref(pod)}"
    )
    return replace(container, state=Waiting("CrashLoopBackOff", message), last=container.state)


def pod_ref(pod: Mapping[str, Any]) -> str:
    """Return the name of a pod in a kubelet's messages."""
    meta = pod["metadata"]
    return f"{meta['name']}_{meta['namespace']}({meta['uid']})"


def _deadline(pod: Mapping[str, Any], started: datetime) -> datetime | None:
    seconds = pod["spec"].get("activeDeadlineSeconds")
    return None if seconds is None else started + timedelta(seconds=seconds)


def go_duration(seconds: float) -> str:
    """Format a duration as Go does: ``10s``, ``1m20s``, ``5m0s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
