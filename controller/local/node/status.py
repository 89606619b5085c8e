"""The status of a pod as a kubelet reports it, from what the node knows. Pure.

Source: Kubernetes, pkg/kubelet/kubelet_pods.go (getPhase, generateAPIPodStatus) and pkg/kubelet/status/generate.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from controller.local.node.containers import Container, Running, State, Terminated, Waiting

EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a pod has got from the node."""

    host_ip: str
    pod_ip: str
    started: datetime


def timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_status(
    pod: Mapping[str, Any],
    containers: Sequence[Container],
    facts: Facts,
    now: datetime,
    *,
    final_phase: str = "",
    reason: str = "",
    message: str = "",
) -> dict[str, Any]:
    """The whole status; ``final_phase`` is given where the node has ended the pod itself."""
    pod_phase = final_phase or phase(pod["spec"].get("restartPolicy") or "Always", containers)
    status: dict[str, Any] = {
        "phase": pod_phase,
        "conditions": _conditions(pod, containers, pod_phase, now),
        "hostIP": facts.host_ip,
        "hostIPs": [{"ip": facts.host_ip}],
        "podIP": facts.pod_ip,
        "podIPs": [{"ip": facts.pod_ip}],
        "startTime": timestamp(facts.started),
        "containerStatuses": [_container_status(pod, c) for c in containers if not c.is_init],
        "qosClass": qos_class(pod),
    }
    if any(c.is_init for c in containers):
        status["initContainerStatuses"] = [_container_status(pod, c) for c in containers if c.is_init]
    status.update({key: text for key, text in (("reason", reason), ("message", message)) if text})
    return status


def phase(policy: str, containers: Sequence[Container]) -> str:
    """Pending, Running, Succeeded or Failed."""
    pending = [c for c in containers if c.is_init and not c.is_sidecar and not _has_succeeded(c)]
    if pending:
        failed = any(isinstance(c.state, Terminated) and policy == "Never" for c in pending)
        return "Failed" if failed else "Pending"
    mains = [c for c in containers if not c.is_init]
    ends = [c.ended for c in mains]
    if any(isinstance(c.state, Waiting) and c.last is None for c in mains):
        return "Pending"
    if policy == "Always" or any(isinstance(c.state, Running) for c in mains):
        return "Running"
    if all(end is not None and end.succeeded for end in ends):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def phase_when_stopped(containers: Iterable[Container]) -> str:
    """The phase of a pod that is being deleted, once its processes are gone: it is always a final one."""
    ends = [c.ended for c in containers if not c.is_init]
    return "Succeeded" if ends and all(end is not None and end.succeeded for end in ends) else "Failed"


def qos_class(pod: Mapping[str, Any]) -> str:
    containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]
    resources = [c.get("resources") or {} for c in containers]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= set(r.get("limits") or {})
        and all(
            (r.get("requests") or r["limits"]).get(k, r["limits"][k]) == r["limits"][k]
            for k in ("cpu", "memory")
        )
        for r in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


def with_condition(pod: Mapping[str, Any], condition: dict[str, Any], now: datetime) -> dict[str, Any]:
    """``condition`` with the time of its last transition, which is now unless the pod has it with this status."""
    for old in (pod.get("status") or {}).get("conditions") or ():
        if old["type"] == condition["type"] and old["status"] == condition["status"]:
            return {**condition, "lastTransitionTime": old.get("lastTransitionTime") or timestamp(now)}
    return {**condition, "lastTransitionTime": timestamp(now)}


def _conditions(
    pod: Mapping[str, Any], containers: Sequence[Container], pod_phase: str, now: datetime
) -> list[dict[str, Any]]:
    waiting_inits = [c.name for c in containers if c.is_init and not _is_through(c)]
    unready = [c.name for c in containers if not c.is_init and not isinstance(c.state, Running)]
    initialized = {"type": "Initialized"} | _answer(
        waiting_inits, pod_phase, "ContainersNotInitialized", "containers with incomplete status"
    )
    ready = _answer(unready, pod_phase, "ContainersNotReady", "containers with unready status")
    if pod_phase == "Succeeded":
        initialized = {"type": "Initialized", "status": "True", "reason": "PodCompleted"}
    up = "False" if pod_phase in ("Succeeded", "Failed") else "True"
    conditions = [
        {"type": "PodReadyToStartContainers", "status": up},
        initialized,
        {"type": "Ready"} | ready,
        {"type": "ContainersReady"} | ready,
    ]
    return [*(with_condition(pod, condition, now) for condition in conditions), _scheduled(pod, now)]


def _answer(missing: list[str], pod_phase: str, reason: str, words: str) -> dict[str, Any]:
    if not missing:
        return {"status": "True"}
    if pod_phase == "Succeeded":
        return {"status": "False", "reason": "PodCompleted"}
    if pod_phase == "Failed":
        return {"status": "False", "reason": "PodFailed"}
    return {"status": "False", "reason": reason, "message": f"{words}: [{' '.join(missing)}]"}


def _scheduled(pod: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    return with_condition(pod, {"type": "PodScheduled", "status": "True"}, now)


def _has_succeeded(container: Container) -> bool:
    return isinstance(container.state, Terminated) and container.state.succeeded


def _is_through(container: Container) -> bool:
    return isinstance(container.state, Running) if container.is_sidecar else _has_succeeded(container)


def _container_status(pod: Mapping[str, Any], container: Container) -> dict[str, Any]:
    running = isinstance(container.state, Running)
    status: dict[str, Any] = {
        "name": container.name,
        "image": container.spec.get("image", ""),
        "imageID": "",
        "ready": _has_succeeded(container) if container.is_init and not container.is_sidecar else running,
        "started": running,
        "restartCount": container.restarts,
        "state": _state(pod, container, container.state),
        "lastState": {} if container.last is None else _state(pod, container, container.last),
    }
    if running or container.ended is not None:
        status["containerID"] = container_id(pod, container.name, container.restarts)
    return status


def container_id(pod: Mapping[str, Any], container: str, attempt: int) -> str:
    return f"process://{pod['metadata']['uid']}/{container}/{attempt}"


def _state(pod: Mapping[str, Any], container: Container, state: State) -> dict[str, Any]:
    match state:
        case Waiting(reason, message):
            return {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        case Running(since):
            return {"running": {"startedAt": timestamp(since)}}
        case Terminated(exit_code, reason, start, finished, message, attempt):
            ended: dict[str, Any] = {
                "exitCode": exit_code,
                "reason": reason,
                "startedAt": timestamp(start or EPOCH),
                "finishedAt": timestamp(finished),
                "containerID": container_id(pod, container.name, attempt),
            }
            return {"terminated": ended | ({"message": message} if message else {})}
