"""What holds single pods up. Of each pod the first rule that knows something speaks; earlier rules are nearer to the root."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from rallypoint.diagnosis.objects import (
    CRASH_LOOP,
    Object,
    all_container_statuses,
    condition,
    container_statuses,
    deletion_requested_at,
    event_time,
    failed_termination,
    is_condition_true,
    is_crash_looping,
    is_pod_terminal,
    last_termination,
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
from rallypoint.diagnosis.terminations import describe_repeated_termination, pod_failure

_STARTING = {"ContainerCreating", "PodInitializing"}
_EVENT_CLOCK_SKEW = timedelta(seconds=2)
"""How far the times of an event and of what it is of may lie apart."""
_GANG_MESSAGES = re.compile(r"rejected.*(?i:permit|postfilter)|pod group is not ready", re.DOTALL)
"""What the coscheduling of scheduler-plugins, and Volcano, say of pods that wait for others."""

Rule = Callable[[JobSnapshot, Object], Cause | None]


def causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """The nearest to the root first; pods of which the same is to be said are named together."""
    found: list[list[Cause]] = [[] for _ in _RULES]
    for pod in snapshot.pods:
        for index, rule in enumerate(_RULES):
            if cause := rule(snapshot, pod):
                is_old = pod["metadata"]["uid"] in snapshot.replaced_pod_uids
                found[index].append(replace(cause, blocks=False) if is_old else cause)
                break
    for group in found:
        yield from group_by_text(group)


def is_unschedulable(pod: Object) -> bool:
    """Whether no node takes it, and not only because others of its gang find none."""
    scheduled = condition(pod, "PodScheduled")
    return scheduled.get("status") == "False" and not _GANG_MESSAGES.search(str(scheduled.get("message")))


def _terminating(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """Told to go, and still there: its name is not free before it has gone."""
    deleted_at = deletion_requested_at(pod)
    if deleted_at is None:
        return None
    due = parse_timestamp(pod["metadata"]["deletionTimestamp"]) or deleted_at
    if snapshot.now <= due:
        why = condition(pod, "DisruptionTarget").get("message")
        text = "told to go, within its grace period"
        return _cause(pod, f"{text}: {why}" if why else text, deleted_at)
    finalizers = ", ".join(pod["metadata"].get("finalizers") or ())
    silent = (
        "it has ended, and is to be removed"
        if is_pod_terminal(pod)
        else "its node has not said that it has ended"
    )
    held = f"its finalizers hold it: {finalizers}" if finalizers else _lost_node(snapshot, pod) or silent
    return _cause(pod, f"told to go, and still there: {held}", deleted_at)


def _on_lost_node(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    lost = _lost_node(snapshot, pod)
    if not lost or is_pod_terminal(pod):
        return None
    return _cause(pod, lost, transition_time(snapshot.nodes[spec_of(pod)["nodeName"]], "Ready"))


def _lost_node(snapshot: JobSnapshot, pod: Object) -> str:
    """What is wrong with the node that the pod is on; nothing when that is Ready or not known."""
    node = snapshot.nodes.get(spec_of(pod).get("nodeName") or "")
    if node is None or is_condition_true(node, "Ready"):
        return ""
    ready = condition(node, "Ready")
    return f"node {name_of(node)} is not Ready: {ready.get('message') or ready.get('reason') or 'it has said nothing'}"


def _unscheduled(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """No node takes it, or nobody looks for one."""
    spec = spec_of(pod)
    if not _has_no_node(pod):
        return None
    made = parse_timestamp(pod["metadata"]["creationTimestamp"])
    if gates := ", ".join(gate["name"] for gate in spec.get("schedulingGates") or ()):
        return _cause(pod, f"not to be scheduled while it has scheduling gates: {gates}", made)
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "False":
        scheduler = spec.get("schedulerName") or "default-scheduler"
        return _cause(pod, f"waiting for the scheduler {scheduler}, which has not said anything of it", made)
    return _scheduling_cause(pod) if is_unschedulable(pod) else None


def _unscheduled_gang(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """It waits for others of its gang."""
    is_refused = condition(pod, "PodScheduled").get("status") == "False"
    return _scheduling_cause(pod) if is_refused and _has_no_node(pod) else None


def _has_no_node(pod: Object) -> bool:
    return not spec_of(pod).get("nodeName") and not is_pod_terminal(pod)


def _scheduling_cause(pod: Object) -> Cause:
    text = reason_and_message(condition(pod, "PodScheduled")) or "not scheduled"
    return _cause(
        pod,
        text,
        transition_time(pod, "PodScheduled") or parse_timestamp(pod["metadata"]["creationTimestamp"]),
    )


def _cannot_start(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """A container that cannot be started as it is asked for, or one that something is missing for, such as a volume."""
    for status in all_container_statuses(pod):
        waiting = state_of(status, "waiting")
        if waiting.get("reason") not in {None, CRASH_LOOP, *_STARTING}:
            texts = [reason_and_message(waiting), _pull_failure(snapshot, pod, waiting)]
            return _cause(pod, ": ".join(filter(None, texts)), transition_time(pod, "PodScheduled"))
    if _is_starting(pod) and (warning := _newest_warning(snapshot, pod)):
        return _cause(pod, warning, transition_time(pod, "PodScheduled"))
    return None


def _pull_failure(snapshot: JobSnapshot, pod: Object, waiting: Object) -> str:
    """Why an image cannot be pulled, when the kubelet writes only that it waits before it tries again."""
    if waiting.get("reason") != "ImagePullBackOff" or "rror" in str(waiting.get("message")):
        return ""
    messages = (str(event.get("message")) for event in snapshot.events_of(pod))
    return next((message for message in messages if message.startswith("Failed to pull image")), "")


def _crashing(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """A container that has failed, and is to be started again."""
    for status in all_container_statuses(pod):
        end = failed_termination(status)
        if end and not is_pod_terminal(pod):
            at = parse_timestamp(end.get("finishedAt"))
            ended = describe_repeated_termination(status, (status.get("restartCount") or 0) + 1, end)
            text = f"{f'{CRASH_LOOP}: ' if is_crash_looping(status) else ''}{ended}{_probe_failure(snapshot, pod, status['name'], at)}"
            return _cause(pod, text, at, _quote(snapshot, pod, status["name"], text))
    return None


def _probe_failure(snapshot: JobSnapshot, pod: Object, container: str, at: datetime | None) -> str:
    """Why the kubelet has ended it, if it has: a probe that failed. It says so before the container has its grace period."""
    grace = timedelta(seconds=spec_of(pod).get("terminationGracePeriodSeconds") or 30)
    for event in snapshot.events_of(pod):
        message, when = str(event.get("message") or ""), parse_timestamp(event_time(event))
        if message.startswith(f"Container {container} failed ") and at and when:
            return f" ({message})" if at - grace - _EVENT_CLOCK_SKEW <= when <= at + _EVENT_CLOCK_SKEW else ""
    return ""


def _failed(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """Over, in a job that is not."""
    failure = pod_failure(pod) if status_of(pod).get("phase") == "Failed" else None
    if failure is None:
        return None
    quote = _quote(snapshot, pod, failure.container, failure.text)
    return _cause(pod, f"failed: {failure.text}", failure.at, quote)


def _starting(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """On a node, and nothing is known to be wrong."""
    if not _is_starting(pod):
        return None
    scheduled_at = transition_time(pod, "PodScheduled")
    if not container_statuses(pod):
        return _cause(pod, f"waiting for node {spec_of(pod).get('nodeName')} to take it up", scheduled_at)
    images = (
        event.get("reason")
        for event in snapshot.events_of(pod)
        if event.get("reason") in {"Pulling", "Pulled"}
    )
    pulls = next(images, "") == "Pulling"
    return _cause(
        pod, "its image is being pulled" if pulls else "its containers are being made", scheduled_at
    )


def _is_starting(pod: Object) -> bool:
    """Whether no container of it has been started, and no preparation runs."""
    found = container_statuses(pod)
    if is_pod_terminal(pod) or running_init_statuses(pod) or not spec_of(pod).get("nodeName"):
        return False
    return not found or any(state_of(status, "waiting").get("reason") in _STARTING for status in found)


def _preparing(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    for status in running_init_statuses(pod):
        started_at = parse_timestamp(state_of(status, "running").get("startedAt"))
        return _cause(
            pod, f"in init container {status['name']}", started_at, _quote(snapshot, pod, status["name"])
        )
    return None


def _unready(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    if is_condition_true(pod, "Ready") or not any(
        state_of(status, "running") for status in container_statuses(pod)
    ):
        return None
    running = [status["name"] for status in container_statuses(pod) if state_of(status, "running")]
    if completed := [status["name"] for status in container_statuses(pod) if state_of(status, "terminated")]:
        text = f"container {', '.join(completed)} is done, and {', '.join(running)} still runs, which keeps the pod from ending"
        return _cause(pod, text, transition_time(pod, "Ready"))
    message = _newest_warning(snapshot, pod) or condition(pod, "Ready").get("message")
    return _cause(
        pod,
        f"running, and not ready: {message}" if message else "running, and not ready",
        transition_time(pod, "Ready"),
    )


def _was_restarted(snapshot: JobSnapshot, pod: Object) -> Cause | None:
    """It goes on, which is worth knowing."""
    for status in all_container_statuses(pod):
        last = last_termination(status)
        if last and status.get("restartCount"):
            at = parse_timestamp(last.get("finishedAt"))
            ended = describe_repeated_termination(status, status["restartCount"], last)
            text = f"{ended}{_probe_failure(snapshot, pod, status['name'], at)}, and was started again"
            return replace(_cause(pod, text, at), blocks=False)
    return None


def _cause(pod: Object, text: str, at: datetime | None, quote: str = "") -> Cause:
    return Cause((name_of(pod),), text, at, quote=quote)


def _newest_warning(snapshot: JobSnapshot, pod: Object) -> str:
    """What was said last of the pod on its node, if that is a warning."""
    scheduled_at = transition_time(pod, "PodScheduled")
    newest = next(iter(snapshot.events_of(pod)), None)
    if newest is None or newest.get("type") != "Warning" or newest.get("reason") == "FailedScheduling":
        return ""
    at = parse_timestamp(event_time(newest))
    return "" if scheduled_at and at and at < scheduled_at else reason_and_message(newest)


def _quote(snapshot: JobSnapshot, pod: Object, container: str, text: str = "") -> str:
    """The last thing that the container wrote, unless that has been text."""
    line = snapshot.last_line(name_of(pod), container)
    return "" if text.endswith(line) else line


_RULES: Sequence[Rule] = (
    _terminating, _on_lost_node, _unscheduled, _unscheduled_gang, _cannot_start, _crashing, _failed, _starting, _preparing, _unready, _was_restarted,
)  # fmt: skip
