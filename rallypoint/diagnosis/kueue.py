"""Causes in Kueue: what a job's Workload waits for, and a queue label that Kueue does not act on.

Source: kueue 0.19, pkg/controller/jobframework/reconciler.go: Kueue suspends each job with a queue label whose kind it manages, creates a
Workload for it, and labels the pod templates of an admitted one with the name of the pod set. All this is visible with the rights of a
tenant, whereas the configuration of Kueue is not.
"""

from collections.abc import Iterator
from datetime import timedelta

from api.labels import KUEUE_PREFIX, MANAGED_BY_MULTIKUEUE
from api.workloads import ADMITTED, EVICTED, POD_SET, QUEUE_NAME, QUOTA_RESERVED
from controller.kinds import ALL
from controller.kueue.pod_sets import is_queueable
from rallypoint.diagnosis.objects import (
    Object,
    condition,
    is_condition_true,
    is_suspended,
    name_of,
    parse_timestamp,
    reason_and_message,
    replica_specs,
    run_policy,
    status_of,
    transition_time,
)
from rallypoint.diagnosis.snapshot import Cause, JobSnapshot
from rallypoint.documentation import DOCS_URL

_MANAGED_LABEL = f"{KUEUE_PREFIX}managed"
_GRACE = timedelta(seconds=10)
"""The time that Kueue may need to see a new job."""
_QUEUEABLE = frozenset(kind.resource.kind for kind in ALL if is_queueable(kind))
"""The kinds for which the operator can keep Workloads."""
_INTEGRATED = frozenset(kind.resource.kind for kind in ALL if not kind.is_opt_in)
"""The kinds that Kueue can be configured to manage."""


def workload_causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield what the Workloads of a suspended job wait for."""
    return (_workload_cause(workload, snapshot.namespace) for workload in snapshot.workloads)


def missing_workload(snapshot: JobSnapshot) -> str:
    """Describe that a suspended job with a queue label has no Workload; empty if it has no such label or this is unknown."""
    queue = local_queue_of(snapshot.job)
    if not queue or not snapshot.workloads_known:
        return ""
    if not snapshot.is_kueue_served:
        return f"this cluster has no Kueue for its queue {queue}"
    kind = snapshot.job["kind"]
    return f"Kueue has not created a Workload for queue {queue}; it may not manage {kind}s"


def unmanaged_causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield a note about a job that names a queue and runs without Kueue, outside any quota."""
    job, queue = snapshot.job, local_queue_of(snapshot.job)
    if (
        not queue
        or is_suspended(job)
        or run_policy(job, "managedBy") == MANAGED_BY_MULTIKUEUE
        or snapshot.now - snapshot.created <= _GRACE
        or snapshot.workloads
        or _is_admitted(job)
    ):
        return
    kind = job["kind"]
    if not snapshot.is_kueue_served:
        text = f"names the queue {queue}, but this cluster has no Kueue: nothing limits the job"
        step = "install Kueue, or remove the label"
    else:
        instead = (
            "it queues the pods one by one"
            if _are_pods_managed(snapshot)
            else "the job runs outside any quota"
        )
        manages = "does not manage" if snapshot.workloads_known else "seems not to manage"
        text = f"names the queue {queue}, but Kueue {manages} {kind}s here: {instead}"
        step = management_step(kind)
    yield Cause((), text, snapshot.created, blocks=False, next_step=step)


def management_step(kind: str) -> str:
    """Return how an administrator, or the owner of the job, makes Kueue act on the queue labels of a kind."""
    if kind not in _INTEGRATED:
        return (
            f"remove the label: Kueue has no integration for {kind}s. To queue their pods one by one, put the label on "
            "their pod templates and enable Kueue's integration for pods (integrations.frameworks: pod)"
        )
    own = ", or let the operator queue it (--kueue)" if kind in _QUEUEABLE else ""
    return (
        f"enable the kind in Kueue's configuration (integrations.frameworks: kubeflow.org/{kind.lower()}){own}: "
        f"see {DOCS_URL}/how-to/kueue.md"
    )


def local_queue_of(job: Object) -> str:
    """Return the queue that the job's label names; empty if it has none."""
    return str((job["metadata"].get("labels") or {}).get(QUEUE_NAME) or "")


def _are_pods_managed(snapshot: JobSnapshot) -> bool:
    """Return whether Kueue queues pods of the job as if they had no owner. A namespace or a default queue can make it do so."""
    return any((pod["metadata"].get("labels") or {}).get(_MANAGED_LABEL) == "true" for pod in snapshot.pods)


def _is_admitted(job: Object) -> bool:
    """Return whether Kueue has labeled a pod template, as it does when it admits a job."""
    templates = (role.get("template") or {} for role in replica_specs(job).values())
    return any(POD_SET in ((template.get("metadata") or {}).get("labels") or {}) for template in templates)


def _workload_cause(workload: Object, namespace: str) -> Cause:
    """Describe what the Workload waits for now, then its last eviction."""
    about = (name_of(workload),)
    command = f"kubectl describe workload {about[0]} -n {namespace}"
    evicted = (
        f"evicted: {reason_and_message(condition(workload, EVICTED))}"
        if is_condition_true(workload, EVICTED)
        else ""
    )
    quota = condition(workload, QUOTA_RESERVED)
    if quota.get("status") == "False":
        same = quota.get("message") == condition(workload, EVICTED).get("message")
        text = "; ".join(
            filter(None, (reason_and_message(quota) or "no quota reserved", "" if same else evicted))
        )
        at = transition_time(workload, QUOTA_RESERVED)
        return Cause(about, f"Kueue: {text}", at, next_step=f"wait, or: {command}")
    if evicted:
        return Cause(about, f"Kueue: {evicted}", transition_time(workload, EVICTED))
    for check in status_of(workload).get("admissionChecks") or ():
        if check.get("state") != "Ready":
            what = reason_and_message(
                {"reason": f"{check.get('name')} {check.get('state')}", "message": check.get("message")}
            )
            return Cause(
                about, f"Kueue: admission check {what}", parse_timestamp(check.get("lastTransitionTime"))
            )
    if is_condition_true(workload, ADMITTED):
        return Cause(
            about,
            "Kueue has admitted it but has not resumed the job yet",
            transition_time(workload, ADMITTED),
        )
    return Cause(about, "waiting for Kueue to consider it")
