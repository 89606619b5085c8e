"""Which pods hold the resource that a waiting pod or PodGroup lacks.

Pods of finished jobs come first: with ``cleanPodPolicy: None`` they hold it until somebody deletes the job. A pod holds what the scheduler
reserves for it, for its whole life: the requests of init containers that are done count too.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from api.pod_problems import read_status, unscheduled
from api.quantity import Quantity
from api.requests import NONE, amounts, requests
from rallypoint.diagnosis.gangs import is_unadmitted, problem_of_queue
from rallypoint.diagnosis.objects import (
    FINISHED,
    Object,
    is_being_deleted,
    is_condition_true,
    is_pod_terminal,
    name_of,
    run_policy,
    spec_of,
    status_of,
    transition_time,
)
from rallypoint.diagnosis.snapshot import Cause, JobSnapshot

MAX_HOLDERS = 5
"""The largest number of owners to name for a resource; the others are summed up."""
_INSUFFICIENT = re.compile(r"Insufficient (\w[\w./-]*\w)|(\w[\w./-]*\w):\{\{")
"""Source: Kubernetes, pkg/scheduler/framework/plugins/noderesources/fit.go; Volcano writes the same. Coscheduling writes a map if the whole
cluster has too little: scheduler-plugins 0.32, pkg/coscheduling/core/core.go.
"""


def lacking(pods: Iterable[Object]) -> dict[str, list[str]]:
    """Return the names of the unscheduled pods by the resource that they lack."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        refused = (
            None if spec_of(pod).get("nodeName") or is_pod_terminal(pod) else unscheduled(read_status(pod))
        )
        matches = _INSUFFICIENT.findall(refused.message) if refused else ()
        for resource in dict.fromkeys(missing or gap for missing, gap in matches):
            found.setdefault(resource, []).append(name_of(pod))
    return found


def needed(gangs: Iterable[Object]) -> set[str]:
    """Return the resources that PodGroups need before Volcano admits them."""
    return {
        resource
        for gang in gangs
        if is_unadmitted(gang)
        for resource in spec_of(gang).get("minResources") or ()
    }


def holds(pod: Object, resources: Iterable[str]) -> bool:
    """Return whether the pod has a node and holds any of these resources there. A pod that has ended holds none."""
    return any(_amount(pod, resource) for resource in resources)


def controller_of(pod: Object) -> Mapping[str, str]:
    """Return the controller's owner reference; empty if there is none."""
    references = pod["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), {})


def largest_owners(
    holders: Sequence[Object], resources: Collection[str]
) -> list[tuple[Mapping[str, str], str]]:
    """Return the owners of the pods and their namespaces, those with the largest share of one of the resources first."""
    owners = {
        reference["uid"]: (reference, pod["metadata"]["namespace"])
        for pod in holders
        if (reference := controller_of(pod))
    }
    shares: dict[str, Fraction] = dict.fromkeys(owners, Fraction(0))
    for resource in resources:
        held: dict[str, Fraction] = {}
        for pod in holders:
            uid, amount = controller_of(pod).get("uid", ""), _amount(pod, resource)
            held[uid] = held.get(uid, Fraction(0)) + (amount.amount if amount else 0)
        total = sum(held.values())
        shares |= {uid: max(shares[uid], held[uid] / total) for uid in owners if total}
    return [owners[uid] for uid in sorted(owners, key=lambda uid: shares[uid], reverse=True)]


def is_job(reference: Mapping[str, str]) -> bool:
    """Return whether an owner reference names a training job."""
    return str(reference.get("apiVersion")).startswith("kubeflow.org/")


@dataclass(frozen=True, slots=True)
class _Holder:
    """The pods of one owner that hold the resource."""

    owner: Mapping[str, str]
    pods: tuple[Object, ...]
    amount: Quantity
    job: Object | None
    """The owner, if it was read."""

    @property
    def is_finished(self) -> bool:
        return self.job is not None and any(is_condition_true(self.job, type_) for type_ in FINISHED)


def causes(snapshot: JobSnapshot, too_large: Mapping[str, Cause]) -> Iterator[Cause]:
    """Yield the holders of each resource that pods of the job lack, those of finished jobs first, then those that hold most.

    Other pods of the job are holders too. Before them comes that all nodes together have too little for the job.

    For pods that request more than any node has, it does not matter who holds the resource. Pods of other owners than jobs are notes: they
    may run for good.
    """
    lacked = lacking(snapshot.pods)
    for resource, lacking_pods in lacked.items():
        cause = too_large.get(resource)
        if cause:
            yield cause
        waiting = [name for name in lacking_pods if not cause or name not in cause.about]
        if not waiting:
            continue
        if not cause:
            yield from _too_large_job(snapshot, resource)
        yield from _holder_causes(snapshot, resource, waiting, _holders(snapshot, resource))
    for gang in snapshot.gangs:
        if is_unadmitted(gang) and not problem_of_queue(snapshot, gang):
            yield from _gang_causes(snapshot, gang, lacked)


def _too_large_job(snapshot: JobSnapshot, resource: str) -> Iterator[Cause]:
    """Yield that all nodes together have less than the job's pods that have not ended request, if all nodes are known."""
    pods = [pod for pod in snapshot.pods if not is_pod_terminal(pod)]
    try:
        sizes = [amounts(status_of(node).get("allocatable")) for node in snapshot.all_nodes]
        wanted = [requests(spec_of(pod)).get(resource, NONE) for pod in pods]
    except ValueError:
        return
    if not sizes:
        return
    size = reduce(Quantity.__add__, (node.get(resource, NONE) for node in sizes))
    whole = reduce(Quantity.__add__, wanted, NONE)
    if whole.amount > size.amount:
        each = (
            f"{wanted[0]} {resource} each, {whole} in all" if len(set(wanted)) == 1 else f"{whole} {resource}"
        )
        together = "existing node has" if len(sizes) == 1 else "existing nodes together have"
        text = f"its {len(pods)} pods can never run at the same time: they request {each}, and the {together} {size}"
        yield Cause((), text, next_step="request less, use fewer replicas, or add nodes")


def _holder_causes(
    snapshot: JobSnapshot, resource: str, waiting: list[str], found: Iterable[_Holder]
) -> Iterator[Cause]:
    holders = sorted(found, key=lambda holder: (not holder.is_finished, -holder.amount.amount))
    for holder in holders[:MAX_HOLDERS]:
        yield _cause(snapshot, holder, resource, waiting)
    rest = [holder.amount for holder in holders[MAX_HOLDERS:]]
    if rest:
        sum_ = reduce(Quantity.__add__, rest)
        yield Cause((), f"pods of {len(rest)} other owners hold {sum_} {resource}", blocks=False)
    if not snapshot.holders_known:
        text = f"pods of other namespaces may hold {resource}; you have no permission to list them"
        yield Cause((), text, blocks=False)


def _gang_causes(snapshot: JobSnapshot, gang: Object, lacked: Collection[str]) -> Iterator[Cause]:
    """Yield what all nodes together lack for a PodGroup, and who holds it, except what its pods lack. Nothing if the nodes are unknown."""
    try:
        sizes = [amounts(status_of(node).get("allocatable")) for node in snapshot.all_nodes]
        wanted = amounts(spec_of(gang).get("minResources"))
    except ValueError:
        return
    for resource, amount in wanted.items():
        if not sizes or resource in lacked:
            continue
        size = reduce(Quantity.__add__, (node.get(resource, NONE) for node in sizes))
        own = {pod["metadata"]["uid"] for pod in snapshot.pods}
        holders = _holders(snapshot, resource, without=own)
        held = sum(holder.amount.amount for holder in holders)
        free = Quantity(max(size.amount - held, Fraction(0)), size.form)
        if amount.amount > size.amount:
            text = f"the existing nodes are too small: it needs {amount} {resource}, and together they have {size}"
            yield Cause((name_of(gang),), text, next_step="request less, or add nodes")
        elif amount.amount > free.amount:
            most = "" if snapshot.holders_known else "at most "
            text = f"it needs {amount} {resource}, and {most}{free} of {size} {'is' if free.amount == 1 else 'are'} free"
            yield Cause(
                (name_of(gang),), text, next_step="request less, free what other pods hold, or add nodes"
            )
            yield from _holder_causes(snapshot, resource, [name_of(gang)], holders)


def too_large_requests(snapshot: JobSnapshot) -> dict[str, Cause]:
    """Return, by resource, that pods request more of it than any node has, if all nodes are known."""
    found = {
        resource: _too_large(snapshot, resource, names) for resource, names in lacking(snapshot.pods).items()
    }
    return {resource: cause for resource, cause in found.items() if cause}


def _too_large(snapshot: JobSnapshot, resource: str, waiting: Iterable[str]) -> Cause | None:
    """Return that pods request more of the resource than any node has, if all nodes are known."""
    if not snapshot.all_nodes:
        return None
    by_name = {name_of(pod): pod for pod in snapshot.pods}
    try:
        sizes = [
            amounts(status_of(node).get("allocatable")).get(resource, NONE) for node in snapshot.all_nodes
        ]
        wanted = {name: requests(spec_of(by_name[name])).get(resource, NONE) for name in waiting}
    except ValueError:
        return None
    largest = max(sizes, key=lambda size: size.amount)
    names = tuple(name for name, amount in wanted.items() if amount.amount > largest.amount)
    if not names:
        return None
    most = max((wanted[name] for name in names), key=lambda amount: amount.amount)
    text = (
        f"no existing node is large enough: it requests {most} {resource}, and the largest node has {largest}"
    )
    return Cause(names, text, next_step="request less, or add larger nodes")


def _holders(snapshot: JobSnapshot, resource: str, without: Collection[str] = ()) -> list[_Holder]:
    """Return the holders, without the pods with these UIDs."""
    groups: dict[str, list[Object]] = {}
    for pod in snapshot.holders:
        if pod["metadata"]["uid"] not in without and _amount(pod, resource):
            groups.setdefault(controller_of(pod).get("uid") or pod["metadata"]["uid"], []).append(pod)
    found: list[_Holder] = []
    for uid, pods in groups.items():
        held = [amount for pod in pods if (amount := _amount(pod, resource))]
        owner = controller_of(pods[0])
        found.append(_Holder(owner, tuple(pods), reduce(Quantity.__add__, held), snapshot.owners.get(uid)))
    return found


def _amount(pod: Object, resource: str) -> Quantity | None:
    if is_pod_terminal(pod) or not spec_of(pod).get("nodeName"):
        return None
    try:
        amount = requests(spec_of(pod)).get(resource)
    except ValueError:
        return None
    return amount if amount and amount.amount else None


def _cause(snapshot: JobSnapshot, holder: _Holder, resource: str, waiting: list[str]) -> Cause:
    namespace = snapshot.job["metadata"].get("namespace")
    of_holder = holder.pods[0]["metadata"].get("namespace")
    names = tuple(
        name_of(pod) if of_holder == namespace else f"{of_holder}/{name_of(pod)}" for pod in holder.pods
    )
    needing = waiting[0] if len(waiting) == 1 else f"{waiting[0]} and {len(waiting) - 1} more pods"
    text = f"hold{'s' if len(names) == 1 else ''} {holder.amount} {resource}, which {needing} need{'s' if len(waiting) == 1 else ''}"
    kind, name = holder.owner.get("kind"), holder.owner.get("name")
    if all(map(is_being_deleted, holder.pods)):
        text = f"{text}; {'it is' if len(names) == 1 else 'they are'} being deleted"
    if snapshot.job["metadata"]["uid"] == holder.owner.get("uid"):
        return Cause(names, f"{text}; of the same job")
    job = holder.job
    if job is None or not holder.is_finished:
        return Cause(names, f"{text}; of {kind} {name}" if kind else text, blocks=is_job(holder.owner))
    ended = next(type_ for type_ in FINISHED if is_condition_true(job, type_))
    policy = run_policy(job, "cleanPodPolicy") or "None, the default"
    text = f"{text}; {kind} {name} has {ended} and keeps its pods (cleanPodPolicy: {policy})"
    step = _clean_up_step(job, of_holder or "default")
    return Cause(names, text, transition_time(job, ended), next_step=step)


def _clean_up_step(job: Object, namespace: str) -> str:
    """Return the command that makes the operator delete the pods that still run; it needs no rights on pods, and keeps the job."""
    policy = {"cleanPodPolicy": "Running"}
    spec = {"runPolicy": policy, **(policy if "cleanPodPolicy" in spec_of(job) else {})}
    patch = json.dumps({"spec": spec}, separators=(",", ":"))
    return f"kubectl patch {job['kind'].lower()} {name_of(job)} -n {namespace} --type merge -p '{patch}'"
