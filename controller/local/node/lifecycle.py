"""What to do next with a pod: which containers to start, when to look again, whether it is over. Pure.

``status`` tells the same facts to the API server; ``pod`` acts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from controller.local.node.containers import Container, Running, Terminated, Waiting, ready_again


@dataclass(frozen=True, slots=True)
class Step:
    containers: tuple[Container, ...]
    """The containers, those that are held back marked as such."""
    start: tuple[str, ...] = ()
    """Containers to start now."""
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
    blocking = next((c for c in inits if not _passed(c)), None)
    if blocking is not None:
        if _is_final(blocking, policy):
            return Step(tuple(containers), over=True)
        candidates = [*(c for c in inits if c.is_sidecar and isinstance(c.ended, Terminated)), blocking]
    elif mains and all(_is_final(c, policy) for c in mains):
        return Step(tuple(containers), over=True)
    else:
        candidates = [*(c for c in inits if c.is_sidecar), *mains]
    return _start(pod, containers, candidates, now, deadline)


def _start(
    pod: Mapping[str, Any],
    containers: Sequence[Container],
    candidates: Sequence[Container],
    now: datetime,
    deadline: datetime | None,
) -> Step:
    policy = pod["spec"].get("restartPolicy") or "Always"
    start: list[str] = []
    wakes = [] if deadline is None else [deadline]
    held: dict[str, Container] = {}
    for container in candidates:
        if isinstance(container.state, Running) or _is_final(container, policy):
            continue
        at = ready_again(container, now)
        if at <= now:
            start.append(container.name)
        else:
            wakes.append(at)
            held[container.name] = _held_back(pod, container)
    return Step(
        tuple(held.get(c.name, c) for c in containers), tuple(dict.fromkeys(start)), min(wakes, default=None)
    )


def _passed(container: Container) -> bool:
    """Whether an init container lets the next one start: a sidecar once it runs, another when it has succeeded."""
    if container.is_sidecar:
        return isinstance(container.state, Running) or container.restarts > 0 or container.ended is not None
    return isinstance(container.state, Terminated) and container.state.succeeded


def _is_final(container: Container, policy: str) -> bool:
    """Whether a container has ended and is not started again."""
    if not isinstance(container.state, Terminated) or container.is_sidecar:
        return False
    if container.is_init and policy == "Always":
        policy = "OnFailure"  # An init container that has succeeded is done, whatever the pod's policy.
    return policy == "Never" or (policy == "OnFailure" and container.state.succeeded)


def _held_back(pod: Mapping[str, Any], container: Container) -> Container:
    if not isinstance(container.state, Terminated):
        return container
    meta = pod["metadata"]
    message = (
        f"back-off {spell_duration(container.backoff_seconds)} restarting failed container={container.name} "
        f"pod={meta['name']}_{meta['namespace']}({meta['uid']})"
    )
    return replace(container, state=Waiting("CrashLoopBackOff", message), last=container.state)


def _deadline(pod: Mapping[str, Any], started: datetime) -> datetime | None:
    seconds = pod["spec"].get("activeDeadlineSeconds")
    return None if seconds is None else started + timedelta(seconds=seconds)


def spell_duration(seconds: float) -> str:
    """As Go prints it: ``10s``, ``1m20s``, ``5m0s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
