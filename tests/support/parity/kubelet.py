"""The status that a case's pods report, in the form of a kubelet."""

from datetime import UTC, datetime
from typing import Any

import msgspec

_DONE = frozenset({"Succeeded", "Failed"})


class State(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The state of a pod in a case; ``reason``, ``message`` and ``exit_code`` are those of its containers."""

    phase: str
    exit_code: int | dict[str, int] | None = None
    """Of all containers, or by container; those not named have exited with 0. By default it follows from the phase."""
    reason: str = ""
    message: str | None = None
    pod_reason: str | None = None
    pod_message: str | None = None
    restart_count: int = 0
    ready: bool | None = None
    """By default a running pod is ready."""
    no_containers: bool = False

    @property
    def is_ready(self) -> bool:
        return self.phase == "Running" if self.ready is None else self.ready


def state(said: str | dict[str, Any]) -> State:
    """Return the state that a step names or spells out. msgspec.ValidationError: unknown fields."""
    return State(said) if isinstance(said, str) else msgspec.convert(said, State)


def pod_status(spec: dict[str, Any], state: State, now: datetime) -> dict[str, Any]:
    """Return the pod's whole ``status`` as a merge patch: nulls remove earlier values."""
    time = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status: dict[str, Any] = {
        "phase": state.phase,
        "startTime": time,
        "conditions": [_ready(state, time)],
        "reason": state.pod_reason,
        "message": state.pod_message,
    }
    if state.no_containers:
        return {**status, "containerStatuses": None}
    status["containerStatuses"] = [
        _container(container, _now(container["name"], state, time), state, ready=state.is_ready)
        for container in spec["containers"]
    ]
    if spec.get("initContainers") and state.phase != "Pending":
        done = _terminated(0, "Completed", None, time)
        status["initContainerStatuses"] = [
            _container(container, done, State(state.phase), ready=False)
            for container in spec["initContainers"]
        ]
    return status


def _ready(state: State, time: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": str(state.is_ready), "lastTransitionTime": time}
    if state.phase in _DONE:
        condition["reason"] = "PodCompleted" if state.phase == "Succeeded" else "PodFailed"
    return condition


def _container(
    container: dict[str, Any], now: dict[str, Any], state: State, *, ready: bool
) -> dict[str, Any]:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready and "running" in now,
        "restartCount": state.restart_count,
        "state": now,
    }


def _now(name: str, state: State, time: str) -> dict[str, Any]:
    match state.phase:
        case "Running":
            return {"running": {"startedAt": time}}
        case "Pending":
            waiting = {"reason": state.reason or "ContainerCreating", "message": state.message}
            return {"waiting": {key: value for key, value in waiting.items() if value}}
        case _:
            code = _exit_code(name, state)
            reason = state.reason or ("Error" if code else "Completed")
            return _terminated(code, reason, state.message, time)


def _exit_code(name: str, state: State) -> int:
    match state.exit_code:
        case None:
            return 0 if state.phase == "Succeeded" else 1
        case int(code):
            return code
        case codes:
            return codes.get(name, 0)


def _terminated(code: int, reason: str, message: str | None, time: str) -> dict[str, Any]:
    ended = {"exitCode": code, "reason": reason, "message": message, "startedAt": time, "finishedAt": time}
    return {"terminated": ended}
