"""What holds single pods up. Of each pod the first rule that knows something speaks; earlier rules are nearer to the root."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from controller.diagnosis.case import (
    Case,
    Cause,
    Object,
    condition,
    holds,
    init_statuses,
    is_over,
    moment,
    name_of,
    state_of,
    status_of,
    statuses,
    together,
)
from controller.diagnosis.exits import failure_of, spell

_CRASHED = "CrashLoopBackOff"
_STARTING = {"ContainerCreating", "PodInitializing"}

Rule = Callable[[Case, Object], Cause | None]


def causes(case: Case) -> Iterator[Cause]:
    """The nearest to the root first; pods of which the same is to be said are named together."""
    found: list[list[Cause]] = [[] for _ in _RULES]
    for pod in case.pods:
        for place, rule in enumerate(_RULES):
            if cause := rule(case, pod):
                found[place].append(cause)
                break
    for group in found:
        yield from together(group)


def _ending(case: Case, pod: Object) -> Cause | None:
    """Told to go, and still there: its name is not free before it has gone."""
    due = moment(pod["metadata"].get("deletionTimestamp"))
    if due is None:
        return None
    if case.now <= due:
        return _cause(pod, "is told to go, and has its grace period for that", case.now)
    finalizers = ", ".join(pod["metadata"].get("finalizers") or ())
    held = (
        f"its finalizers hold it: {finalizers}" if finalizers else "its node has not said that it has ended"
    )
    return _cause(pod, f"was told to go, and is still there: {_lost(case, pod) or held}", due)


def _on_lost_node(case: Case, pod: Object) -> Cause | None:
    lost = _lost(case, pod)
    if not lost or is_over(pod):
        return None
    return _cause(pod, lost, _since(case.nodes[pod["spec"]["nodeName"]], "Ready"))


def _lost(case: Case, pod: Object) -> str:
    """What is wrong with the node that the pod is on; nothing when that is Ready or not known."""
    node = case.nodes.get(pod["spec"].get("nodeName", ""))
    if node is None or holds(node, "Ready"):
        return ""
    told = condition(node, "Ready")
    return f"node {name_of(node)} is not Ready: {told.get('message') or told.get('reason') or 'it has said nothing'}"


def _unplaced(case: Case, pod: Object) -> Cause | None:
    spec = pod["spec"]
    if spec.get("nodeName") or is_over(pod):
        return None
    made = moment(pod["metadata"]["creationTimestamp"])
    if gates := ", ".join(one["name"] for one in spec.get("schedulingGates") or ()):
        return _cause(pod, f"is not scheduled as long as it has the scheduling gate {gates}", made)
    told = condition(pod, "PodScheduled")
    if told.get("status") == "False":
        text = ": ".join(filter(None, (told.get("reason"), told.get("message"))))
        return _cause(pod, text, _since(pod, "PodScheduled") or made)
    scheduler = spec.get("schedulerName", "default-scheduler")
    return _cause(pod, f"waits for the scheduler {scheduler}, which has not said anything of it", made)


def _refused(case: Case, pod: Object) -> Cause | None:
    """A container that cannot be started as it is asked for."""
    for one in (*init_statuses(pod), *statuses(pod)):
        waiting = state_of(one, "waiting")
        reason = waiting.get("reason")
        if reason not in {None, _CRASHED, *_STARTING}:
            told = waiting.get("message") or _warning(case, pod)
            return _cause(pod, f"{reason}: {told}" if told else str(reason), _since(pod, "PodScheduled"))
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
            text = f"container {one['name']} ended {_times(one, now)}, last with {spell(end)}{_quoted(case, pod, one)}"
            return _cause(pod, f"{_CRASHED}: {text}" if crashed else text, moment(end.get("finishedAt")))
    return None


def _failed(case: Case, pod: Object) -> Cause | None:
    """Over, in a job that is not."""
    if status_of(pod).get("phase") != "Failed":
        return None
    failure = failure_of(pod)
    words = _quoted(case, pod, failure.status) if failure and failure.status else ""
    return _cause(pod, f"has failed: {failure.text}{words}", failure.at) if failure else None


def _starting(case: Case, pod: Object) -> Cause | None:
    """On a node, and no container of it has been started."""
    found = statuses(pod)
    if is_over(pod) or _preparations(pod) or (found and all(not state_of(one, "waiting") for one in found)):
        return None
    since = _since(pod, "PodScheduled")
    if warning := _warning(case, pod):
        return _cause(pod, warning, since)
    if not found:
        return _cause(pod, f"waits for node {pod['spec']['nodeName']} to take it up", since)
    newest = next(iter(case.events_of(pod, "Normal")), {})
    what = (
        "its image is being pulled" if newest.get("reason") == "Pulling" else "its containers are being made"
    )
    return _cause(pod, what, since)


def _preparing(case: Case, pod: Object) -> Cause | None:
    """An init container runs that the others wait for."""
    for one in _preparations(pod):
        text = f"is in its init container {one['name']}{_quoted(case, pod, one)}"
        return _cause(pod, text, moment(state_of(one, "running").get("startedAt")))
    return None


def _preparations(pod: Object) -> list[Object]:
    """Init containers that run; sidecars are none of them."""
    inits = pod["spec"].get("initContainers") or ()
    beside = {one["name"] for one in inits if one.get("restartPolicy") == "Always"}
    return [one for one in init_statuses(pod) if state_of(one, "running") and one["name"] not in beside]


def _unready(case: Case, pod: Object) -> Cause | None:
    if holds(pod, "Ready") or not any(state_of(one, "running") for one in statuses(pod)):
        return None
    told = _warning(case, pod, "Unhealthy") or condition(pod, "Ready").get("message")
    return _cause(
        pod, f"runs and is not ready: {told}" if told else "runs and is not ready", _since(pod, "Ready")
    )


def _restarted(case: Case, pod: Object) -> Cause | None:
    for one in (*init_statuses(pod), *statuses(pod)):
        last = (one.get("lastState") or {}).get("terminated")
        if last and one.get("restartCount"):
            text = f"container {one['name']} ended {_times(one, {})} and was started again, last after {spell(last)}"
            return _cause(pod, text, moment(last.get("finishedAt")), blocks=False)
    return None


def _cause(pod: Object, text: str, since: datetime | None, *, blocks: bool = True) -> Cause:
    return Cause((name_of(pod),), text, since, blocks)


def _since(obj: Object, type_: str) -> datetime | None:
    return moment(condition(obj, type_).get("lastTransitionTime"))


def _warning(case: Case, pod: Object, reason: str = "") -> str:
    """The newest warning that there is of the pod; with a reason, of those."""
    found = (one for one in case.events_of(pod, "Warning") if not reason or one.get("reason") == reason)
    newest = next(found, None)
    return f"{newest.get('reason')}: {str(newest.get('message', '')).strip()}" if newest else ""


def _times(status: Object, ended: Object) -> str:
    """How often a container has ended: before each start but the first, and now if it does not run."""
    count = status.get("restartCount", 0) + bool(ended)
    return "once" if count == 1 else f"{count} times"


def _quoted(case: Case, pod: Object, status: Object) -> str:
    """The last thing that the container wrote."""
    words = case.words.get((name_of(pod), status["name"]))
    return f"; it last said: {words.lines[-1]}" if words and words.lines else ""


_RULES: Sequence[Rule] = (
    _ending, _on_lost_node, _unplaced, _refused, _crashing, _failed, _starting, _preparing, _unready, _restarted,
)  # fmt: skip
