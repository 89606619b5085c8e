"""What to do next with a pod: what to start and to kill, when to look again, whether it is over. Pure.

``status`` tells the same facts to the API server; ``pod`` acts.

Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodActions and, of init containers and
sidecars, kuberuntime_container.go, computeInitContainerActions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from rallypoint.local.node.pods.containers import (
    Container,
    Running,
    Terminated,
    Waiting,
    is_final,
    ready_again,
)
from rallypoint.local.node.pods.probes import Doom

DEFAULT_GRACE_SECONDS = 30.0
_PROBES = {Doom.STARTUP: "startup probe", Doom.LIVENESS: "liveness probe"}


@dataclass(frozen=True, slots=True)
class Kill:
    """A container to stop although the pod is wanted."""

    name: str
    message: str
    """What is told of it."""
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    containers: tuple[Container, ...]
    """The containers, those that are held back or killed marked as such."""
    start: tuple[str, ...] = ()
    """Containers to start now."""
    kill: tuple[Kill, ...] = ()
    wake: datetime | None = None
    """When something changes by itself: a back-off or the pod's deadline ends."""
    over: bool = False
    """No container runs or will run again. Sidecars may still be up; they are stopped then."""
    expired: bool = False
    """The pod was active for longer than ``activeDeadlineSeconds``."""


def next_step(
    pod: Mapping[str, Any], containers: Sequence[Container], started: datetime, now: datetime
) -> Step:
    """Decide for a pod that is wanted (not being deleted)."""
    deadline = _deadline(pod, started)
    if deadline is not None and now >= deadline:
        return Step(tuple(containers), over=True, expired=True)
    policy = pod["spec"].get("restartPolicy") or "Always"
    inits = [c for c in containers if c.is_init]
    mains = [c for c in containers if not c.is_init]
    sidecars = [c for c in inits if c.is_sidecar]
    if mains and all(is_final(c, policy) for c in mains):
        return Step(tuple(containers), over=True)
    # Once the mains have begun, a sidecar that starts again holds up nobody.
    blocking = None if has_initialized(containers) else next((c for c in inits if not is_passed(c)), None)
    if blocking is None:
        candidates = [*sidecars, *mains]
    elif is_final(blocking, policy):
        return Step(tuple(containers), over=True)
    else:
        candidates = [*(c for c in sidecars if c.has_begun), blocking]
    return _act(pod, containers, candidates, now, deadline)


def has_initialized(containers: Sequence[Container]) -> bool:
    """Whether the pod is past its init containers: a main one has been started."""
    return any(c.has_begun for c in containers if not c.is_init)


def is_passed(init: Container) -> bool:
    """Whether an init container lets the next one start: a sidecar that has started, another that has succeeded."""
    return init.has_started if init.is_sidecar else init.is_ready


def _act(
    pod: Mapping[str, Any],
    containers: Sequence[Container],
    candidates: Sequence[Container],
    now: datetime,
    deadline: datetime | None,
) -> Step:
    policy = pod["spec"].get("restartPolicy") or "Always"
    kill = {c.name: _kill(pod, c, policy) for c in containers if _is_doomed(c)}
    start: list[str] = []
    wakes = [] if deadline is None else [deadline]
    changed = {c.name: _stopping(c) for c in containers if c.name in kill}
    is_free = all(c.health is None or c.health.is_set_up for c in containers)
    for container in candidates:
        if isinstance(container.state, Running) or is_final(container, policy):
            continue
        if ready_again(container, now) > now:
            changed[container.name] = _held_back(pod, container)
            wakes.append(ready_again(changed[container.name], now))
        elif is_free and container.name not in start:
            start.append(container.name)
            is_free = not _has_post_start(container)  # The next one starts when the hook is over.
    return Step(
        tuple(changed.get(c.name, c) for c in containers),
        tuple(start),
        tuple(kill.values()),
        min(wakes, default=None),
    )


def _is_doomed(container: Container) -> bool:
    state = container.state
    return isinstance(state, Running) and state.health.doom is not None and not state.is_stopping


def _stopping(container: Container) -> Container:
    assert isinstance(container.state, Running)
    return replace(container, state=replace(container.state, is_stopping=True))


def _kill(pod: Mapping[str, Any], container: Container, policy: str) -> Kill:
    """Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container.go, setTerminationGracePeriod."""
    assert container.health is not None
    doom = container.health.doom
    seconds = grace_seconds(pod)
    if doom is None or doom is Doom.POST_START:
        return Kill(container.name, "FailedPostStartHook", seconds)
    own = container.spec[doom].get("terminationGracePeriodSeconds")
    kind = "Init container" if container.is_init else "Container"
    message = f"{kind} {container.name} failed {_PROBES[doom]}"
    if policy != "Never" and not container.is_init:
        message += ", will be restarted"
    return Kill(container.name, message, seconds if own is None else float(own))


def grace_seconds(pod: Mapping[str, Any]) -> float:
    """How long a pod's processes have to end when they are asked to."""
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_SECONDS if seconds is None else float(seconds)


def _has_post_start(container: Container) -> bool:
    return bool((container.spec.get("lifecycle") or {}).get("postStart"))


def _held_back(pod: Mapping[str, Any], container: Container) -> Container:
    if not isinstance(container.state, Terminated):
        return container
    message = (
        f"back-off {spell_duration(container.backoff_seconds)} restarting failed container={container.name} "
        f"pod={spell(pod)}"
    )
    return replace(container, state=Waiting("CrashLoopBackOff", message), last=container.state)


def spell(pod: Mapping[str, Any]) -> str:
    """A pod as a kubelet's messages name it."""
    meta = pod["metadata"]
    return f"{meta['name']}_{meta['namespace']}({meta['uid']})"


def _deadline(pod: Mapping[str, Any], started: datetime) -> datetime | None:
    seconds = pod["spec"].get("activeDeadlineSeconds")
    return None if seconds is None else started + timedelta(seconds=seconds)


def spell_duration(seconds: float) -> str:
    """As Go prints it: ``10s``, ``1m20s``, ``5m0s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
