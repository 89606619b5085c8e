"""Causes in single pods.

The rules run in order, from the root cause outwards. The first rule that returns a cause decides for a pod.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from api import pod_problems
from api.pod_problems import (
    CRASH_LOOP,
    STARTING,
    ProblemType,
    Waiting,
    container_problems,
    is_gang_refusal,
    read_status,
    unscheduled,
)
from rallypoint.diagnosis.objects import (
    Object,
    condition,
    container_statuses,
    deletion_requested_at,
    event_time,
    is_being_deleted,
    is_condition_true,
    is_pod_terminal,
    name_of,
    parse_timestamp,
    reason_and_message,
    running_init_statuses,
    spec_of,
    state_of,
    status_of,
    transition_time,
)
from rallypoint.diagnosis.snapshot import Cause, JobSnapshot, group_by_text
from rallypoint.diagnosis.terminations import describe_repeated_termination, next_step, pod_failure

_EVENT_CLOCK_SKEW = timedelta(seconds=2)
"""The largest difference between the time of an event and the time of what it reports."""
_SCHEDULING_STEPS = {
    re.compile(r"Insufficient"): "request less, free what other pods hold, or add nodes",
    re.compile(r"(?i:persistentvolumeclaim)"): (
        "create the PersistentVolumeClaim that the message names; one that is not bound needs a StorageClass or a PersistentVolume"
    ),
    re.compile(r"taint|affinity|selector|unschedulable"): (
        "change the template's nodeSelector, affinity or tolerations so that they match existing nodes"
    ),
}
"""By parts of scheduling messages, the most likely cause first: some nodes have taints in every cluster."""
_IMAGE_STEP = "correct the image or its imagePullSecrets{}"
_AGAIN = ", delete the job and create it again"
_AGAIN_WHEN_DELETED = " and create the job again"
_OTHER_START_STEP = "create what the message names, or correct the pod template and create the job again"
_START_STEPS = {
    **dict.fromkeys(
        ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"), _IMAGE_STEP
    ),
    "Refused": "correct the pod template{}",  # Local mode's reason.
    "CreateContainerConfigError": "create the ConfigMap or Secret that the message names; the kubelet tries again",
}
"""By the reason of a container that cannot start, with a place for how to create the job again."""

Rule = Callable[[JobSnapshot, Object], Cause | None]


def causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield the causes, root causes first. Pods with the same cause share one entry.

    Of pods that are deleted with their job, only what blocked them before.
    """
    found: list[list[Cause]] = [[] for _ in _RULES]
    gone = {pod["metadata"]["uid"] for pod in snapshot.pods_deleted_with_job}
    for pod in (*snapshot.pods, *snapshot.pods_deleted_with_job):
        is_gone = pod["metadata"]["uid"] in gone or (snapshot.is_deleted and is_being_deleted(pod))
        for index, rule in enumerate(_RULES):
            if is_gone and rule not in _RULES_BEFORE_DELETION:
                continue
            if cause := rule(snapshot, pod):
                is_old = pod["metadata"]["uid"] in snapshot.replaced_pod_uids
                found[index].append(replace(cause, blocks=False) if is_old else cause)
                break
    for group in found:
        yield from group_by_text(group)


def is_unschedulable(pod: Object) -> bool:
    """Return whether no node fits the pod itself, as opposed to other pods of its gang."""
    condition = unscheduled(read_status(pod))
    return condition is not None and not is_gang_refusal(condition.message)


def _terminating(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """The pod is being deleted and still exists. Its name stays in use until it is gone."""
    deleted_at = deletion_requested_at(pod)
    if deleted_at is None:
        return None
    due = parse_timestamp(pod["metadata"]["deletionTimestamp"]) or deleted_at
    if snapshot.now <= due:
        why = condition(pod, "DisruptionTarget").get("message")
        text = "being deleted, within its grace period"
        return _cause(pod, f"{text}: {why}" if why else text, deleted_at)
    finalizers = ", ".join(pod["metadata"].get("finalizers") or ())
    silent = (
        "it has terminated, its removal is pending"
        if is_pod_terminal(pod)
        else "its node has not reported its termination"
    )
    held = f"it has finalizers: {finalizers}" if finalizers else _lost_node(snapshot, pod) or silent
    step = (
        "whoever set the finalizers must remove them"
        if finalizers
        else f"if its node is gone for good: kubectl delete pod {name_of(pod)} -n {snapshot.namespace} --force"
    )
    return _cause(pod, f"still exists after its grace period: {held}", deleted_at, next_step=step)


def _on_lost_node(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    lost = _lost_node(snapshot, pod)
    if not lost or is_pod_terminal(pod):
        return None
    node = spec_of(pod)["nodeName"]
    step = f"wait for the node, or, if it is gone for good: kubectl delete node {node}"
    return _cause(pod, lost, transition_time(snapshot.nodes[node], "Ready"), next_step=step)


def _lost_node(snapshot: JobSnapshot, pod: Object) -> str:
    """Describe the pod's node if it is not Ready; empty if it is Ready or unknown."""
    node = snapshot.nodes.get(spec_of(pod).get("nodeName") or "")
    if node is None or is_condition_true(node, "Ready"):
        return ""
    ready = condition(node, "Ready")
    return f"node {name_of(node)} is not Ready: {ready.get('message') or ready.get('reason') or 'no message'}"


def _unscheduled(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """No node fits the pod, or no scheduler has considered it."""
    spec = spec_of(pod)
    if not _has_no_node(pod):
        return None
    made = parse_timestamp(pod["metadata"]["creationTimestamp"])
    if gates := ", ".join(gate["name"] for gate in spec.get("schedulingGates") or ()):
        return _cause(
            pod, f"has scheduling gates: {gates}", made, next_step="whoever set the gates must remove them"
        )
    if unscheduled(read_status(pod)) is None:
        scheduler = spec.get("schedulerName") or "default-scheduler"
        return _cause(
            pod,
            f"waiting for the scheduler {scheduler}, which has not reported on it",
            made,
            next_step="check that a scheduler with this name is running",
        )
    return _scheduling_cause(pod) if is_unschedulable(pod) else None


def _unscheduled_gang(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """The pod waits for the rest of its gang."""
    is_refused = unscheduled(read_status(pod)) is not None
    return _scheduling_cause(pod) if is_refused and _has_no_node(pod) else None


def _has_no_node(pod: Object) -> bool:
    return not spec_of(pod).get("nodeName") and not is_pod_terminal(pod)


def _scheduling_cause(pod: Object) -> Cause:
    text = reason_and_message(condition(pod, "PodScheduled")) or "not scheduled"
    at = transition_time(pod, "PodScheduled") or parse_timestamp(pod["metadata"]["creationTimestamp"])
    step = next((step for pattern, step in _SCHEDULING_STEPS.items() if pattern.search(text)), "")
    return _cause(pod, text, at, next_step=step)


def _cannot_start(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """A container cannot start: its spec cannot be run, or something that it needs, such as a volume, is missing."""
    for problem in container_problems(read_status(pod)):
        if problem.waiting and problem.type is ProblemType.CANNOT_START:
            texts = [
                pod_problems.reason_and_message(problem.waiting),
                _pull_failure(snapshot, pod, problem.waiting),
            ]
            step = _START_STEPS.get(problem.waiting.reason, _OTHER_START_STEP)
            at = transition_time(pod, "PodScheduled")
            cause = _cause(pod, ": ".join(filter(None, texts)), at, next_step=step.format(_AGAIN))
            return replace(cause, step_when_deleted=step.format(_AGAIN_WHEN_DELETED))
    if _is_starting(pod) and (warning := _newest_warning(snapshot, pod)):
        return _cause(pod, warning, transition_time(pod, "PodScheduled"), next_step=_OTHER_START_STEP)
    return None


def _pull_failure(snapshot: JobSnapshot, pod: Object, waiting: Waiting) -> str:
    """Return the pull error from the events when the status reports only the back-off."""
    if waiting.reason != "ImagePullBackOff" or "rror" in waiting.message:
        return ""
    messages = (str(event.get("message")) for event in snapshot.events_of(pod))
    return next((message for message in messages if message.startswith("Failed to pull image")), "")


def _crashing(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """A container has failed and the kubelet will restart it, or would have if the job had not been deleted."""
    if is_pod_terminal(pod) and not snapshot.is_deleted:
        return None
    deleted_at = deletion_requested_at(pod) if snapshot.is_deleted else None
    for problem in container_problems(read_status(pod)):
        if end := problem.termination:
            at = parse_timestamp(end.finished_at)
            if at and deleted_at and at >= deleted_at:
                continue  # The deletion stopped it.
            ended = describe_repeated_termination(problem.container, problem.restarts + 1, end)
            loop = f"{CRASH_LOOP}: " if problem.type is ProblemType.CRASH_LOOP else ""
            text = f"{loop}{ended}{_probe_failure(snapshot, pod, problem.container, at)}"
            log_command = _log_command(
                snapshot, pod, problem.container, previous=problem.type is ProblemType.CRASH_LOOP
            )
            return _cause(
                pod, text, at, _quote(snapshot, pod, problem.container, text), next_step(text, log_command)
            )
    return None


def _probe_failure(snapshot: JobSnapshot, pod: Object, container: str, at: datetime | None) -> str:
    """Return the failed probe for which the kubelet killed the container.

    The kubelet records the event before the grace period of the container.
    """
    grace = timedelta(seconds=spec_of(pod).get("terminationGracePeriodSeconds") or 30)
    for event in snapshot.events_of(pod):
        message, when = str(event.get("message") or ""), parse_timestamp(event_time(event))
        if message.startswith(f"Container {container} failed ") and at and when:
            return f" ({message})" if at - grace - _EVENT_CLOCK_SKEW <= when <= at + _EVENT_CLOCK_SKEW else ""
    return ""


def _failed(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """The pod has failed in a job that has not finished."""
    failure = pod_failure(pod) if status_of(pod).get("phase") == "Failed" else None
    if failure is None:
        return None
    quote = _quote(snapshot, pod, failure.container, failure.text)
    step = next_step(failure.text, _log_command(snapshot, pod, failure.container))
    return _cause(pod, f"failed: {failure.text}", failure.at, quote, step)


def _starting(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """The pod has a node and no known problem."""
    if not _is_starting(pod):
        return None
    scheduled_at = transition_time(pod, "PodScheduled")
    if not container_statuses(pod):
        return _cause(pod, f"waiting for node {spec_of(pod).get('nodeName')} to start it", scheduled_at)
    images = (
        event.get("reason")
        for event in snapshot.events_of(pod)
        if event.get("reason") in {"Pulling", "Pulled"}
    )
    pulls = next(images, "") == "Pulling"
    return _cause(pod, "pulling its image" if pulls else "creating its containers", scheduled_at)


def _is_starting(pod: Object) -> bool:
    """Return whether no container of the pod has started and no init container runs."""
    found = container_statuses(pod)
    if is_pod_terminal(pod) or running_init_statuses(pod) or not spec_of(pod).get("nodeName"):
        return False
    return not found or any(state_of(status, "waiting").get("reason") in STARTING for status in found)


def _preparing(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    for status in running_init_statuses(pod):
        started_at = parse_timestamp(state_of(status, "running").get("startedAt"))
        return _cause(
            pod, f"running init container {status['name']}", started_at, _quote(snapshot, pod, status["name"])
        )
    return None


def _unready(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    if is_condition_true(pod, "Ready") or not any(
        state_of(status, "running") for status in container_statuses(pod)
    ):
        return None
    running = [status["name"] for status in container_statuses(pod) if state_of(status, "running")]
    if completed := [status["name"] for status in container_statuses(pod) if state_of(status, "terminated")]:
        text = f"container {', '.join(completed)} has completed, {', '.join(running)} still runs and keeps the pod running"
        return _cause(pod, text, transition_time(pod, "Ready"))
    message = _newest_warning(snapshot, pod) or condition(pod, "Ready").get("message")
    return _cause(
        pod,
        f"running, not ready: {message}" if message else "running, not ready",
        transition_time(pod, "Ready"),
    )


def _was_restarted(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """The kubelet has restarted a container that runs now. This blocks nothing."""
    status = read_status(pod)
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        last = container.last_state and container.last_state.terminated
        if last and container.restart_count:
            at = parse_timestamp(last.finished_at)
            ended = describe_repeated_termination(container.name, container.restart_count, last)
            text = f"{ended}{_probe_failure(snapshot, pod, container.name, at)}; the kubelet restarted it"
            return replace(_cause(pod, text, at), blocks=False)
    return None


def _cause(pod: Object, text: str, at: datetime | None, quote: str = "", next_step: str = "") -> Cause:
    return Cause((name_of(pod),), text, at, quote=quote, next_step=next_step)


def _log_command(snapshot: JobSnapshot, pod: Object, container: str, *, previous: bool = False) -> str:
    flags = " --previous" if previous else ""
    return (
        f"rallypoint logs {name_of(pod)} -c {container} -n {snapshot.namespace}{flags}" if container else ""
    )


def _newest_warning(snapshot: JobSnapshot, pod: Object) -> str:
    """Return the newest event since the pod was scheduled, if it is a warning."""
    scheduled_at = transition_time(pod, "PodScheduled")
    newest = next(iter(snapshot.events_of(pod)), None)
    if newest is None or newest.get("type") != "Warning" or newest.get("reason") == "FailedScheduling":
        return ""
    at = parse_timestamp(event_time(newest))
    return "" if scheduled_at and at and at < scheduled_at else reason_and_message(newest)


def _quote(snapshot: JobSnapshot, pod: Object, container: str, text: str = "") -> str:
    """Return the last log line of the container, unless ``text`` already ends with it."""
    line = snapshot.last_line(name_of(pod), container)
    if snapshot.is_deleted:
        line = line or snapshot.last_line_of_deleted_pod(name_of(pod))
    return "" if text.endswith(line) else line


_RULES: Sequence[Rule] = (
    _terminating, _on_lost_node, _unscheduled, _unscheduled_gang, _cannot_start, _crashing, _failed, _starting, _preparing, _unready, _was_restarted,
)  # fmt: skip
_RULES_BEFORE_DELETION = (_on_lost_node, _unscheduled, _unscheduled_gang, _cannot_start, _crashing)
