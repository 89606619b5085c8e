"""The failure policy of a job: which rule matches a failed pod, and when the whole job restarts.

A restart has three steps, each a reconcile of its own: the status with the new attempt, the deletion of all pods of earlier attempts, and,
when the last one is gone and the pause is over, the creation of the new pods. Pods carry the number of their attempt, so a failure is decided
on at most once: the status is written before anything is deleted, and pods of earlier attempts are not looked at again.

Source of the words: JobSet 0.9, api/jobset/v1alpha2/jobset_types.go; batch/v1, types.go, PodFailurePolicy.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

import msgspec

from api.batch import BatchJob
from api.children import Exit, Pod, end_order
from api.failure_policy import (
    Attempt,
    ExitCodeOperator,
    FailureAction,
    FailurePolicy,
    FailureRule,
    StackTrace,
)
from api.job import JobStatus, RestartPolicy, RunPolicy
from api.labels import RESTART_ATTEMPT
from api.messages import without_control
from controller.domain import Child, Counts, Problem, Role, Snapshot, Stacks, shortened
from controller.kind.checks import unknown_role_problems, unsupported_value
from controller.policy.replacement import LONGEST_PAUSE_SECONDS, RESET_AFTER, pause_seconds
from controller.policy.restart import Reaction

ATTEMPT_VARIABLE: Final = "RALLYPOINT_RESTART_ATTEMPT"
"""The environment variable with the number of the attempt, from 0."""
DELETED: Final = "Deleted"
"""The reason of a pod that somebody deleted while it ran."""
NODE_LOST: Final = "NodeLost"
"""The reason of a pod whose node is lost; kubectl knows it, too."""
_COME_BACK: Final = frozenset({DELETED, NODE_LOST})
"""The reasons of pods that are created again, whatever a rule says."""
UNHEALTHY_DEVICE: Final = "UnhealthyDevice"
"""The reason of a pod that has a device, such as a GPU, which its device plugin reports as Unhealthy."""
NO_PROGRESS: Final = "NoProgress"
"""The reason of a pod that is named for a hang."""
PENDING_TIMEOUT: Final = "PendingTimeout"
"""The reason of the first pod that does not run within ``pendingTimeoutSeconds``."""
DEFAULT_FOR_SECONDS: Final = 60
"""How long a pod that has not failed must have had a reason before a rule matches it."""
_REQUIRED_FIELDS: Final = {
    NO_PROGRESS: ("progress_deadline_seconds", "progressDeadlineSeconds"),
    PENDING_TIMEOUT: ("pending_timeout_seconds", "pendingTimeoutSeconds"),
}
"""Reasons that occur only in jobs whose run policy has this field."""
MOST_ATTEMPTS: Final = 10
"""How many attempts the status keeps."""
LONGEST_MESSAGE: Final = 256
MOST_RULES: Final = 20
HIGHEST_EXIT_CODE: Final = 255
JITTER: Final = 0.2
"""The largest share of a pause that is added to it, so that jobs that failed together do not restart together."""
RESTARTS: Final = frozenset({FailureAction.RESTART_JOB, FailureAction.RESTART_JOB_UNCOUNTED})
ENDS: Final = RESTARTS | {FailureAction.FAIL_JOB}
"""The actions that end the attempt."""
_ACTIONS: Final = frozenset(FailureAction)


@dataclass(frozen=True, slots=True)
class PodFailure:
    """A pod of the current attempt that failed. ``exits`` are its failed containers, the first one first."""

    role: str
    pod: str
    node: str = ""
    reasons: frozenset[str] = frozenset()
    """The reasons of the pod itself, not of its containers."""
    conditions: frozenset[str] = frozenset()
    exits: tuple[Exit, ...] = ()
    reason: str = ""
    message: str = ""
    uid: str = ""
    """Empty for a pod that is gone."""
    since: datetime | None = None
    """When it failed, if no container of it did."""
    trouble_seconds: Mapping[str, float] | None = None
    """Of a pod that has not failed: for how long it has had each reason. Only rules that name one match it."""
    stacks: Stacks = ()
    """What its processes and those of other pods did, if it is named for a hang."""

    @property
    def at(self) -> datetime | None:
        """When the first container failed, or the pod as a whole; None if that is unknown."""
        return self.exits[0].finished_at if self.exits else self.since


@dataclass(frozen=True, slots=True)
class Match:
    """A failed pod, the first rule that matches it, and the container whose exit code or reason matched."""

    failure: PodFailure
    rule: FailureRule
    number: int
    """The number of the rule, from 1."""
    end: Exit | None = None

    @property
    def action(self) -> FailureAction:
        return FailureAction(self.rule.action)

    @property
    def rule_name(self) -> str:
        return self.rule.name or str(self.number)

    @property
    def description(self) -> str:
        """The pod, how it failed, and the rule; for messages."""
        return (
            f"{self.failure.pod} failed ({self.cause}), rule {self.rule_name} of failurePolicy: {self.action}"
        )

    @property
    def cause(self) -> str:
        """How the pod failed."""
        if self.end is None:
            failure = self.failure
            is_alive = failure.trouble_seconds is not None or not failure.reasons.isdisjoint(
                {NO_PROGRESS, PENDING_TIMEOUT}
            )
            text = f"{failure.reason}: {failure.message}" if is_alive and failure.message else failure.reason
            return text or "no reason reported"
        reason = f" ({self.end.reason})" if self.end.reason not in {"", "Error"} else ""
        return f"container {self.end.container} ended with exit code {self.end.code}{reason}"


def problems(policy: RunPolicy, roles: Mapping[str, Role]) -> Iterator[Problem]:
    """Return the problems of the failure policy."""
    given = policy.failure_policy
    if given is None:
        return
    path = "spec.runPolicy.failurePolicy"
    if policy.backoff_limit is not None:
        yield Problem(
            "spec.runPolicy.backoffLimit",
            "Forbidden: must not be set with failurePolicy; use its maxRestarts",
        )
    if given.max_restarts is not None and given.max_restarts < 0:
        yield Problem(f"{path}.maxRestarts", f"Invalid value: {given.max_restarts}: must not be negative")
    if given.max_restarts is not None and not given.rules:
        yield Problem(
            f"{path}.rules", "Required value: maxRestarts has no effect without a rule that restarts the job"
        )
    if len(given.rules) > MOST_RULES:
        yield Problem(f"{path}.rules", f"Too many: {len(given.rules)}: must have at most {MOST_RULES} items")
    for at, rule in enumerate(given.rules[:MOST_RULES]):
        yield from _rule_problems(rule, roles, f"{path}.rules[{at}]")
        for index, reason in enumerate(rule.on_reasons or ()):
            attribute, name = _REQUIRED_FIELDS.get(reason, ("failure_policy", ""))
            if getattr(policy, attribute) is None:
                text = f'Invalid value: "{reason}": cannot occur without spec.runPolicy.{name}'
                yield Problem(f"{path}.rules[{at}].onReasons[{index}]", text)


def _rule_problems(rule: FailureRule, roles: Iterable[str], path: str) -> Iterator[Problem]:
    if rule.action not in _ACTIONS:
        yield Problem(f"{path}.action", unsupported_value(rule.action, FailureAction))
    yield from unknown_role_problems(rule.roles, roles, f"{path}.roles")
    for name, given in (
        ("roles", rule.roles),
        ("containers", rule.containers),
        ("onPodConditions", rule.on_pod_conditions),
        ("onReasons", rule.on_reasons),
    ):
        if given is not None and not given:
            yield Problem(f"{path}.{name}", "Required value: an empty list matches nothing; leave it out")
    for at, condition in enumerate(rule.on_pod_conditions or ()):
        if not condition.type:
            yield Problem(f"{path}.onPodConditions[{at}].type", "Required value: must name a condition")
    if rule.for_seconds is not None and rule.for_seconds < 0:
        yield Problem(f"{path}.forSeconds", f"Invalid value: {rule.for_seconds}: must not be negative")
    if rule.for_seconds is not None and rule.on_reasons is None:
        yield Problem(f"{path}.forSeconds", "Forbidden: may only be set with onReasons")
    codes = rule.on_exit_codes
    if codes is None:
        return
    if codes.operator not in set(ExitCodeOperator):
        yield Problem(f"{path}.onExitCodes.operator", unsupported_value(codes.operator, ExitCodeOperator))
    if not codes.values:
        yield Problem(f"{path}.onExitCodes.values", "Required value: must have at least one exit code")
    for at, code in enumerate(codes.values):
        if not 1 <= code <= HIGHEST_EXIT_CODE:
            text = f"Invalid value: {code}: must be from 1 to {HIGHEST_EXIT_CODE}"
            yield Problem(f"{path}.onExitCodes.values[{at}]", text)


def failure_of(role: Role, pod: Pod) -> PodFailure | None:
    """Return how the pod failed, None if it did not. A pod that somebody deletes while it runs has failed."""
    if pod.phase != "Failed" and not (pod.deleting and pod.phase == "Running"):
        return None
    if pod.trouble_seconds:
        return PodFailure(
            role=role.name,
            pod=pod.name,
            node=pod.node,
            conditions=frozenset(pod.conditions),
            reason=pod.reason,
            message=pod.message,
            uid=pod.uid,
            trouble_seconds=dict(pod.trouble_seconds),
        )
    exits = tuple(sorted((end for end in pod.exits if end.code), key=_by_time))
    deleted = "" if pod.phase == "Failed" or pod.reason == NODE_LOST else DELETED
    unhealthy = UNHEALTHY_DEVICE if pod.unhealthy_devices else ""
    own = "" if pod.reason == DELETED else pod.reason  # a disruption says more than that it was deleted
    return PodFailure(
        role=role.name,
        pod=pod.name,
        node=pod.node,
        reasons=frozenset(filter(None, (pod.reason, pod.disruption, deleted, unhealthy))),
        conditions=frozenset(pod.conditions),
        exits=exits,
        reason=own or pod.disruption or pod.reason or deleted,
        message=pod.message or device_message(pod),
        uid=pod.uid,
        since=pod.lost_since,
    )


def deleted_before_end(before: Collection[str], pods: Iterable[Pod]) -> frozenset[str]:
    """Return the UIDs of the terminating pods that had not ended when their deletion was observed; ``before`` are those known so far."""
    return frozenset(pod.uid for pod in pods if pod.deleting and (not pod.is_finished or pod.uid in before))


def with_deletions(snapshot: Snapshot, uids: Collection[str]) -> Snapshot:
    """Return the snapshot in which these pods have the reason ``DELETED``, also when their containers have ended since and they have failed.

    The kubelet reports the phase Failed of a deleted pod before the pod is gone.
    """
    pods = tuple(
        msgspec.structs.replace(pod, reason=DELETED)
        if pod.phase == "Failed" and not pod.reason and pod.uid in uids
        else pod
        for pod in snapshot.pods
    )
    return replace(snapshot, pods=pods)


def device_message(pod: Pod) -> str:
    """Return which devices of the pod are unhealthy; empty if none is."""
    return f"unhealthy: {pod.unhealthy_devices}" if pod.unhealthy_devices else ""


def for_seconds(rule: FailureRule) -> float:
    """Return how long a pod that has not failed must have had a reason that the rule names."""
    return DEFAULT_FOR_SECONDS if rule.for_seconds is None else rule.for_seconds


def gone(role: Role, name: str) -> PodFailure:
    """Return the failure of a pod that ran and that somebody deleted: nothing else is known about it."""
    return PodFailure(role=role.name, pod=name, reasons=frozenset({DELETED}), reason=DELETED)


def match(policy: FailurePolicy, failure: PodFailure, actions: Collection[str] = _ACTIONS) -> Match | None:
    """Return the first rule with one of these actions that matches, None if the role's restart policy decides.

    A rule with an unknown action matches nothing: the API server did not check it, and the job is invalid.
    """
    for number, rule in enumerate(policy.rules, 1):
        exits = _matching_exits(rule, failure) if rule.action in actions else None
        if exits is not None:
            return Match(failure, rule, number, next(iter(exits or failure.exits), None))
    return None


def decisive(matches: Iterable[Match]) -> Match | None:
    """Return the match of the pod that failed first and whose rule ends the attempt; of several at one time, that of the earlier rule.

    One failure usually causes others: the ranks that lose a peer fail a moment later, with other exit codes.
    """
    found = [matched for matched in matches if matched.action in ENDS]
    return min(found, key=lambda matched: (_time(matched.failure), matched.number), default=None)


def ignored(matches: Iterable[Match]) -> list[Match]:
    """Return the matches of pods that stay failed and count for nothing. Pods that are deleted or lost do not stay: they are created again."""
    return [
        matched
        for matched in matches
        if matched.action is FailureAction.IGNORE and matched.failure.reasons.isdisjoint(_COME_BACK)
    ]


def reactions(pods: Iterable[Pod], matches: Iterable[Match]) -> dict[Pod, Reaction]:
    """Return what becomes of the failed pods whose rule precedes the role's restart policy."""
    by_action = {FailureAction.RESTART_POD: Reaction.REPLACE, FailureAction.IGNORE: Reaction.KEEP}
    by_uid = {matched.failure.uid: by_action.get(matched.action) for matched in matches}
    return {pod: what for pod in pods if pod.phase == "Failed" and (what := by_uid.get(pod.uid))}


def adjusted(
    role: Role, counts: Counts, pods: Collection[Pod], matches: Sequence[Match]
) -> tuple[Role, Counts]:
    """Return the role and its counts for the completion rule of the kind. ``pods`` and ``matches`` are those of the role.

    Its restart policy replaces pods if that is what rules do with all of its failed pods. Ignored failures do not count, and the replica of
    a pod that stays failed decides nothing any more.
    """
    if not matches:
        return role, counts
    uids = {matched.failure.uid for matched in matches}
    restarts = any(matched.action is FailureAction.RESTART_POD for matched in matches)
    if restarts and all(pod.uid in uids or failure_of(role, pod) is None for pod in pods):
        role = replace(role, restart_policy=RestartPolicy.EXIT_CODE)
    failures = [matched.failure for matched in matches if matched.action is FailureAction.IGNORE]
    gone = sum(not failure.uid for failure in failures)
    come_back = sum(not failure.reasons.isdisjoint(_COME_BACK) for failure in failures) - gone
    failed = len(failures) - gone
    running = {pod.uid for pod in pods if pod.phase == "Running"}
    return replace(role, replicas=role.replicas - (failed - come_back)), replace(
        counts,
        failed=counts.failed - failed,
        vanished=counts.vanished - gone,
        leaving=counts.leaving - sum(failure.uid in running for failure in failures),
    )


def is_exhausted(policy: FailurePolicy, status: JobStatus, action: FailureAction) -> bool:
    """Return whether the job may not restart once more by this action."""
    limit = policy.max_restarts
    return (
        action is FailureAction.RESTART_JOB
        and limit is not None
        and (status.restarts_count_towards_max or 0) >= limit
    )


def ended(
    status: JobStatus, matched: Match, uid: str, now: datetime, saved: datetime | None = None
) -> Attempt:
    """Return the record of the current attempt, which this failure ends. ``now`` is in whole seconds, ``saved`` the newest checkpoint."""
    number, failure, end = status.restarts or 0, matched.failure, matched.end
    past = status.attempts or []
    since = began(status)
    failed_at = min(failure.at or now, now)
    attempt = Attempt(
        number=number,
        start_time=since,
        end_time=max(failed_at, since) if since else failed_at,
        pod=failure.pod,
        role=failure.role,
        node=failure.node or None,
        container=end.container if end else None,
        exit_code=end.code if end else None,
        reason=(failure.reason or (end.reason if end else "")) or None,
        message=_excerpt((end.message if end else "") or failure.message) or None,
        rule=matched.rule_name,
        action=matched.action,
        stacks=[StackTrace(pods=list(pods), text=text) for pods, text in failure.stacks] or None,
        checkpoint_time=saved if saved and since and saved > since else None,
    )
    if matched.action not in RESTARTS:
        return attempt
    pause = _with_jitter(pause_seconds(_failures_in_a_row([*past, attempt])), uid, number)
    return attempt.model_copy(update={"restart_time": now + timedelta(seconds=round(pause))})


def began(status: JobStatus) -> datetime | None:
    """Return when the current attempt could begin to run: after its pause, and after the end of a suspension."""
    last = status.last_attempt
    times = (status.start_time, last.restart_time if last else None)
    return max(filter(None, times), default=None)


def restarted(status: JobStatus, attempt: Attempt) -> dict[str, Any]:
    """Return the fields of the status that this restart changes."""
    counts = attempt.action == FailureAction.RESTART_JOB
    return {
        "restarts": (status.restarts or 0) + 1,
        "restarts_count_towards_max": ((status.restarts_count_towards_max or 0) + counts) or None,
        "in_place_restarts": None,
        "attempts": recorded(status, attempt),
        "assembled_time": None,
    }


def recorded(status: JobStatus, attempt: Attempt) -> list[Attempt]:
    """Return the history with this attempt as the last one."""
    return [*(status.attempts or ()), attempt][-MOST_ATTEMPTS:]


def recovered(status: JobStatus, now: datetime) -> dict[str, Any]:
    """Return the fields of the status that change when the job runs again after a restart; empty if nothing does."""
    last = status.last_attempt
    if last is None or last.restart_time is None or last.lost_seconds is not None or last.end_time is None:
        return {}
    # A suspension since then ended the loss: the job started anew when it was resumed.
    since = max(filter(None, (last.end_time, status.start_time)))
    lost = max(round((now - since).total_seconds()), 0)
    return {
        "attempts": [*(status.attempts or ())[:-1], last.model_copy(update={"lost_seconds": lost})],
        "lost_seconds": (status.lost_seconds or 0) + lost,
    }


def restart_in(status: JobStatus, now: datetime) -> float:
    """Return the seconds until pods of the current attempt may be created, 0 or less if they may be now.

    A longer time than any pause is that of a clock that has been set back since.
    """
    last = status.last_attempt
    due = last.restart_time if last and not last.in_place else None
    seconds = (due - now).total_seconds() if due else 0.0
    return seconds if seconds <= LONGEST_PAUSE_SECONDS * (1 + JITTER) + 1 else 0.0


def has_attempts(policy: RunPolicy, status: JobStatus) -> bool:
    """Return whether new pods belong to an attempt: the job has a failure policy, or has restarted while it had one."""
    return policy.failure_policy is not None or status.restarts is not None


def marked(child: Child, status: JobStatus) -> Child:
    """Return the pod with the number of the attempt as label and variable, and with a restart policy that leaves restarts to the operator."""
    build = child.body
    return replace(child, body=lambda: of_attempt(build(), status))


def of_attempt(pod: Mapping[str, Any], status: JobStatus) -> dict[str, Any]:
    """Return a pod, or a pod template, as ``marked`` returns its child."""
    number = str(status.restarts or 0)
    metadata, spec = pod["metadata"], pod["spec"]
    variable = {"name": ATTEMPT_VARIABLE, "value": number}
    containers = [
        {**container, "env": [*(container.get("env") or ()), variable]} for container in spec["containers"]
    ]
    return {
        **pod,
        "metadata": {**metadata, "labels": {**metadata["labels"], RESTART_ATTEMPT: number}},
        "spec": {**spec, "containers": containers, "restartPolicy": "Never"},
    }


def old(children: Iterable[Pod | BatchJob], status: JobStatus) -> tuple[Pod | BatchJob, ...]:
    """Return the children of earlier attempts."""
    return tuple(child for child in children if child.attempt < status.pods_attempt)


def is_ahead(children: Iterable[Pod | BatchJob], status: JobStatus) -> bool:
    """Return whether there are children of a later attempt than the status knows: then the status is an old one."""
    number = status.restarts or 0
    return any(child.attempt > number for child in children)


def _matching_exits(rule: FailureRule, failure: PodFailure) -> Sequence[Exit] | None:
    """Return the failed containers that match, of which there may be none; None if the rule does not match."""
    if rule.roles is not None and failure.role.lower() not in {role.lower() for role in rule.roles}:
        return None
    if rule.on_pod_conditions is not None and not any(
        pattern.type in failure.conditions for pattern in rule.on_pod_conditions
    ):
        return None
    exits = [end for end in failure.exits if _is_of_containers(rule, end) and _has_code(rule, end)]
    needs_container = rule.containers is not None or rule.on_exit_codes is not None
    if needs_container and not exits:
        return None
    if (seconds := failure.trouble_seconds) is not None:
        lasts = any(seconds.get(reason, -1.0) >= for_seconds(rule) for reason in rule.on_reasons or ())
        return () if lasts else None
    if rule.on_reasons is not None:
        named = [end for end in exits if end.reason in rule.on_reasons]
        if not named and failure.reasons.isdisjoint(rule.on_reasons):
            return None
        exits = named or exits
    return exits


def _is_of_containers(rule: FailureRule, end: Exit) -> bool:
    return rule.containers is None or end.container in rule.containers


def _has_code(rule: FailureRule, end: Exit) -> bool:
    codes = rule.on_exit_codes
    return codes is None or (end.code in codes.values) is (codes.operator == ExitCodeOperator.IN)


def _failures_in_a_row(past: Sequence[Attempt]) -> int:
    """Return how many attempts at the end of the history failed soon after their start, without a checkpoint."""
    count = 0
    for attempt in reversed(past):
        count += 1
        if (
            attempt.checkpoint_time is not None
            or attempt.start_time is None
            or attempt.end_time is None
            or attempt.end_time - attempt.start_time >= RESET_AFTER
        ):
            break
    return count


def _with_jitter(seconds: float, uid: str, number: int) -> float:
    """Return the pause with a share of itself added that depends only on the job and the attempt, so that a repeated decision is the same."""
    digest = blake2b(f"{uid}/{number}".encode(), digest_size=2).digest()
    return seconds * (1 + JITTER * int.from_bytes(digest) / 0xFFFF)


def _excerpt(text: str) -> str:
    return shortened(without_control(text).strip(), LONGEST_MESSAGE)


def _by_time(end: Exit) -> tuple[bool, float]:
    """Order ends by time, those of an unknown time last."""
    known, seconds = end_order(end)
    return not known, seconds


def _time(failure: PodFailure) -> float:
    return failure.at.timestamp() if failure.at else float("inf")
