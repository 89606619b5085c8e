"""What holds single pods up. Of each pod the first rule that knows something speaks; earlier rules are nearer to the root."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from rallypoint.diagnosis.case import Case, Cause, together
from rallypoint.diagnosis.exits import again_and_again, failure_of
from rallypoint.diagnosis.objects import (
    CRASH_LOOP,
    Object,
    condition,
    end_before,
    end_of,
    event_time,
    every_status,
    holds,
    is_crash_looping,
    is_over,
    moment,
    name_of,
    preparations,
    reason_and_message,
    since,
    spec_of,
    state_of,
    status_of,
    statuses,
    told_to_go_at,
)

_STARTING = {"ContainerCreating", "PodInitializing"}
_LATE = timedelta(seconds=2)
"""How far the times of an event and of what it is of may lie apart."""
_WITH_ITS_GANG = re.compile(r"rejected.*(?i:permit|postfilter)|pod group is not ready", re.DOTALL)
"""What the coscheduling of scheduler-plugins, and Volcano, say of pods that wait for others."""

Rule = Callable[[Case, Object], Cause | None]


def causes(case: Case) -> Iterator[Cause]:
    """The nearest to the root first; pods of which the same is to be said are named together."""
    found: list[list[Cause]] = [[] for _ in _RULES]
    for pod in case.pods:
        for place, rule in enumerate(_RULES):
            if cause := rule(case, pod):
                is_old = pod["metadata"]["uid"] in case.superseded
                found[place].append(replace(cause, blocks=False) if is_old else cause)
                break
    for group in found:
        yield from together(group)


def is_refused_by_nodes(pod: Object) -> bool:
    """Whether no node takes it, and not only because others of its gang find none."""
    told = condition(pod, "PodScheduled")
    return told.get("status") == "False" and not _WITH_ITS_GANG.search(str(told.get("message")))


def _ending(case: Case, pod: Object) -> Cause | None:
    """Told to go, and still there: its name is not free before it has gone."""
    told = told_to_go_at(pod)
    if told is None:
        return None
    due = moment(pod["metadata"]["deletionTimestamp"]) or told
    if case.now <= due:
        why = condition(pod, "DisruptionTarget").get("message")
        text = "told to go, within its grace period"
        return _cause(pod, f"{text}: {why}" if why else text, told)
    finalizers = ", ".join(pod["metadata"].get("finalizers") or ())
    silent = (
        "it has ended, and is to be removed" if is_over(pod) else "its node has not said that it has ended"
    )
    held = f"its finalizers hold it: {finalizers}" if finalizers else _lost_node(case, pod) or silent
    return _cause(pod, f"told to go, and still there: {held}", told)


def _on_lost_node(case: Case, pod: Object) -> Cause | None:
    lost = _lost_node(case, pod)
    if not lost or is_over(pod):
        return None
    return _cause(pod, lost, since(case.nodes[spec_of(pod)["nodeName"]], "Ready"))


def _lost_node(case: Case, pod: Object) -> str:
    """What is wrong with the node that the pod is on; nothing when that is Ready or not known."""
    node = case.nodes.get(spec_of(pod).get("nodeName") or "")
    if node is None or holds(node, "Ready"):
        return ""
    told = condition(node, "Ready")
    return f"node {name_of(node)} is not Ready: {told.get('message') or told.get('reason') or 'it has said nothing'}"


def _unplaced(case: Case, pod: Object) -> Cause | None:
    """No node takes it, or nobody looks for one."""
    spec = spec_of(pod)
    if not _has_no_node(pod):
        return None
    made = moment(pod["metadata"]["creationTimestamp"])
    if gates := ", ".join(one["name"] for one in spec.get("schedulingGates") or ()):
        return _cause(pod, f"not to be scheduled while it has scheduling gates: {gates}", made)
    told = condition(pod, "PodScheduled")
    if told.get("status") != "False":
        scheduler = spec.get("schedulerName") or "default-scheduler"
        return _cause(pod, f"waiting for the scheduler {scheduler}, which has not said anything of it", made)
    return _refusal(pod) if is_refused_by_nodes(pod) else None


def _unplaced_gang(case: Case, pod: Object) -> Cause | None:
    """It waits for others of its gang."""
    is_refused = condition(pod, "PodScheduled").get("status") == "False"
    return _refusal(pod) if is_refused and _has_no_node(pod) else None


def _has_no_node(pod: Object) -> bool:
    return not spec_of(pod).get("nodeName") and not is_over(pod)


def _refusal(pod: Object) -> Cause:
    told = reason_and_message(condition(pod, "PodScheduled")) or "not scheduled"
    return _cause(pod, told, since(pod, "PodScheduled") or moment(pod["metadata"]["creationTimestamp"]))


def _unstartable(case: Case, pod: Object) -> Cause | None:
    """A container that cannot be started as it is asked for, or one that something is missing for, such as a volume."""
    for one in every_status(pod):
        waiting = state_of(one, "waiting")
        if waiting.get("reason") not in {None, CRASH_LOOP, *_STARTING}:
            told = [reason_and_message(waiting), _pull(case, pod, waiting)]
            return _cause(pod, ": ".join(filter(None, told)), since(pod, "PodScheduled"))
    if _is_starting(pod) and (warning := _newest_warning(case, pod)):
        return _cause(pod, warning, since(pod, "PodScheduled"))
    return None


def _pull(case: Case, pod: Object, waiting: Object) -> str:
    """Why an image cannot be pulled, when the kubelet writes only that it waits before it tries again."""
    if waiting.get("reason") != "ImagePullBackOff" or "rror" in str(waiting.get("message")):
        return ""
    messages = (str(event.get("message")) for event in case.events_of(pod))
    return next((one for one in messages if one.startswith("Failed to pull image")), "")


def _crashing(case: Case, pod: Object) -> Cause | None:
    """A container that has failed, and is to be started again."""
    for one in every_status(pod):
        end = end_of(one)
        if end and not is_over(pod):
            at = moment(end.get("finishedAt"))
            ended = again_and_again(one, (one.get("restartCount") or 0) + 1, end)
            text = f"{f'{CRASH_LOOP}: ' if is_crash_looping(one) else ''}{ended}{_killed(case, pod, one['name'], at)}"
            return _cause(pod, text, at, _quote(case, pod, one["name"], text))
    return None


def _killed(case: Case, pod: Object, container: str, at: datetime | None) -> str:
    """Why the kubelet has ended it, if it has: a probe that failed. It says so before the container has its grace period."""
    grace = timedelta(seconds=spec_of(pod).get("terminationGracePeriodSeconds") or 30)
    for event in case.events_of(pod):
        message, when = str(event.get("message") or ""), moment(event_time(event))
        if message.startswith(f"Container {container} failed ") and at and when:
            return f" ({message})" if at - grace - _LATE <= when <= at + _LATE else ""
    return ""


def _failed(case: Case, pod: Object) -> Cause | None:
    """Over, in a job that is not."""
    failure = failure_of(pod) if status_of(pod).get("phase") == "Failed" else None
    if failure is None:
        return None
    quote = _quote(case, pod, failure.container, failure.text)
    return _cause(pod, f"failed: {failure.text}", failure.at, quote)


def _starting(case: Case, pod: Object) -> Cause | None:
    """On a node, and nothing is known to be wrong."""
    if not _is_starting(pod):
        return None
    placed = since(pod, "PodScheduled")
    if not statuses(pod):
        return _cause(pod, f"waiting for node {spec_of(pod).get('nodeName')} to take it up", placed)
    images = (
        event.get("reason") for event in case.events_of(pod) if event.get("reason") in {"Pulling", "Pulled"}
    )
    pulls = next(images, "") == "Pulling"
    return _cause(pod, "its image is being pulled" if pulls else "its containers are being made", placed)


def _is_starting(pod: Object) -> bool:
    """Whether no container of it has been started, and no preparation runs."""
    found = statuses(pod)
    if is_over(pod) or preparations(pod) or not spec_of(pod).get("nodeName"):
        return False
    return not found or any(state_of(one, "waiting").get("reason") in _STARTING for one in found)


def _preparing(case: Case, pod: Object) -> Cause | None:
    for one in preparations(pod):
        began = moment(state_of(one, "running").get("startedAt"))
        return _cause(pod, f"in init container {one['name']}", began, _quote(case, pod, one["name"]))
    return None


def _unready(case: Case, pod: Object) -> Cause | None:
    if holds(pod, "Ready") or not any(state_of(one, "running") for one in statuses(pod)):
        return None
    running = [one["name"] for one in statuses(pod) if state_of(one, "running")]
    if done := [one["name"] for one in statuses(pod) if state_of(one, "terminated")]:
        text = f"container {', '.join(done)} is done, and {', '.join(running)} still runs, which keeps the pod from ending"
        return _cause(pod, text, since(pod, "Ready"))
    told = _newest_warning(case, pod) or condition(pod, "Ready").get("message")
    return _cause(
        pod, f"running, and not ready: {told}" if told else "running, and not ready", since(pod, "Ready")
    )


def _restarted(case: Case, pod: Object) -> Cause | None:
    """It goes on, which is worth knowing."""
    for one in every_status(pod):
        last = end_before(one)
        if last and one.get("restartCount"):
            at = moment(last.get("finishedAt"))
            ended = again_and_again(one, one["restartCount"], last)
            text = f"{ended}{_killed(case, pod, one['name'], at)}, and was started again"
            return replace(_cause(pod, text, at), blocks=False)
    return None


def _cause(pod: Object, text: str, at: datetime | None, quote: str = "") -> Cause:
    return Cause((name_of(pod),), text, at, quote=quote)


def _newest_warning(case: Case, pod: Object) -> str:
    """What was said last of the pod on its node, if that is a warning."""
    placed = since(pod, "PodScheduled")
    newest = next(iter(case.events_of(pod)), None)
    if newest is None or newest.get("type") != "Warning" or newest.get("reason") == "FailedScheduling":
        return ""
    at = moment(event_time(newest))
    return "" if placed and at and at < placed else reason_and_message(newest)


def _quote(case: Case, pod: Object, container: str, said: str = "") -> str:
    """The last thing that the container wrote, unless that has been said."""
    word = case.last_word(name_of(pod), container)
    return "" if said.endswith(word) else word


_RULES: Sequence[Rule] = (
    _ending, _on_lost_node, _unplaced, _unplaced_gang, _unstartable, _crashing, _failed, _starting, _preparing, _unready, _restarted,
)  # fmt: skip
