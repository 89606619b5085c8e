"""What a container's probes say of it, look by look. Pure; ``attending`` probes.

Source: Kubernetes, pkg/kubelet/prober/worker.go (doProbe) and prober_manager.go (UpdatePodStatus).
Differs: a worker there ticks from when the kubelet first sees the pod, so that a first look comes up to a period late,
and its count goes on from one run of a container to the next; here both begin with the run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

DEFAULT_PERIOD_SECONDS = 10.0
DEFAULT_TIMEOUT_SECONDS = 1.0
DEFAULT_FAILURES = 3


class Kind(StrEnum):
    """The values are the fields of a container; the names are what a kubelet calls them."""

    STARTUP = "startupProbe"
    READINESS = "readinessProbe"
    LIVENESS = "livenessProbe"


class Doom(StrEnum):
    """What has a run killed although its pod is wanted; the value is the field that says so."""

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
    """How many looks in a row change the answer to yes, and ``failures`` to no."""
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
    """The probes that a container's spec has."""
    return (Probe.of(kind, container[kind]) for kind in Kind if container.get(kind))


@dataclass(frozen=True, slots=True)
class Streak:
    """The latest looks of one probe that said the same."""

    succeeded: bool = False
    length: int = 0

    def and_then(self, *, succeeded: bool) -> "Streak":
        return Streak(succeeded, self.length + 1 if succeeded is self.succeeded else 1)


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of one run of a container. Without a probe, a process that runs is started and ready."""

    is_set_up: bool = True
    """Whether the postStart hook is over. Until then nobody is told of the run, and nobody probes it."""
    started: bool = True
    """Whether the startup probe has succeeded once."""
    ready: bool = True
    """What the readiness probe says."""
    doom: Doom | None = None

    @property
    def has_started(self) -> bool:
        return self.is_set_up and self.started

    @property
    def is_ready(self) -> bool:
        return self.has_started and self.ready


HEALTHY = Health()


def at_start(container: Mapping[str, Any]) -> Health:
    """The health of a run that has just begun."""
    return Health(
        is_set_up=not (container.get("lifecycle") or {}).get("postStart"),
        started=not container.get(Kind.STARTUP),
        ready=not container.get(Kind.READINESS),
    )


def after(health: Health, probe: Probe, streak: Streak) -> Health:
    """``health`` once ``probe`` has said the same so many times in a row."""
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
            return replace(health, doom=Doom(kind))


def refusal(pod: Mapping[str, Any]) -> str:
    """Why a probe or a rule of this pod cannot be kept here; empty when all can. Names the field."""
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
        if probe is not None and not any(probe.get(one) for one in ("exec", "httpGet", "tcpSocket")):
            return f"{kind}: must specify a handler type"
    for j, rule in enumerate(container.get("restartPolicyRules") or ()):
        if rule.get("action") != "Restart":
            return f"restartPolicyRules[{j}].action: local mode knows Restart, not {rule.get('action')}"
    return ""
