"""The probes of a container and the health that follows from their results. Pure; ``prober`` runs them.

Source: Kubernetes, pkg/kubelet/prober/worker.go (doProbe) and prober_manager.go (UpdatePodStatus).
Differs: a kubelet's prober ticks from when it first sees the pod, so the first probe is up to a period late, and it
counts results across runs of a container; here both start with the run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

DEFAULT_PERIOD_SECONDS = 10.0
DEFAULT_TIMEOUT_SECONDS = 1.0
DEFAULT_FAILURES = 3


class Kind(StrEnum):
    """The kind of a probe; the value is its field in the container."""

    STARTUP = "startupProbe"
    READINESS = "readinessProbe"
    LIVENESS = "livenessProbe"


class KillCause(StrEnum):
    """Why a container is killed while its pod continues; the value is the field of the container."""

    STARTUP = "startupProbe"
    LIVENESS = "livenessProbe"
    POST_START = "postStart"


@dataclass(frozen=True, slots=True)
class Probe:
    kind: Kind
    spec: Mapping[str, Any]
    delay_seconds: float
    period_seconds: float
    timeout_seconds: float
    successes: int
    """successThreshold; ``failures`` is failureThreshold."""
    failures: int

    @classmethod
    def of(cls, kind: Kind, spec: Mapping[str, Any]) -> Self:
        return cls(
            kind,
            spec,
            delay_seconds=spec.get("initialDelaySeconds") or 0.0,
            period_seconds=spec.get("periodSeconds") or DEFAULT_PERIOD_SECONDS,
            timeout_seconds=spec.get("timeoutSeconds") or DEFAULT_TIMEOUT_SECONDS,
            successes=spec.get("successThreshold") or 1,
            failures=spec.get("failureThreshold") or DEFAULT_FAILURES,
        )


def of(container: Mapping[str, Any]) -> Iterator[Probe]:
    return (Probe.of(kind, container[kind]) for kind in Kind if container.get(kind))


@dataclass(frozen=True, slots=True)
class Streak:
    """The latest equal results of one probe."""

    succeeded: bool = False
    length: int = 0

    def extended(self, *, succeeded: bool) -> "Streak":
        return Streak(succeeded, self.length + 1 if succeeded is self.succeeded else 1)


@dataclass(frozen=True, slots=True)
class Health:
    """The health of one run of a container. Without probes, a running process is started and ready."""

    has_post_start_finished: bool = True
    """Before that, the run is neither reported nor probed."""
    started: bool = True
    """Whether the startup probe has succeeded once."""
    ready: bool = True
    """The result of the readiness probe."""
    kill_cause: KillCause | None = None

    @property
    def has_started(self) -> bool:
        return self.has_post_start_finished and self.started

    @property
    def is_ready(self) -> bool:
        return self.has_started and self.ready


HEALTHY = Health()


def at_start(container: Mapping[str, Any]) -> Health:
    """Return the health of a new run."""
    return Health(
        has_post_start_finished=not (container.get("lifecycle") or {}).get("postStart"),
        started=not container.get(Kind.STARTUP),
        ready=not container.get(Kind.READINESS),
    )


def after(health: Health, probe: Probe, streak: Streak) -> Health:
    """Return the health after ``streak`` equal results of ``probe``."""
    if streak.length < (probe.successes if streak.succeeded else probe.failures):
        return health
    match probe.kind:
        case Kind.READINESS:
            return replace(health, ready=streak.succeeded)
        case Kind.STARTUP if streak.succeeded:
            return replace(health, started=True)
        case Kind.LIVENESS if streak.succeeded:
            return health
        case kind:
            return replace(health, kill_cause=KillCause(kind))


def rejection(pod: Mapping[str, Any]) -> str:
    """Return the first probe or restart rule that local mode does not support, with its field; empty if none."""
    for field in ("initContainers", "containers"):
        for i, container in enumerate(pod["spec"].get(field) or ()):
            if problem := _problem(container):
                return f"spec.{field}[{i}].{problem}"
    return ""


def _problem(container: Mapping[str, Any]) -> str:
    for kind in Kind:
        probe = container.get(kind)
        if probe and "grpc" in probe:
            return f"{kind}.grpc: local mode probes by exec, httpGet and tcpSocket"
        if probe is not None and not any(probe.get(handler) for handler in ("exec", "httpGet", "tcpSocket")):
            return f"{kind}: must specify a handler type"
    for j, rule in enumerate(container.get("restartPolicyRules") or ()):
        if rule.get("action") != "Restart":
            return f"restartPolicyRules[{j}].action: local mode knows Restart, not {rule.get('action')}"
    return ""
