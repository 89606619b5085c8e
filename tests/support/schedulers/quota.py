"""Whether pods ever ran without quota, from the recorded changes of pods and Workloads."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Object = dict[str, Any]
_ENDED = frozenset({"Succeeded", "Failed"})
_ROLE = "training.kubeflow.org/replica-type"


def violations(changes: Iterable[tuple[str, Object]], cpus: int) -> Iterator[str]:
    """Yield each moment at which a job had more pods than quota, or all jobs together more quota than there is.

    A pod counts from its creation until it has ended or is gone; each needs one CPU.

    Args:
        changes: type and object of each, in any order: versions are the revisions of the API server's one store.
        cpus: the quota of the queue.
    """
    pods: defaultdict[str, dict[str, Object]] = defaultdict(dict)
    workloads: dict[str, Object] = {}
    own = [(type_, obj) for type_, obj in changes if obj["kind"] in {"Pod", "Workload"}]
    for type_, obj in sorted(own, key=lambda change: int(change[1]["metadata"]["resourceVersion"])):
        owner, name = owner_of(obj), obj["metadata"]["name"]
        if obj["kind"] == "Workload":
            workloads[owner] = obj
        else:
            pods[owner][name] = obj
        if type_ == "DELETED":
            (workloads if obj["kind"] == "Workload" else pods[owner]).pop(
                owner if obj["kind"] == "Workload" else name
            )
        quota = quota_of(workloads.get(owner))
        for role, count in running(pods[owner].values()).items():
            if count > quota.get(role, 0):
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


def running(pods: Iterable[Object]) -> Counter[str]:
    """Return how many pods of each role have not ended."""
    live = (pod for pod in pods if (pod.get("status") or {}).get("phase") not in _ENDED)
    return Counter(pod["metadata"]["labels"][_ROLE] for pod in live)


def quota_of(workload: Object | None) -> Mapping[str, int]:
    """Return for how many pods of each pod set a Workload holds quota."""
    status = (workload or {}).get("status") or {}
    conditions = {own["type"]: own["status"] for own in status.get("conditions") or ()}
    if conditions.get("QuotaReserved") != "True" or conditions.get("Finished") == "True":
        return {}
    returned = {item["name"]: item["count"] for item in status.get("reclaimablePods") or ()}
    assignments = status["admission"]["podSetAssignments"]
    return {item["name"]: item["count"] - returned.get(item["name"], 0) for item in assignments}
