"""State of a job from its pods: whether the first rank has a log, why it is pending, and whether it failed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from api.labels import JOB_ROLE, REPLICA_INDEX, REPLICA_TYPE
from api.pod_problems import ProblemType, container_problems, read_status, reason_and_message, unscheduled

Pod = Mapping[str, Any]

FIRST_RANK_LABELS = {"pytorchjob": (REPLICA_TYPE, "master"), "mpijob": (JOB_ROLE, "launcher")}
"""Label of the pod whose log holds the output of the first rank."""


def first_rank_pod(via: str, pods: Iterable[Pod]) -> Pod | None:
    """Return the youngest such pod: a batch Job may have replaced a launcher."""
    label, value = FIRST_RANK_LABELS[via]
    found = [
        pod
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get(label) == value
        and (pod["metadata"].get("labels") or {}).get(REPLICA_INDEX, "0") == "0"
    ]
    return max(found, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)


def has_log(pod: Pod) -> bool:
    """Return whether the pod has a log: its container runs or ran."""
    states = (container.state for container in read_status(pod).container_statuses or ())
    return any(state is not None and (state.running or state.terminated) for state in states)


def has_ended(pod: Pod) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def failure_reason(via: str, job: Mapping[str, Any], pods: Sequence[Pod]) -> str:
    """Return why the job can produce no more output; empty if it can."""
    leading = first_rank_pod(via, pods)
    if leading is not None and (leading.get("status") or {}).get("phase") == "Succeeded":
        return ""  # The operator deletes the other pods after it: no failure.
    words = "; ".join(dict.fromkeys(_pod_failures(pods)))
    if words:
        return words
    return next(
        (
            f"the job has failed: {condition.get('message') or condition.get('reason')}"
            for condition in (job.get("status") or {}).get("conditions") or ()
            if condition["type"] == "Failed" and condition["status"] == "True"
        ),
        "",
    )


def pending_reason(job: Mapping[str, Any], pods: Sequence[Pod]) -> str:
    """Return why the first rank has not started, in the words of scheduler, kubelet and queue."""
    reasons: dict[str, list[str]] = {}
    for pod in pods:
        for reason in _pending_reasons(pod):
            reasons.setdefault(reason, []).append(pod["metadata"]["name"])
    if reasons:
        return "; ".join(f"{_shorten(names)}: {reason}" for reason, names in sorted(reasons.items()))
    conditions = (job.get("status") or {}).get("conditions") or ()
    if conditions:
        # False conditions come before True ones; the last update has the most information.
        last = max(reversed(conditions), key=lambda condition: str(condition.get("lastUpdateTime") or ""))
        return f"the job is {last['type']}: {last.get('message') or last.get('reason')}"
    return "there are no pods, and the job has no status; does the operator run?"


def nodes_by_host(pods: Iterable[Pod]) -> dict[str, str]:
    """Return host name → node, for the host name that the pod's processes see."""
    return {
        (pod["spec"].get("hostname") or pod["metadata"]["name"]): pod["spec"].get("nodeName") or ""
        for pod in pods
    }


def _shorten(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _pod_failures(pods: Iterable[Pod]) -> Iterator[str]:
    for pod in pods:
        name, status = pod["metadata"]["name"], read_status(pod)
        if status.phase == "Failed":
            ends = (problem.termination for problem in container_problems(status) if not problem.is_init)
            end = next(filter(None, ends), None)
            why = status.message or status.reason
            yield (
                f"pod {name} has failed"
                + (f" with exit code {end.exit_code}" if end else "")
                + (f": {why}" if why else "")
            )
        elif any(container.restart_count for container in status.container_statuses or ()):
            yield f"pod {name} has been restarted"


def _pending_reasons(pod: Pod) -> Iterator[str]:
    status = read_status(pod)
    if status.phase not in ("", "Pending"):
        return
    if condition := unscheduled(status):
        yield reason_and_message(condition)
    for problem in container_problems(status):
        if problem.waiting and problem.type is not ProblemType.STARTING:
            yield reason_and_message(problem.waiting)
