"""Objects of a job as the API server returns them, for tests of diagnoses: small, and valid as far as a diagnosis reads them."""

from datetime import UTC, datetime, timedelta
from typing import Any

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
Object = dict[str, Any]


def at(seconds: float) -> str:
    """So many seconds before now."""
    return (NOW - timedelta(seconds=seconds)).isoformat()


def true(type_: str, *, since: float = 60, **fields: Any) -> Object:
    return {"type": type_, "status": "True", "lastTransitionTime": at(since), **fields}


def false(type_: str, *, since: float = 60, **fields: Any) -> Object:
    return {**true(type_, since=since, **fields), "status": "False"}


CREATED = true("Created")
RUNNING = true("Running", since=50)


def job(*conditions: Object, workers: int = 1, age: float = 60, **policy: Any) -> Object:
    return {
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "n", "uid": "job", "creationTimestamp": at(age)},
        "spec": {
            "runPolicy": policy,
            "pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": workers}},
        },
        "status": {"conditions": list(conditions)},
    }


def pod(name: str = "j-worker-0", /, phase: str = "Pending", node: str = "a", **status: Any) -> Object:
    """One that is on a node; without a word of its conditions it is Ready there."""
    conditions = [true("PodScheduled"), true("Ready")]
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": at(55)},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "conditions": conditions, **status},
    }


def master(**status: Any) -> Object:
    return pod(
        "j-master-0", "Running", containerStatuses=[container(running={"startedAt": at(50)})], **status
    )


def container(*, last: Object | None = None, restarts: int = 0, **state: Object) -> Object:
    before = {"lastState": {"terminated": last}} if last else {}
    return {"name": "pytorch", "state": state, "restartCount": restarts, **before}


def ended(code: int, *, ago: float = 20, **fields: Any) -> Object:
    return {"exitCode": code, "finishedAt": at(ago), "startedAt": at(50), **fields}


def event(
    about: Object, reason: str, message: str, type_: str = "Warning", *, ago: float = 5, kind: str = "Pod"
) -> Object:
    metadata = about["metadata"]
    return {
        "metadata": {"creationTimestamp": at(ago)},
        "involvedObject": {"kind": kind, "name": metadata["name"], "uid": metadata["uid"]},
        "type": type_,
        "reason": reason,
        "message": message,
        "lastTimestamp": at(ago),
    }


def node(name: str, ready: Object) -> dict[str, Object]:
    return {name: {"metadata": {"name": name}, "status": {"conditions": [ready]}}}
