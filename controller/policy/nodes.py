"""Lost nodes: which pods are lost with their nodes, and which nodes new pods avoid.

Nobody ends the containers of a lost node, and nobody confirms that they have ended: its pods stay Terminating. A lost pod counts as one that
is being deleted, it is deleted without waiting for its node, and the name is free for its replacement. docs/decisions/0035-lost-nodes.md says
which evidence is certain, and which is the choice of the job's owner.

A pod is deleted only once the status knows of it: whatever happens in between, its failure counts once, with the reason ``NodeLost``.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from heapq import nsmallest
from math import inf
from typing import Any, Final

import msgspec

from api import conditions
from api.children import Pod
from api.job import JobStatus, RunPolicy
from api.meta import PODS
from api.nodes import NodeInterest
from controller.domain import Deletion, Event, Plan, Problem, Severity, Snapshot, with_pod_spec
from controller.kind.reasons import EventReason
from controller.policy import recovery

LEAST_SECONDS: Final = 30
"""The shortest ``nodeLostSeconds``: a healthy node may renew its Lease that late."""
MOST_FAILED: Final = 16
"""How many of the pods that failed first have their nodes read. All others of the job usually fail with them."""
MOST_PROBLEMS: Final = 10
"""How many problems of a node the record of an attempt has."""
MOST_AVOIDED: Final = 10
"""How many lost nodes a new pod avoids, besides those of failed attempts. Kubernetes taints silent ones a little later."""


def problems(policy: RunPolicy) -> Iterator[Problem]:
    """Return the problem of ``nodeLostSeconds``."""
    seconds = policy.node_lost_seconds
    if seconds is not None and seconds < LEAST_SECONDS:
        text = (
            f"Invalid value: {seconds}: must be at least {LEAST_SECONDS}: a node renews its Lease every 10 s"
        )
        yield Problem("spec.runPolicy.nodeLostSeconds", text)


def needs_nodes(policy: RunPolicy) -> bool:
    """Return whether the job's plan depends on the state of its nodes."""
    return policy.node_lost_seconds is not None or policy.failure_policy is not None


def interest(policy: RunPolicy, status: JobStatus | None, pods: Iterable[Pod], now: datetime) -> NodeInterest:
    """Return what the job with these pods wants to know.

    Only with ``nodeLostSeconds`` it wants to know about all of its nodes; otherwise about those of terminating pods.
    """
    is_finished = conditions.is_finished(status)
    pods = [pod for pod in pods if pod.assigned_node and _can_be_lost(pod, now, is_finished=is_finished)]
    seconds = None if is_finished else policy.node_lost_seconds
    return NodeInterest(
        nodes=frozenset(pod.assigned_node for pod in pods),
        suspects=frozenset(
            pod.assigned_node
            for pod in pods
            if pod.deleting or (seconds is not None and pod.phase == "Running" and not pod.ready)
        ),
        lost_seconds=seconds,
    )


def failed_nodes(policy: RunPolicy, status: JobStatus | None, snapshot: Snapshot) -> frozenset[str]:
    """Return the nodes one of which the record of the attempt names with its problems: those of the pods that failed first.

    Empty if the job does not avoid such nodes.
    """
    given = policy.failure_policy
    if given is None or not given.avoid_failed_nodes or conditions.is_finished(status):
        return frozenset()
    number = (status and status.restarts) or 0
    failed = (
        pod for pod in snapshot.all_pods if pod.phase == "Failed" and pod.node and pod.attempt == number
    )
    return frozenset(pod.node for pod in nsmallest(MOST_FAILED, failed, key=_failed_at))


def _failed_at(pod: Pod) -> float:
    """Return when the first container of the pod failed; pods of which that is unknown come last."""
    ends = (end.finished_at.timestamp() for end in pod.exits if end.code and end.finished_at)
    return min(ends, default=inf)


def with_losses(policy: RunPolicy, status: JobStatus | None, snapshot: Snapshot, now: datetime) -> Snapshot:
    """Return the snapshot with its lost pods marked: they count as being deleted, with the reason ``NODE_LOST``."""
    if not snapshot.nodes or not needs_nodes(policy):
        return snapshot
    is_finished = conditions.is_finished(status)

    def marked(pod: Pod) -> Pod:
        state = snapshot.nodes.get(pod.assigned_node)
        if state is None or not _can_be_lost(pod, now, is_finished=is_finished):
            return pod
        text = state.loss(policy.node_lost_seconds)
        if not text:
            return pod
        # What a failed pod reports of itself says more.
        reason = {} if pod.is_finished else {"reason": recovery.NODE_LOST, "message": text}
        since = now - timedelta(seconds=state.silent_seconds)
        return msgspec.structs.replace(pod, deleting=True, lost_since=since, **reason)

    return dataclasses.replace(
        snapshot, pods=tuple(map(marked, snapshot.pods)), batch_pods=tuple(map(marked, snapshot.batch_pods))
    )


def _can_be_lost(pod: Pod, now: datetime, *, is_finished: bool) -> bool:
    """Return whether the pod is lost if its node is.

    Finished pods, and all those of a finished job, show what happened, unless somebody deletes them. A pod that was put on a lost node just
    now would be lost and replaced again and again.
    """
    if pod.deleting or is_finished or pod.is_finished:
        return pod.deleting
    if pod.phase != "Pending":
        return True
    return pod.scheduled_at is not None and (now - pod.scheduled_at).total_seconds() >= LEAST_SECONDS


def applied(plan: Plan, policy: RunPolicy, status: JobStatus | None, snapshot: Snapshot) -> Plan:
    """Return the plan with what follows from lost nodes: lost pods are deleted, and new ones avoid nodes that are lost or failed."""
    if away := _avoided(policy, status, snapshot):
        keep_away = partial(_kept_away, nodes=away)
        plan = dataclasses.replace(
            plan, create=tuple(with_pod_spec(child, keep_away) for child in plan.create)
        )
    if policy.node_lost_seconds is not None and snapshot.nodes_error and not conditions.is_finished(status):
        text = f"nodeLostSeconds has no effect: {snapshot.nodes_error}"
        unknown = Event(Severity.WARNING, EventReason.NODES_UNKNOWN, text, once=text)
        plan = dataclasses.replace(plan, events=(*plan.events, unknown))
    plan = _with_problems(plan, status, snapshot)
    lost = {pod.uid: pod for pod in snapshot.all_pods if pod.lost_since is not None}
    if not lost or plan.delete_job:
        return plan
    if plan.status is not None and plan.status.to_wire() != (status or JobStatus()).to_wire():
        return dataclasses.replace(plan, requeue_after_seconds=0)
    return dataclasses.replace(
        plan,
        delete=(
            *(deletion for deletion in plan.delete if deletion.uid not in lost),
            *(Deletion(PODS, pod.name, pod.uid, is_forced=True) for pod in lost.values()),
        ),
        events=(*plan.events, *(_event(pod, snapshot, policy) for pod in lost.values())),
    )


def _with_problems(plan: Plan, status: JobStatus | None, snapshot: Snapshot) -> Plan:
    """Return the plan with the problems of the node in the record of an attempt that ends now."""
    attempts = (plan.status and plan.status.attempts) or []
    known = {attempt.number for attempt in (status and status.attempts) or ()}
    if plan.status is None or not attempts or attempts[-1].number in known:
        return plan
    last = attempts[-1]
    state = snapshot.nodes.get(last.node or "")
    if state is None or not state.problems:
        return plan
    recorded = last.model_copy(update={"node_problems": list(state.problems)[:MOST_PROBLEMS]})
    return dataclasses.replace(
        plan, status=plan.status.model_copy(update={"attempts": [*attempts[:-1], recorded]})
    )


def _event(pod: Pod, snapshot: Snapshot, policy: RunPolicy) -> Event:
    cause = snapshot.nodes[pod.assigned_node].loss(policy.node_lost_seconds)
    text = f"Pod {pod.name} is deleted without waiting for its node: {cause}"
    return Event(Severity.WARNING, EventReason.NODE_LOST, text, once=f"{pod.uid}lost", similar=cause)


def _avoided(policy: RunPolicy, status: JobStatus | None, snapshot: Snapshot) -> Sequence[str]:
    """Return the names of the nodes that new pods of the job avoid."""
    failed = (
        [attempt.node for attempt in (status and status.attempts) or () if attempt.node]
        if policy.failure_policy and policy.failure_policy.avoid_failed_nodes
        else []
    )
    lost = sorted(
        (state.silent_seconds, state.name)
        for state in snapshot.nodes.values()
        if not state.is_gone and state.loss(policy.node_lost_seconds)
    )
    return list(dict.fromkeys((*failed, *(name for _, name in lost[:MOST_AVOIDED]))))


def _kept_away(spec: Mapping[str, Any], nodes: Sequence[str]) -> dict[str, Any]:
    """Return the pod spec with a required node affinity against these nodes. Of several terms one suffices, so each gets it."""
    # A requirement on a field may have only one value.
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    affinity: Mapping[str, Any] = spec.get("affinity") or {}
    of_nodes: Mapping[str, Any] = affinity.get("nodeAffinity") or {}
    given = of_nodes.get(_REQUIRED)
    # An empty term matches no node, and stays empty.
    terms = (
        [
            {**term, "matchFields": [*(term.get("matchFields") or ()), *fields]} if term else term
            for term in given.get("nodeSelectorTerms") or ()
        ]
        if given
        else [{"matchFields": fields}]
    )
    required = {_REQUIRED: {"nodeSelectorTerms": terms}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**of_nodes, **required}}}


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
