"""Troubles of pods that have not failed, such as an image that cannot be pulled. A rule that names their reason treats such a pod as failed.

A trouble must have lasted for the rule's ``forSeconds``, counted by this process: the kubelet alternates between reasons and does not store
since when. Planning gets such pods as failed ones, so that everything that follows is as for other failed pods.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from api.children import Pod
from api.failure_policy import FailureAction
from api.job import RunPolicy
from controller.domain import Plan, Role, Snapshot, TroubleKey, earliest
from controller.policy import recovery

_IMAGE_PULL: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})
"""Between these two reasons the kubelet alternates while an image cannot be pulled."""
_ACTIONS: Final = recovery.ENDS | {FailureAction.RESTART_POD}
"""The actions for which a pod has failed. A trouble that a rule ignores is none."""


def has_reason_rules(policy: RunPolicy) -> bool:
    """Return whether a rule names reasons."""
    rules = policy.failure_policy.rules if policy.failure_policy else ()
    return any(rule.on_reasons for rule in rules)


def observed(
    before: Mapping[TroubleKey, datetime], pods: Iterable[Pod], now: datetime
) -> dict[TroubleKey, datetime]:
    """Return since when each pod that has not ended has had each trouble."""
    return {
        (pod.uid, reason): before.get((pod.uid, reason), now)
        for pod in pods
        if not pod.is_finished
        for reason in _reasons(pod)
    }


def with_failures(
    policy: RunPolicy, roles: Mapping[str, Role], snapshot: Snapshot, now: datetime
) -> Snapshot:
    """Return the snapshot in which pods with a trouble that a rule matches by now have failed."""
    given = policy.failure_policy
    if given is None or not roles:
        return snapshot
    first = next(iter(roles.values()))
    by_label = {role.label: role for role in roles.values()}

    def failed(pod: Pod, role: Role, actions: Collection[FailureAction]) -> Pod:
        since, reasons = snapshot.troubles_since, _reasons(pod)
        seconds = tuple(
            (of, (now - since[pod.uid, of]).total_seconds()) for of in reasons if (pod.uid, of) in since
        )
        if pod.is_finished or not seconds:
            return pod
        troubled = msgspec.structs.replace(pod, phase="Failed", trouble_seconds=seconds)
        failure = recovery.failure_of(role, troubled)
        matched = recovery.match(given, failure) if failure else None
        if matched is None or matched.action not in actions:
            return pod
        reason = next(of for of, _ in seconds if of in (matched.rule.on_reasons or ()))
        return msgspec.structs.replace(troubled, reason=reason, message=_message(pod))

    # The batch Job replaces its pods itself.
    return replace(
        snapshot,
        pods=tuple(failed(pod, by_label.get(pod.role, first), _ACTIONS) for pod in snapshot.pods),
        batch_pods=tuple(failed(pod, first, recovery.ENDS) for pod in snapshot.batch_pods),
    )


def in_time(policy: RunPolicy, snapshot: Snapshot, plan: Plan, now: datetime) -> Plan:
    """Return the plan with a reconcile at the time when the next rule may match a trouble."""
    rules = policy.failure_policy.rules if policy.failure_policy else ()
    waits = [
        seconds
        for (_, reason), since in snapshot.troubles_since.items()
        for rule in rules
        if reason in (rule.on_reasons or ())
        and (seconds := recovery.for_seconds(rule) - (now - since).total_seconds()) > 0
    ]
    if not waits:
        return plan
    return replace(plan, requeue_after_seconds=earliest(plan.requeue_after_seconds, *waits))


def _reasons(pod: Pod) -> list[str]:
    """Return the reasons of the pod's troubles, those of an unhealthy device first."""
    found = [recovery.UNHEALTHY_DEVICE] if pod.unhealthy_devices else []
    for trouble in pod.troubles:
        found += sorted(_IMAGE_PULL) if trouble.reason in _IMAGE_PULL else [trouble.reason]
    return list(dict.fromkeys(found))


def _message(pod: Pod) -> str:
    texts = (recovery.device_message(pod), *(trouble.message for trouble in pod.troubles))
    return "; ".join(filter(None, texts))
