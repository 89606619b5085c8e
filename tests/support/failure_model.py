"""A model of ``runPolicy.failurePolicy`` and ``successPolicy`` over plain data, written from docs/how-to/survive-failures.md.

It shares no code with the operator, so that tests can compare the two. The job is a PyTorchJob whose roles have one restart policy.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Rule = Mapping[str, Any]
PodOf = Mapping[str, Any]
"""A pod: ``name``, ``role``, ``index``, ``state`` (Running, Succeeded, Failed, Deleting), and of a failed one ``reason``, ``conditions`` and
``containers``, each with ``name``, ``code``, ``reason`` and ``at``, in seconds.
"""

LEADER = "Master"


class Outcome(NamedTuple):
    """What becomes of the job: ``succeeded``, ``failed`` with a reason, ``restarts`` as a whole, or ``continues``."""

    what: str
    reason: str = ""
    counts: bool = False
    """Whether the restart counts towards maxRestarts."""
    pod: str = ""
    """The pod that ended the attempt."""
    replaced: frozenset[str] = frozenset()


def first_match(rules: Sequence[Rule], pod: PodOf) -> int | None:
    """Return the position of the first rule that matches the failed pod, from 0."""
    return next((at for at, rule in enumerate(rules) if _matches(rule, pod)), None)


def _matches(rule: Rule, pod: PodOf) -> bool:
    failed = [container for container in pod.get("containers", ()) if container["code"] != 0]
    own = {"Deleted"} if pod["state"] == "Deleting" else {pod.get("reason", "")}
    requirements: list[bool] = []
    if "roles" in rule:
        requirements.append(pod["role"].casefold() in [role.casefold() for role in rule["roles"]])
    if "onPodConditions" in rule:
        wanted = {condition["type"] for condition in rule["onPodConditions"]}
        requirements.append(bool(wanted & set(pod.get("conditions", ()))))
    if "containers" in rule:
        failed = [container for container in failed if container["name"] in rule["containers"]]
        requirements.append(len(failed) > 0)
    if "onExitCodes" in rule:
        listed = rule["onExitCodes"]["operator"] == "In"
        values = rule["onExitCodes"]["values"]
        failed = [container for container in failed if (container["code"] in values) == listed]
        requirements.append(len(failed) > 0)
    if "onReasons" in rule:
        reasons = own | {container["reason"] for container in failed}
        requirements.append(not reasons.isdisjoint(rule["onReasons"]))
    return all(requirements)


def outcome(
    policy: Mapping[str, Any],
    success: Mapping[str, Any] | None,
    restart_policy: str,
    pods: Sequence[PodOf],
    counted_restarts: int = 0,
) -> Outcome:
    """Return what becomes of a job with these pods, all of which exist."""
    rules: Sequence[Rule] = policy["rules"]
    failed = [pod for pod in pods if pod["state"] in {"Failed", "Deleting"}]
    number = {pod["name"]: first_match(rules, pod) for pod in failed}
    action = {
        name: "restartPolicy" if at is None else str(rules[at]["action"]) for name, at in number.items()
    }
    ignored = {pod["name"] for pod in failed if action[pod["name"]] == "Ignore" and pod["state"] == "Failed"}
    left = [pod for pod in pods if pod["name"] not in ignored]
    if _succeeds(success, left, {"Succeeded"}):
        return Outcome("succeeded")
    enders = [pod for pod in failed if action[pod["name"]] in {"FailJob", *_RESTARTS}]
    if enders:
        first = min(enders, key=lambda pod: (_failed_at(pod), number[pod["name"]]))
        return _end(action[first["name"]], policy.get("maxRestarts"), counted_restarts, first["name"])
    by_policy = [pod for pod in failed if action[pod["name"]] == "restartPolicy"]
    if restart_policy == "ExitCode" and any(
        code < 128 for pod in by_policy if pod["state"] == "Failed" for code in _codes(pod, "pytorch")
    ):
        return Outcome("failed", "Failed")
    if ignored and not _succeeds(success, left, {"Succeeded", "Running", "Failed", "Deleting"}):
        return Outcome("failed", "FailurePolicy")
    if restart_policy == "Never" and by_policy:
        return Outcome("failed", "Failed")
    replaced = {pod["name"] for pod in failed if action[pod["name"]] == "RestartPod"}
    if restart_policy != "Never":
        replaced |= {pod["name"] for pod in by_policy}
    there = {pod["name"] for pod in pods if pod["state"] == "Failed"}
    return Outcome("continues", replaced=frozenset(replaced & there))


_RESTARTS = {"RestartJob", "RestartJobAndIgnoreMaxRestarts"}


def _end(action: str, limit: int | None, restarts: int, pod: str) -> Outcome:
    if action == "FailJob":
        return Outcome("failed", "FailurePolicy", pod=pod)
    counts = action == "RestartJob"
    if counts and limit is not None and restarts >= limit:
        return Outcome("failed", "MaxRestartsExceeded", pod=pod)
    return Outcome("restarts", counts=counts, pod=pod)


def _succeeds(success: Mapping[str, Any] | None, pods: Sequence[PodOf], done: set[str]) -> bool:
    """Return whether the job has succeeded if pods in these states have. Ignored pods are not among the pods."""
    if success is None:
        roles = {pod["role"] for pod in pods}
        # A job with a master whose failure is ignored has no pod that decides.
        deciding = [pod for pod in pods if pod["role"] == LEADER]
        return LEADER in roles and all(pod["state"] in done for pod in deciding)
    return any(_is_met(rule, pods, done) for rule in success["rules"])


def _is_met(rule: Mapping[str, Any], pods: Sequence[PodOf], done: set[str]) -> bool:
    indexes = None if "succeededIndexes" not in rule else set(_indexes(rule["succeededIndexes"]))
    counted = [
        pod
        for pod in pods
        if pod["role"] in rule.get("roles", [pod["role"]]) and (indexes is None or pod["index"] in indexes)
    ]
    needed = int(rule.get("succeededCount", len(counted)))
    return 0 < needed <= sum(pod["state"] in done for pod in counted)


def _indexes(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _failed_at(pod: PodOf) -> float:
    return min(
        (container["at"] for container in pod.get("containers", ()) if container["code"]),
        default=float("inf"),
    )


def _codes(pod: PodOf, container: str) -> list[int]:
    return [found["code"] for found in pod.get("containers", ()) if found["name"] == container]
