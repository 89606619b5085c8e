"""Finds the problems of a pod in its status.

The operator's events, ``rallypoint why``, the progress of ``rallypoint run`` and the benchmarks use these functions and add only
their own wording. Pure functions over typed statuses.
"""

import re
import signal
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from api.messages import without_control, without_numbers
from api.restart_report import report_in

CRASH_LOOP: Final = "CrashLoopBackOff"
"""Reason of a failed container that the kubelet restarts after a back-off."""
STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of containers that only wait to be started."""
_SCHEDULED: Final = "PodScheduled"
"""The type of the condition in which a scheduler reports why a pod has no node."""
_GANG_REFUSAL: Final = re.compile(
    r"optimistic rejection|rejection in Unreserve|rejected (?:due to timeout|while waiting on permit)"
    r"|podGroup \S+ failed recently|cannot find enough sibling pods|pod group is not ready|pod group is unschedulable"
)
"""In messages for the rest of a gang. Coscheduling's "gets rejected due to Pod … even after PostFilter" is for the pod that fits no node, too.

Source: scheduler-plugins 0.32, pkg/coscheduling; volcano 1.14, pkg/scheduler/plugins/gang; Kubernetes 1.37, pkg/scheduler.
"""
_MESSAGE_LINES: Final = 3
"""Lines of a termination message that a description contains."""
_STATUS_UNKNOWN: Final = "ContainerStatusUnknown"
"""The kubelet reports exit code 137 with this reason when it cannot find the container."""


class Termination(msgspec.Struct, rename="camel"):
    """The end of one run of a container. Times have the format of the API."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class Waiting(msgspec.Struct):
    """Why a container does not run yet, or not any more."""

    reason: str = ""
    message: str = ""


class Running(msgspec.Struct, rename="camel"):
    """Since when a container runs."""

    started_at: str | None = None


class ContainerState(msgspec.Struct):
    """One of the three states; none for a container that the node has not reported yet."""

    terminated: Termination | None = None
    waiting: Waiting | None = None
    running: Running | None = None


NO_STATE: Final = ContainerState()


class DeviceHealth(msgspec.Struct, rename={"resource_id": "resourceID"}):
    """One device of a container. ``health`` is Healthy, Unhealthy or Unknown."""

    resource_id: str = ""
    health: str = ""


class AllocatedResource(msgspec.Struct):
    """The devices of one resource that a container has."""

    name: str = ""
    resources: list[DeviceHealth] | None = None


class ContainerStatus(msgspec.Struct, rename="camel"):
    """One container. ``last_state`` is that of the previous run. Kubelets report the health of devices from Kubernetes 1.36 on."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    allocated_resources_status: list[AllocatedResource] | None = None


class PodCondition(msgspec.Struct, rename="camel"):
    """One condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(
    msgspec.Struct,
    rename={
        "container_statuses": "containerStatuses",
        "init_container_statuses": "initContainerStatuses",
        "pod_ip": "podIP",
    },
):
    """The parts of a pod's status that show its problems."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    conditions: list[PodCondition] | None = None

    @property
    def is_finished(self) -> bool:
        return self.phase in {"Succeeded", "Failed"}


class ProblemType(Enum):
    """Why a container does not run."""

    STARTING = "starting"
    """It waits to be started, for the reason that the node reports."""
    CANNOT_START = "cannot start"
    """It waits for a reason other than the normal start, such as ImagePullBackOff."""
    CRASH_LOOP = "crash loop"
    """It has failed, and the kubelet restarts it after a back-off."""
    FAILED = "failed"
    """It has failed and does not run. The kubelet restarts it unless the pod has ended."""


class ContainerProblem(msgspec.Struct, frozen=True):
    """A container that does not run and has not succeeded.

    ``waiting`` is set unless the container FAILED; ``termination`` is the failed run of a container that FAILED or is in a CRASH_LOOP, if
    the kubelet has reported it.
    """

    type: ProblemType
    container: str
    is_init: bool
    restarts: int
    waiting: Waiting | None = None
    termination: Termination | None = None


class Trouble(msgspec.Struct, frozen=True, gc=False):
    """A problem of a pod as an event reports it.

    Two with equal reason and ``similar`` are the same trouble, whatever their messages: a scheduler writes a new text whenever a node changes,
    and a kubelet writes the current delay.
    """

    reason: str
    message: str
    similar: str

    @property
    def is_scheduling(self) -> bool:
        """Whether a scheduler reported it."""
        return self.similar == _SCHEDULED


def read_status(pod: Mapping[str, Any]) -> PodStatus:
    """Parse the status of a pod from plain data. Missing and null fields count as empty.

    Raises:
        msgspec.ValidationError: a field has the wrong type.
    """
    status = pod.get("status") or {}
    try:
        return msgspec.convert(status, PodStatus)
    except msgspec.ValidationError:  # an API server writes no nulls, so the copy is rarely needed
        return msgspec.convert(_without_nulls(status), PodStatus)


def container_problems(status: PodStatus) -> list[ContainerProblem]:
    """Return the containers with a problem, init containers first."""
    return [
        problem
        for containers, is_init in (
            (status.init_container_statuses, True),
            (status.container_statuses, False),
        )
        for container in containers or ()
        if (problem := _container_problem(container, is_init))
    ]


def failed_before_restart(status: PodStatus) -> list[tuple[str, Termination]]:
    """Return the containers that run again after a failed run, init containers excluded, each with the end of that run."""
    return [
        (container.name, end)
        for container in status.container_statuses or ()
        if (container.state or NO_STATE).running
        and (end := (container.last_state or NO_STATE).terminated)
        and end.exit_code
    ]


def unscheduled(status: PodStatus) -> PodCondition | None:
    """Return the condition with the scheduler's reason why the pod has no node; None if there is none."""
    return next(
        (
            condition
            for condition in status.conditions or ()
            if condition.type == _SCHEDULED and condition.status == "False"
        ),
        None,
    )


def is_gang_refusal(message: str) -> bool:
    """Return whether a scheduler's message says that the pod waits for the rest of its gang, not why no node fits the pod itself."""
    return _GANG_REFUSAL.search(message) is not None


def troubles(pod: str, status: PodStatus) -> tuple[Trouble, ...]:
    """Return the troubles of the named pod that the job's events report.

    They come from container statuses if there are any, else from those of init containers, else from the newest condition.

    Source: training-operator 1.9, pkg/controller.v1/common/job.go, recordAbnormalPods.
    """
    if status.is_finished:
        return ()
    if status.container_statuses or status.init_container_statuses:
        only_init = not status.container_statuses
        found = (problem for problem in container_problems(status) if problem.is_init is only_init)
        return tuple(trouble for problem in found if (trouble := _container_trouble(pod, problem)))
    newest = max(status.conditions or (), key=lambda c: c.last_transition_time or "", default=None)
    if newest is None or newest.status == "True" or not newest.message:
        return ()
    return (Trouble(newest.reason, f"Error pod {pod} condition message: {newest.message}", newest.type),)


def describe_exit(code: int, reason: str, message: str) -> str:
    """Return text such as ``exit code 137, killed by SIGKILL (OOMKilled)``, with the end of the termination message.

    For a container that ended for a restart in place, both are those of its command.
    """
    if report := report_in(code, message):
        code, message = report.exit_code, report.message
    text = f"exit code {code}" if reason == _STATUS_UNKNOWN else describe_exit_code(code)
    if reason not in {"", "Error", "Completed"}:
        text += f" ({reason})"
    return ": ".join(filter(None, (text, last_lines(message))))


def last_lines(message: str) -> str:
    """Return the last lines of a termination message in one line, without terminal control: a program wrote it."""
    lines = (without_control(line).strip() for line in message.splitlines())
    return " / ".join(list(filter(None, lines))[-_MESSAGE_LINES:])


def describe_exit_code(code: int) -> str:
    """Return text such as ``exit code 1``, or ``exit code 137, killed by SIGKILL`` for a code above 128."""
    killed = _signal(code - 128) if code > 128 else ""
    return f"exit code {code}, killed by {killed}" if killed else f"exit code {code}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def reason_and_message(given: Waiting | PodCondition | PodStatus) -> str:
    """Return ``Reason: message``, or the one that is not empty."""
    return ": ".join(filter(None, (given.reason.strip(), given.message.strip())))


def _container_problem(container: ContainerStatus, is_init: bool) -> ContainerProblem | None:
    state = container.state or NO_STATE
    if (end := state.terminated) and end.exit_code:
        return ContainerProblem(
            ProblemType.FAILED, container.name, is_init, container.restart_count, termination=end
        )
    if state.waiting is None:
        return None
    last = (container.last_state or NO_STATE).terminated
    if state.waiting.reason == CRASH_LOOP:
        type_, end = ProblemType.CRASH_LOOP, last if last and last.exit_code else None
    elif state.waiting.reason not in STARTING:
        type_, end = ProblemType.CANNOT_START, None
    elif state.waiting.message:
        type_, end = ProblemType.STARTING, None
    else:
        return None
    return ContainerProblem(type_, container.name, is_init, container.restart_count, state.waiting, end)


def _container_trouble(pod: str, problem: ContainerProblem) -> Trouble | None:
    if waiting := problem.waiting:
        if not waiting.message:
            return None
        reason, text = waiting.reason, f"waiting message: {waiting.message}"
    else:
        end = problem.termination or Termination()
        reason, text = end.reason, f"exitCode: {end.exit_code} terminated message: {end.message}"
    # Some messages of the kubelet also contain the pod's name, which may lack a number if somebody else chose it.
    similar = f"{problem.container} {without_numbers(text.replace(pod, '#'))}"
    return Trouble(reason, f"Error pod {pod} container {problem.container} {text}", similar)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value if item is not None]
    return value
