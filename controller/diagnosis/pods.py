"""What holds single pods up. Of each pod the first rule that knows something speaks; earlier rules are nearer to the root."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from controller.diagnosis.case import Case, Cause, together
from controller.diagnosis.exits import failure_of, spell, times
from controller.diagnosis.objects import (
    Object,
    condition,
    event_time,
    holds,
    init_statuses,
    is_over,
    is_told_to_go,
    moment,
    name_of,
    preparations,
    reason_and_message,
    since,
    spec_of,
    state_of,
    status_of,
    statuses,
    superseded,
)

_CRASHED = "CrashLoopBackOff"
_STARTING = {"ContainerCreating", "PodInitializing"}
_KILL = timedelta(minutes=1)
"""How long before a container's end the word may be that it is killed."""

Rule = Callable[[Case, Object], Cause | None]


def causes(case: Case) -> Iterator[Cause]:
    """The nearest to the root first; pods of which the same is to be said are named together."""
    found: list[list[Cause]] = [[] for _ in _RULES]
    old = superseded(case.pods)
    for pod in case.pods:
        for place, rule in enumerate(_RULES):
            if cause := rule(case, pod):
                is_old = pod["metadata"]["uid"] in old
                found[place].append(replace(cause, blocks=False) if is_old else cause)
                break
    for group in found:
        yield from together(group)


def _ending(case: Case, pod: Object) -> Cause | None:
    """Told to go, and still there: its name is not free before it has gone."""
    if not is_told_to_go(pod):
        return None
    due = moment(pod["metadata"]["deletionTimestamp"])
    if due and case.now <= due:
        return _cause(pod, "told to go, within its grace period", case.now)
    finalizers = ", ".join(pod["metadata"].get("finalizers") or ())
    held = (
        f"its finalizers hold it: {finalizers}" if finalizers else "its node has not said that it has ended"
    )
    return _cause(pod, f"told to go, and still there: {_lost_node(case, pod) or held}", due)


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
    spec = spec_of(pod)
    if spec.get("nodeName") or is_over(pod):
        return None
    made = moment(pod["metadata"]["creationTimestamp"])
    if gates := ", ".join(one["name"] for one in spec.get("schedulingGates") or ()):
        return _cause(pod, f"not to be scheduled as long as there is the scheduling gate {gates}", made)
    told = condition(pod, "PodScheduled")
    if told.get("status") == "False":
        return _cause(pod, reason_and_message(told) or "not scheduled", since(pod, "PodScheduled") or made)
    scheduler = spec.get("schedulerName") or "default-scheduler"
    return _cause(pod, f"waiting for the scheduler {scheduler}, which has not said anything of it", made)


def _unstartable(case: Case, pod: Object) -> Cause | None:
    """A container that cannot be started as it is asked for, or one that something is missing for, such as a volume."""
    for one in (*init_statuses(pod), *statuses(pod)):
        waiting = state_of(one, "waiting")
        if waiting.get("reason") not in {None, _CRASHED, *_STARTING}:
            told = reason_and_message(waiting)
            newest = _newest_warning(case, pod) if not waiting.get("message") else ""
            return _cause(pod, f"{told}: {newest}" if newest else told, since(pod, "PodScheduled"))
    if _is_starting(pod) and (warning := _newest_warning(case, pod)):
        return _cause(pod, warning, since(pod, "PodScheduled"))
    return None


def _crashing(case: Case, pod: Object) -> Cause | None:
    """A container that has failed, and is to be started again."""
    for one in (*init_statuses(pod), *statuses(pod)):
        if is_over(pod):
            break
        now, before = state_of(one, "terminated"), (one.get("lastState") or {}).get("terminated") or {}
        crashed = state_of(one, "waiting").get("reason") == _CRASHED
        end = now if now.get("exitCode") else before if crashed else {}
        if end:
            count = (one.get("restartCount") or 0) + bool(now)
            at = moment(end.get("finishedAt"))
            why = f"{spell(end)}{_killed(case, pod, one['name'], at)}"
            text = f"container {one['name']} ended {times(count)}, last with {why}"
            return _cause(
                pod, f"{_CRASHED}: {text}" if crashed else text, at, _quote(case, pod, one["name"], text)
            )
    return None


def _killed(case: Case, pod: Object, container: str, at: datetime | None) -> str:
    """Why the kubelet has ended it, if it has: a probe that failed."""
    for event in case.events_of(pod):
        message = str(event.get("message") or "")
        when = moment(event_time(event))
        if message.startswith(f"Container {container} failed ") and at and when and when > at - _KILL:
            return f" ({message})"
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
    newest = next(iter(case.events_of(pod)), {})
    pulls = newest.get("reason") == "Pulling"
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
    told = _newest_warning(case, pod) or condition(pod, "Ready").get("message")
    return _cause(
        pod, f"running, and not ready: {told}" if told else "running, and not ready", since(pod, "Ready")
    )


def _restarted(case: Case, pod: Object) -> Cause | None:
    """It goes on, which is worth knowing."""
    for one in (*init_statuses(pod), *statuses(pod)):
        last = (one.get("lastState") or {}).get("terminated")
        if last and one.get("restartCount"):
            at = moment(last.get("finishedAt"))
            why = f"{spell(last)}{_killed(case, pod, one['name'], at)}"
            text = f"container {one['name']} ended {times(one['restartCount'])} and was started again, last after {why}"
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
    _ending, _on_lost_node, _unplaced, _unstartable, _crashing, _failed, _starting, _preparing, _unready, _restarted,
)  # fmt: skip
