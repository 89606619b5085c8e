"""Builds the status of a pod as a kubelet reports it. Pure.

Source: Kubernetes, pkg/kubelet/kubelet_pods.go (getPhase, generateAPIPodStatus) and pkg/kubelet/status/generate.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from api.times import format_time
from rallypoint.local.node.pods.container_state import (
    Container,
    Running,
    State,
    Terminated,
    Waiting,
    is_final,
)
from rallypoint.local.node.pods.lifecycle import has_initialized, is_passed

EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Facts:
    """Addresses and start time of a pod."""

    host_ip: str
    pod_ip: str
    started: datetime


def pod_status(
    pod: Mapping[str, Any],
    containers: Sequence[Container],
    facts: Facts,
    now: datetime,
    *,
    previous: Mapping[str, Any] | None = None,
    final_phase: str = "",
    reason: str = "",
    message: str = "",
) -> dict[str, Any]:
    """Return the fields of the status that a kubelet owns.

    ``previous`` is the status reported before; ``final_phase`` overrides the phase of a pod that the node has stopped.
    """
    pod_phase = final_phase or phase(pod["spec"].get("restartPolicy") or "Always", containers)
    before = {"status": previous or pod.get("status")}
    status: dict[str, Any] = {
        "phase": pod_phase,
        "conditions": [
            with_condition(before, condition, now) for condition in _conditions(pod, containers, pod_phase)
        ],
        "hostIP": facts.host_ip,
        "hostIPs": [{"ip": facts.host_ip}],
        "podIP": facts.pod_ip,
        "podIPs": [{"ip": facts.pod_ip}],
        "startTime": format_time(facts.started),
        "containerStatuses": [_container_status(pod, c) for c in containers if not c.is_init],
    }
    if any(c.is_init for c in containers):
        status["initContainerStatuses"] = [_container_status(pod, c) for c in containers if c.is_init]
    status.update({key: text for key, text in (("reason", reason), ("message", message)) if text})
    return status


def phase(policy: str, containers: Sequence[Container]) -> str:
    """Return the phase. Sidecars count while they run; their exit codes do not.

    Source: Kubernetes, pkg/kubelet/kubelet_pods.go, getPhase.
    """
    inits = [c for c in containers if c.is_init and not c.is_sidecar]
    if any(is_final(c, policy) and not c.is_ready for c in inits):
        return "Failed"
    sidecars, mains = [c for c in containers if c.is_sidecar], [c for c in containers if not c.is_init]
    if any(not c.is_ready for c in inits) or any(_has_never_run(c) for c in (*sidecars, *mains)):
        return "Pending"
    if not has_initialized(containers) and any(
        isinstance(c.state, Running) and not is_passed(c) for c in sidecars
    ):
        return "Pending"
    if any(isinstance(c.shown, Running) for c in (*sidecars, *mains)):
        return "Running"
    if not all(is_final(c, policy) for c in mains):
        return "Running"
    return "Succeeded" if all(_has_succeeded(c) for c in mains) else "Failed"


def phase_when_stopped(containers: Iterable[Container]) -> str:
    """Return the final phase of a deleted pod whose processes have exited."""
    ends = [c.ended for c in containers if not c.is_init]
    return "Succeeded" if ends and all(end is not None and end.succeeded for end in ends) else "Failed"


def with_condition(pod: Mapping[str, Any], condition: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return the condition with lastTransitionTime: now, unless the pod has it with the same status."""
    for old in (pod.get("status") or {}).get("conditions") or ():
        if old["type"] == condition["type"] and old["status"] == condition["status"]:
            return {**condition, "lastTransitionTime": old.get("lastTransitionTime") or format_time(now)}
    return {**condition, "lastTransitionTime": format_time(now)}


def _conditions(
    pod: Mapping[str, Any], containers: Sequence[Container], pod_phase: str
) -> Iterable[dict[str, Any]]:
    """Source: Kubernetes, pkg/kubelet/status/generate.go."""
    lasting = [c for c in containers if c.is_sidecar or not c.is_init]
    unready = [c.name for c in lasting if not c.is_ready]
    containers_ready = _condition(unready, pod_phase, "ContainersNotReady", "containers with unready status")
    yield {
        "type": "PodReadyToStartContainers",
        "status": "False" if pod_phase in ("Succeeded", "Failed") else "True",
    }
    yield {"type": "Initialized"} | _initialized(containers, pod_phase)
    yield {"type": "Ready"} | (
        _readiness_gates(pod) if containers_ready["status"] == "True" else containers_ready
    )
    yield {"type": "ContainersReady"} | containers_ready
    yield {"type": "PodScheduled", "status": "True"}


def _initialized(containers: Sequence[Container], pod_phase: str) -> dict[str, Any]:
    if pod_phase == "Succeeded":
        return {"status": "True", "reason": "PodCompleted"}
    waiting = [c.name for c in containers if c.is_init and not is_passed(c)]
    if any(isinstance(c.state, Running) or c.ended is not None for c in containers if not c.is_init):
        waiting = []  # A restarting sidecar does not undo initialization.
    return _condition(waiting, pod_phase, "ContainersNotInitialized", "containers with incomplete status")


def _readiness_gates(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Ready condition by the pod's readiness gates."""
    conditions = {c["type"]: c["status"] for c in (pod.get("status") or {}).get("conditions") or ()}
    problems: list[str] = []
    for gate in pod["spec"].get("readinessGates") or ():
        name = gate["conditionType"]
        if name not in conditions:
            problems.append(f'corresponding condition of pod readiness gate "{name}" does not exist.')
        elif conditions[name] != "True":
            problems.append(
                f'the status of pod readiness gate "{name}" is not "True", but {conditions[name]}'
            )
    if not problems:
        return {"status": "True"}
    return {"status": "False", "reason": "ReadinessGatesNotReady", "message": ", ".join(problems)}


def _condition(failing: list[str], pod_phase: str, reason: str, message_text: str) -> dict[str, Any]:
    if pod_phase == "Failed" and reason == "ContainersNotReady":
        return {"status": "False", "reason": "PodFailed"}
    if not failing:
        return {"status": "True"}
    if pod_phase == "Succeeded":
        return {"status": "False", "reason": "PodCompleted"}
    return {"status": "False", "reason": reason, "message": f"{message_text}: [{' '.join(failing)}]"}


def _has_never_run(container: Container) -> bool:
    """Return whether its reported state shows no run."""
    return isinstance(container.shown, Waiting) and container.ended is None and container.last is None


def _has_succeeded(container: Container) -> bool:
    return isinstance(container.state, Terminated) and container.state.succeeded


def _container_status(pod: Mapping[str, Any], container: Container) -> dict[str, Any]:
    shown = container.shown
    status: dict[str, Any] = {
        "name": container.name,
        "image": container.spec.get("image", ""),
        "imageID": "",
        "ready": container.is_ready,
        "started": container.has_started,
        "restartCount": container.restarts,
        "state": _state(pod, container, shown),
        "lastState": {} if container.last is None else _state(pod, container, container.last),
    }
    if isinstance(container.state, Running) or container.ended is not None:
        status["containerID"] = container_id(pod, container.name, container.restarts)
    return status


def container_id(pod: Mapping[str, Any], container: str, attempt: int) -> str:
    return f"process://{pod['metadata']['uid']}/{container}/{attempt}"


def _state(pod: Mapping[str, Any], container: Container, state: State) -> dict[str, Any]:
    match state:
        case Waiting(reason, message):
            return {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        case Running(since):
            return {"running": {"startedAt": format_time(since)}}
        case Terminated(exit_code, reason, start, finished, message, attempt):
            ended: dict[str, Any] = {
                "exitCode": exit_code,
                "reason": reason,
                "startedAt": format_time(start or EPOCH),
                "finishedAt": format_time(finished),
                "containerID": container_id(pod, container.name, attempt),
            }
            return {"terminated": ended | ({"message": message} if message else {})}
