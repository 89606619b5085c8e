"""Whether pods ever ran without quota, from the recorded changes of pods and Workloads."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from api.labels import JOB_ROLE, REPLICA_TYPE
from tests.support.invariants import has

Object = dict[str, Any]


def violations(changes: Iterable[tuple[str, Object]], cpus: int, *, by_status: bool = False) -> Iterator[str]:
    """Yield each moment at which a job had more pods than quota, or all jobs together more quota than there is.

    A pod counts from its creation until it has ended or is gone; each needs one CPU. Pods of a job's batch Jobs are the job's.

    Args:
        changes: type and object of each, in any order: versions are the revisions of the API server's one store.
        cpus: the quota of the queue.
        by_status: whether quota follows the status of jobs, as in Kueue's own integration. Then a pod counts from when the status of its
            admitted job counts it as active until it has ended, and pods of jobs that are over or deleted do not.
    """
    changes = list(changes)
    parents = {obj["metadata"]["uid"]: owner_of(obj) for _, obj in changes if obj["kind"] == "Job"}
    pods: defaultdict[str, dict[str, Object]] = defaultdict(dict)
    workloads: dict[str, Object] = {}
    over: set[str] = set()
    active: set[str] = set()
    for type_, obj in sorted(changes, key=lambda change: int(change[1]["metadata"]["resourceVersion"])):
        name = obj["metadata"]["name"]
        owner = parents.get(owner_of(obj), owner_of(obj))
        if obj["kind"] not in {"Pod", "Workload"}:
            uid = obj["metadata"]["uid"]
            if type_ == "DELETED" and by_status:
                over.add(uid)
            if quota_of(workloads.get(uid)):
                active |= counted_pods(obj, pods[uid].values())
            continue
        if obj["kind"] == "Workload":
            if has(obj, "Finished") and by_status:
                over.add(owner)
            workloads[owner] = obj
        else:
            pods[owner][name] = obj
        if type_ == "DELETED":
            (workloads if obj["kind"] == "Workload" else pods[owner]).pop(
                owner if obj["kind"] == "Workload" else name
            )
        quota = quota_of(workloads.get(owner))
        for role, count in live(
            pod for pod in pods[owner].values() if not by_status or pod["metadata"]["uid"] in active
        ).items():
            if count > quota.get(role, 0) and owner not in over:
                at = f"{obj['kind']} {name} {type_} at {obj['metadata']['resourceVersion']}"
                yield f"{at}: {count} pods of {role}, quota for {quota.get(role, 0)}"
        total = sum(sum(quota_of(workload).values()) for workload in workloads.values())
        if total > cpus:
            yield f"{name} at {obj['metadata']['resourceVersion']}: quota of {total} CPUs in use"


def owner_of(obj: Object) -> str:
    """Return the UID of the job that an object belongs to."""
    return next(
        (owner["uid"] for owner in obj["metadata"].get("ownerReferences") or () if owner.get("controller")),
        "",
    )


def role_of(pod: Object) -> str:
    """Return the role in lower case. Pods of MPIJobs of v2beta1 have only the label of roles."""
    labels: dict[str, str] = pod["metadata"]["labels"]
    return labels.get(REPLICA_TYPE) or labels[JOB_ROLE]


def live(pods: Iterable[Object]) -> Counter[str]:
    """Return how many pods of each role have not ended."""
    return Counter(role_of(pod) for pod in pods if phase_of(pod) not in {"Succeeded", "Failed"})


def counted_pods(job: Object, pods: Iterable[Object]) -> set[str]:
    """Return the UIDs of the running pods that the job's status counts; of a role, all or none."""
    statuses = (job.get("status") or {}).get("replicaStatuses") or {}
    running: defaultdict[str, set[str]] = defaultdict(set)
    for pod in pods:
        if phase_of(pod) == "Running":
            running[role_of(pod)].add(pod["metadata"]["uid"])
    counts = {role.lower(): status.get("active") or 0 for role, status in statuses.items()}
    return {uid for role, uids in running.items() if counts.get(role, 0) >= len(uids) for uid in uids}


def phase_of(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def quota_of(workload: Object | None) -> Mapping[str, int]:
    """Return for how many pods of each pod set a Workload holds quota."""
    if workload is None or has(workload, "Finished") or not has(workload, "QuotaReserved"):
        return {}
    status = workload["status"]
    returned = {item["name"]: item["count"] for item in status.get("reclaimablePods") or ()}
    assignments = status["admission"]["podSetAssignments"]
    return {item["name"]: item["count"] - returned.get(item["name"], 0) for item in assignments}
