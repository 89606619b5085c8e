"""Cached rows of Pods, Services and PodGroups: flat, with the fields that planning reads, decoded directly from JSON.

A row has about a hundredth of the object's size. Source of the fields: the Kubernetes API, core/v1.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from api import labels
from api.names import child_name
from api.pod_problems import (
    NO_STATE,
    ContainerStatus,
    PodCondition,
    PodStatus,
    Termination,
    Trouble,
    describe_exit,
    troubles,
)
from api.requests import Extended, extended_resources
from api.restart_report import RestartReport, report_in
from api.times import parse_time

NO_INDEX: Final = -1
"""The index of a pod whose replica-index label is missing or not a number."""


_PROGRESS: Final = frozenset(
    {"Initialized", "PodReadyToStartContainers", "ContainersReady", "Ready", "PodScheduled"}
)
"""Types of conditions that every pod gets on its way."""
UNADMITTED_PHASES: Final = frozenset({"", "Pending"})
"""Phases of a PodGroup that Volcano has not admitted to its queue."""
STARTED_PHASES: Final = frozenset({"Running", "Scheduled", "Completed"})
"""Phases of a PodGroup that no longer waits, in Volcano and in scheduler-plugins."""
FINAL_PHASES: Final = frozenset({"Finished", "Failed"})
"""Phases that scheduler-plugins never changes again, whatever becomes of the pods."""
UNSCHEDULED: Final = frozenset({("Unschedulable", "True"), ("PodGroupInitiallyScheduled", "False")})
"""Types and status of the conditions of a PodGroup that waits, of Volcano and of kube-scheduler. The latter is never False again."""


class Exit(msgspec.Struct, frozen=True, gc=False):
    """A terminated container, or an ``init`` container that runs again since. Those count as troubles, but not for the exit code.

    ``started_at`` is None if the container never started (runtimes write that as the year 1970); ``finished_at`` is when it ended.
    """

    container: str
    code: int
    reason: str = ""
    message: str = ""
    init: bool = False
    started_at: datetime | None = None
    finished_at: datetime | None = None
    report: RestartReport | None = None
    """If the container ended so that the job restarts in place. Code and message are then those of its command."""


def describe_end(end: Exit) -> str:
    """Return text such as ``container pytorch ended with exit code 1``, with the end of the termination message."""
    return f"container {end.container} ended with {describe_exit(end.code, end.reason, end.message)}"


class Owned(msgspec.Struct, frozen=True, gc=False):
    """The fields of every child: its identity, its owner, and the slot of the job that it fills."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    owner_kind: str = ""
    owner_name: str = ""
    owner_uid: str = ""
    role: str = ""
    index: int = NO_INDEX
    deleting: bool = False
    is_named_by_slot: bool = False
    """Whether its name is the one that follows from ``owner_name``, ``role`` and ``index``; False if that is unknown."""


class Service(Owned, frozen=True, gc=False):
    """One Service."""


class ConfigMap(Owned, frozen=True, gc=False):
    """One ConfigMap, without its data."""


class PodGroup(Owned, frozen=True, gc=False):
    """The group of a job's pods for a gang scheduler. ``spec`` is JSON.

    ``message`` is the newest one of the scheduler about why it does not start the group. The coscheduling plugin writes none, and
    kube-scheduler writes no ``phase``.
    """

    phase: str = ""
    spec: bytes = b"{}"
    message: str = ""


class Pod(Owned, frozen=True, gc=False):
    """One pod. ``restarts`` is the sum of the in-place restarts of all its containers, init containers included.

    Readiness is stored only for running pods, and the node for running and failed ones, so that a starting pod does not cause additional changes of the row.
    ``reason`` and ``message`` are the pod's own, such as Evicted; ``running_since`` is when its youngest container started.
    """

    phase: str = ""
    restarts: int = 0
    exits: tuple[Exit, ...] = ()
    previous_failure: Exit | None = None
    """The last failed run of a container that the kubelet has restarted since; init containers are in ``exits``."""
    troubles: tuple[Trouble, ...] = ()
    reason: str = ""
    message: str = ""
    ready: bool = False
    running_since: datetime | None = None
    node: str = ""
    address: str = ""
    failed_before: int = 0
    """How many pods of its name failed in a row before it, from its annotation."""
    scheduled_at: datetime | None = None
    """When it got its node; None for a pod that was created for a node. A change of it alone triggers no reconcile."""
    created_at: datetime | None = None
    prepared_at: datetime | None = None
    """When its network and volumes were there, so that images are pulled; None in an ended pod. Planning does not read it."""
    pulled_at: datetime | None = None
    """When its first container, init or not, started. Planning does not read it."""
    ready_at: datetime | None = None
    """When it became Ready; None if it is not."""
    checkpoint_at: datetime | None = None
    """When its newest checkpoint was complete, from its annotation."""
    disruption: str = ""
    """The reason of its condition DisruptionTarget, such as PreemptionByScheduler. Planning does not read it."""
    conditions: tuple[str, ...] = ()
    """The types of its conditions that are True and say more than how far the pod has come, such as DisruptionTarget."""
    attempt: int = 0
    """The attempt of the job that it was created for, from its label."""
    unhealthy_devices: str = ""
    """The devices of its containers that their plugin reports as Unhealthy, such as ``nvidia.com/gpu GPU-5aa``."""
    trouble_seconds: tuple[tuple[str, float], ...] = ()
    """Of a pod that counts as failed because of troubles that a failure rule names: for how long it has had each. Only planning sets it."""
    assigned_node: str = ""
    """The node that it was assigned to, also before it runs. A change of it alone triggers no reconcile."""
    lost_since: datetime | None = None
    """When its node gave its last sign of life, if planning takes it as lost with the node. The cache has no such pods."""
    extended: Extended = ()
    """The extended resources that it requests, such as GPUs. Pods with equal requests share them."""
    service: str = ""
    """The Service that publishes its name: its subdomain, if its host name is its own name; otherwise empty."""

    @property
    def is_finished(self) -> bool:
        return self.phase in {"Succeeded", "Failed"}

    @property
    def is_active(self) -> bool:
        """Whether the pod runs and is not being deleted."""
        return self.phase == "Running" and not self.deleting

    def exit_of(self, container: str) -> Exit | None:
        """Return the termination of that container, if there is one."""
        return next((done for done in self.exits if done.container == container and not done.init), None)


class _Owner(msgspec.Struct, rename="camel"):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class _Annotations(
    msgspec.Struct,
    rename={"failed_before": labels.FAILED_BEFORE, "checkpoint_time": labels.CHECKPOINT_TIME},
):
    failed_before: str = ""
    checkpoint_time: str = ""


class Meta(msgspec.Struct, rename="camel"):
    """Return the fields of all rows that come from ``metadata``."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: _Annotations | None = None
    owner_references: list[_Owner] | None = None


class _Container(msgspec.Struct, rename="camel"):
    resources: msgspec.Raw = msgspec.Raw(b"")
    restart_policy: str = ""


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _Pod(msgspec.Struct):
    metadata: Meta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: PodStatus | None = None


class _Object(msgspec.Struct):
    metadata: Meta


class _PodGroupStatus(msgspec.Struct):
    phase: str = ""
    conditions: list[PodCondition] | None = None


class _PodGroup(msgspec.Struct):
    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: _PodGroupStatus | None = None


_decode_pod = msgspec.json.Decoder(_Pod).decode
_decode_pod_group = msgspec.json.Decoder(_PodGroup).decode
_decode_object = msgspec.json.Decoder(_Object).decode


def pod_from_json(raw: bytes | memoryview | msgspec.Raw) -> Pod:
    """Decode a pod as the API server sends it.

    Raises:
        msgspec.DecodeError: this is not a pod.
    """
    pod = _decode_pod(raw)
    status = pod.status or PodStatus()
    regular, init = status.container_statuses or [], status.init_container_statuses or []
    return Pod(
        **owned(pod.metadata),
        phase=_shared(status.phase),
        restarts=sum(container.restart_count for container in (*regular, *init)),
        exits=(*_exits(regular, init=False), *_exits(init, init=True)),
        previous_failure=_previous_failure(regular),
        troubles=troubles(pod.metadata.name, status),
        reason=_shared(status.reason),
        message=_shared(status.message),
        failed_before=_count(pod.metadata.annotations.failed_before, 0) if pod.metadata.annotations else 0,
        extended=_extended(pod.spec),
        unhealthy_devices=_unhealthy_devices((*regular, *init)),
        attempt=attempt_of(pod.metadata),
        created_at=time_of(pod.metadata.creation_timestamp),
        pulled_at=_first_start((*init, *regular)),
        checkpoint_at=time_of(pod.metadata.annotations.checkpoint_time) if pod.metadata.annotations else None,
        assigned_node=_shared(pod.spec.node_name),
        service=_shared(pod.spec.subdomain) if pod.spec.hostname == pod.metadata.name else "",
        **_placement(status),
        **_whereabouts(pod.spec, status),
    )


def service_from_json(raw: bytes | memoryview | msgspec.Raw) -> Service:
    """Decode a Service, whole or metadata only.

    Raises:
        msgspec.DecodeError: this is not an API object.
    """
    return Service(**owned(_decode_object(raw).metadata))


def config_map_from_json(raw: bytes | memoryview | msgspec.Raw) -> ConfigMap:
    """Decode a ConfigMap, whole or metadata only.

    Raises:
        msgspec.DecodeError: this is not an API object.
    """
    return ConfigMap(**owned(_decode_object(raw).metadata))


def pod_group_from_json(raw: bytes | memoryview | msgspec.Raw) -> PodGroup:
    """Decode a PodGroup of any scheduler.

    Raises:
        msgspec.DecodeError: this is not a PodGroup.
    """
    group = _decode_pod_group(raw)
    status = group.status or _PodGroupStatus()
    return PodGroup(
        **owned(group.metadata),
        phase=_shared(status.phase),
        spec=bytes(group.spec),
        message=_unschedulable_message(status.conditions or ()),
    )


_shared = lru_cache(maxsize=16_384)(str)
"""Interns strings, because most rows have equal values. Not ``sys.intern``, which in some versions of Python keeps each string
forever, although jobs come and go.
"""


def owned(meta: Meta) -> dict[str, Any]:
    """Return the fields of ``Owned``. Rows share equal strings."""
    owner, marks = _controller(meta), meta.labels or {}
    role, index = marks.get(labels.REPLICA_TYPE, ""), _index(marks)
    return {
        "namespace": _shared(meta.namespace),
        "name": meta.name,
        "uid": meta.uid,
        "resource_version": int(meta.resource_version),
        "owner_kind": _shared(owner.kind),
        "owner_name": _shared(owner.name),
        "owner_uid": _shared(owner.uid),
        "role": _shared(role),
        "index": index,
        "deleting": meta.deletion_timestamp is not None,
        "is_named_by_slot": role != "" and index >= 0 and meta.name == child_name(owner.name, role, index),
    }


def attempt_of(meta: Meta) -> int:
    """Return the attempt of the job that the object was created for, 0 without the label."""
    return _count((meta.labels or {}).get(labels.RESTART_ATTEMPT, ""), 0)


def _controller(meta: Meta) -> _Owner:
    return next((owner for owner in meta.owner_references or () if owner.controller), _Owner())


def _index(marks: dict[str, str]) -> int:
    return _count(marks.get(labels.REPLICA_INDEX, ""), NO_INDEX)


def _count(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


def _exits(containers: list[ContainerStatus], *, init: bool) -> tuple[Exit, ...]:
    return tuple(
        _exit(container.name, done, init=init) for container in containers if (done := _end(container, init))
    )


def _exit(container: str, done: Termination, *, init: bool = False) -> Exit:
    report = report_in(done.exit_code, done.message)
    return Exit(
        container,
        report.exit_code if report else done.exit_code,
        done.reason,
        report.message if report else done.message,
        init,
        _since(done.started_at),
        _since(done.finished_at),
        report,
    )


def _unhealthy_devices(containers: Sequence[ContainerStatus]) -> str:
    return ", ".join(
        f"{resource.name} {device.resource_id}".strip()
        for container in containers
        for resource in container.allocated_resources_status or ()
        for device in resource.resources or ()
        if device.health == "Unhealthy"
    )


def _previous_failure(containers: list[ContainerStatus]) -> Exit | None:
    """Return the newest failed run that a container had before its present state."""
    failed = [
        _exit(container.name, done)
        for container in containers
        if (done := (container.last_state or NO_STATE).terminated) and done.exit_code
    ]
    return max(failed, key=end_order, default=None)


def end_order(end: Exit) -> tuple[bool, float]:
    """Return a key that orders ends by their time; those of an unknown time come first."""
    return (False, 0.0) if end.finished_at is None else (True, end.finished_at.timestamp())


def _unschedulable_message(conditions: Sequence[PodCondition]) -> str:
    """Return the message of the newest condition if that says that the group is not scheduled. Volcano keeps it when it has scheduled it since.

    Source: volcano 1.14, pkg/scheduler/plugins/gang/gang.go, OnSessionClose; Kubernetes 1.37, pkg/scheduler/schedule_one_podgroup.go.
    """
    newest = max(conditions, key=lambda condition: condition.last_transition_time or "", default=None)
    return newest.message if newest and (newest.type, newest.status) in UNSCHEDULED else ""


def _end(container: ContainerStatus, init: bool) -> Termination | None:
    now, last = container.state or NO_STATE, container.last_state or NO_STATE
    return now.terminated or (last.terminated if init else None)


def _placement(status: PodStatus) -> dict[str, Any]:
    """Return the fields that follow from conditions: when the pod got its node, and why it must leave it."""
    found: dict[str, Any] = {}
    types: list[str] = []
    for condition in status.conditions or ():
        if condition.status != "True":
            continue
        if condition.type == "PodScheduled":
            found["scheduled_at"] = time_of(condition.last_transition_time)
        elif condition.type == "PodReadyToStartContainers":
            found["prepared_at"] = time_of(condition.last_transition_time)
        elif condition.type == "Ready":
            found["ready_at"] = time_of(condition.last_transition_time)
        elif condition.type not in _PROGRESS:
            types.append(_shared(condition.type))
            if condition.type == "DisruptionTarget":
                found["disruption"] = _shared(condition.reason)
    if types:
        found["conditions"] = tuple(types)
    return found


def _extended(spec: _PodSpec) -> Extended:
    """Return the extended resources of a pod; only their names contain a slash."""
    containers = tuple(
        (key, container.restart_policy, bytes(container.resources))
        for key, given in (("containers", spec.containers), ("initContainers", spec.init_containers))
        for container in given or ()
    )
    return _extended_of(containers) if any(b"/" in resources for _, _, resources in containers) else ()


@lru_cache(maxsize=4096)
def _extended_of(containers: tuple[tuple[str, str, bytes], ...]) -> Extended:
    spec: dict[str, list[dict[str, Any]]] = {"containers": [], "initContainers": []}
    for key, restart_policy, resources in containers:
        requested = msgspec.json.decode(resources) if resources else None
        spec[key].append({"restartPolicy": restart_policy, "resources": requested})
    return extended_resources(spec)


def _whereabouts(spec: _PodSpec, status: PodStatus) -> dict[str, Any]:
    if status.phase == "Failed":
        return {"node": _shared(spec.node_name)}
    if status.phase != "Running":
        return {}
    running = [
        container.state.running
        for container in status.container_statuses or ()
        if container.state and container.state.running
    ]
    return {
        "ready": any(
            condition.type == "Ready" and condition.status == "True" for condition in status.conditions or ()
        ),
        "running_since": max(
            (time for state in running if (time := time_of(state.started_at))), default=None
        ),
        "node": _shared(spec.node_name),
        "address": status.pod_ip,
    }


def _first_start(containers: Sequence[ContainerStatus]) -> datetime | None:
    """Return when the first container started, in the runs that the status knows."""
    runs = (
        run
        for container in containers
        for state in (container.state, container.last_state)
        if state
        for run in (state.running, state.terminated)
        if run
    )
    return min((at for run in runs if (at := _since(run.started_at))), default=None)


def _since(text: str | None) -> datetime | None:
    found = time_of(text)
    return found if found and found.year > 1970 else None


def time_of(text: str | None) -> datetime | None:
    """Parse a time; None if it is unreadable, because a row without a time is better than no row."""
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None
