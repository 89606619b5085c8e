"""Accessors for API objects. A missing or null field reads as empty."""

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias

from api.job import ConditionType
from api.labels import MANAGED_BY_MPI_OPERATOR, MANAGED_BY_US
from api.names import child_name
from api.times import parse_time

Object: TypeAlias = Mapping[str, Any]

FINISHED = (ConditionType.SUCCEEDED, ConditionType.FAILED)
_OWN_MANAGERS = (MANAGED_BY_US, MANAGED_BY_MPI_OPERATOR)
"""Values of ``managedBy`` that mean this operator. The versions of MPIJob have different ones."""


def parse_timestamp(text: Any) -> datetime | None:
    """Parse a timestamp; without a zone it is UTC. Return None if it is not a timestamp."""
    return _parse_timestamp(text) if isinstance(text, str) else None


@lru_cache(maxsize=16384)
def _parse_timestamp(text: str) -> datetime | None:
    """A page reads the same timestamps every two seconds: of a large job most of its time."""
    for spelled in (text, f"{text}Z"):
        with contextlib.suppress(ValueError):
            return parse_time(spelled)
    return None


def event_time(event: Object) -> str:
    """Return the time of the last occurrence."""
    return str(
        event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )


def reason_and_message(obj: Object) -> str:
    """Return ``Reason: message`` of an event, a condition or a status, without the parts that are empty."""
    found = (str(obj.get(part) or "").strip() for part in ("reason", "message"))
    return ": ".join(filter(None, found))


def name_of(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def owners_of(obj: Object) -> set[str]:
    """Return the UIDs of the owners."""
    return {owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()}


def spec_of(obj: Object) -> Object:
    return obj.get("spec") or {}


def status_of(obj: Object) -> Object:
    return obj.get("status") or {}


def condition(obj: Object, type_: str) -> Object:
    """Return the condition of that type, whatever its status; empty if there is none."""
    return next(
        (condition for condition in status_of(obj).get("conditions") or () if condition.get("type") == type_),
        {},
    )


def is_condition_true(obj: Object, type_: str) -> bool:
    return condition(obj, type_).get("status") == "True"


def is_finished(job: Object) -> bool:
    return any(is_condition_true(job, type_) for type_ in FINISHED)


def transition_time(obj: Object, type_: str) -> datetime | None:
    """Return the last transition time of the condition."""
    return parse_timestamp(condition(obj, type_).get("lastTransitionTime"))


def replica_specs(job: Object) -> dict[str, Object]:
    """Return the replica specs under any name: ``pytorchReplicaSpecs``, ``tfReplicaSpecs``…"""
    found = (value for key, value in spec_of(job).items() if key.lower().endswith("replicaspecs"))
    return {role: spec or {} for role, spec in (next(found, None) or {}).items()}


def desired_pods(job: Object) -> int:
    """Return the number of pods that the spec requests."""
    counts = (role.get("replicas") for role in replica_specs(job).values())
    return sum(1 if count is None else count for count in counts)


def missing_pod_names(job: Object, pods: Iterable[Object]) -> list[str]:
    """Return the names of the pods that the spec requests and that do not exist.

    The name of a launcher's pod may have a suffix.
    """
    names = [name_of(pod) for pod in pods]
    there = {*names, *(name.rpartition("-")[0] for name in names)}
    missing: list[str] = []
    for role, spec in replica_specs(job).items():
        if role.lower() == "launcher":
            names_of_role = [f"{name_of(job)}-launcher"]
        else:
            count = 1 if spec.get("replicas") is None else spec["replicas"]
            names_of_role = [child_name(name_of(job), role.lower(), index) for index in range(count)]
        missing += [name for name in names_of_role if name not in there]
    return missing


def is_pod_name(job: Object, name: str) -> bool:
    """Return whether a pod of the job may have that name."""
    role_names = "|".join(re.escape(role.lower()) for role in replica_specs(job))
    return bool(re.fullmatch(rf"{re.escape(name_of(job))}-({role_names})(-[0-9]+|-[a-z0-9]{{5}})?", name))


def run_policy(job: Object, name: str) -> Any:
    """Return a field of the run policy, from ``runPolicy`` or from the spec itself."""
    spec = spec_of(job)
    return (spec.get("runPolicy") or {}).get(name, spec.get(name))


def is_suspended(job: Object) -> bool:
    return run_policy(job, "suspend") is True


def other_manager(job: Object) -> str:
    """Return the controller that ``managedBy`` leaves the job to; empty if it is this operator."""
    manager = str(run_policy(job, "managedBy") or "")
    return "" if manager in _OWN_MANAGERS else manager


def is_pod_terminal(pod: Object) -> bool:
    return status_of(pod).get("phase") in {"Succeeded", "Failed"}


def is_being_deleted(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def init_container_statuses(pod: Object) -> Sequence[Object]:
    return status_of(pod).get("initContainerStatuses") or ()


def container_statuses(pod: Object) -> Sequence[Object]:
    """Return the statuses of the containers, without init containers."""
    return status_of(pod).get("containerStatuses") or ()


def all_container_statuses(pod: Object) -> Sequence[Object]:
    """Return the statuses of all containers, init containers first."""
    return (*init_container_statuses(pod), *container_statuses(pod))


def deletion_requested_at(obj: Object) -> datetime | None:
    """Return when the deletion was requested. ``deletionTimestamp`` is the end of the grace period."""
    metadata = obj["metadata"]
    due = parse_timestamp(metadata.get("deletionTimestamp"))
    return due - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0) if due else None


def state_of(status: Object, name: str) -> Object:
    """Return the ``waiting``, ``running`` or ``terminated`` state; empty if the container is in another state."""
    return (status.get("state") or {}).get(name) or {}


def sidecar_names(pod: Object) -> set[str]:
    """Return the names of the init containers with ``restartPolicy: Always``."""
    inits = spec_of(pod).get("initContainers") or ()
    return {container["name"] for container in inits if container.get("restartPolicy") == "Always"}


def running_init_statuses(pod: Object) -> list[Object]:
    """Return the statuses of running init containers that block the next container: a sidecar only until it has started."""
    sidecars = sidecar_names(pod)
    running = (status for status in init_container_statuses(pod) if state_of(status, "running"))
    return [status for status in running if status["name"] not in sidecars or not status.get("started")]


def replaced_pod_uids(pods: Sequence[Object]) -> set[str]:
    """Return the UIDs of failed pods that have a successor.

    A batch Job, such as an MPIJob's launcher, creates the successor under another name.
    """
    alive = {owner for pod in pods if status_of(pod).get("phase") != "Failed" for owner in _batch_jobs(pod)}
    return {
        pod["metadata"]["uid"]
        for pod in pods
        if status_of(pod).get("phase") == "Failed" and alive & _batch_jobs(pod)
    }


def _batch_jobs(pod: Object) -> set[str]:
    owners = pod["metadata"].get("ownerReferences") or ()
    return {owner["uid"] for owner in owners if owner.get("kind") == "Job"}
