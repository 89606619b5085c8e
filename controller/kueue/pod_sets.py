"""What a Workload says about a job, and what its admission adds to the job's templates.

Source: kueue 0.19, pkg/controller/jobs/kubeflow/kubeflowjob, pkg/podset, pkg/controller/jobframework (tas.go, reconciler.go, utils.go).
"""

import copy
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeGuard

import msgspec

from api import workloads
from api.job import ConditionType
from api.labels import MANAGED_BY_US, POD_SETS, REPLICA_INDEX
from api.meta import OwnerReference
from api.workloads import Workload
from controller.kind import JobKind, ReplicaKind
from controller.reconcile.jobs import JobRow
from controller.reconcile.status import merge_patch

Object = dict[str, Any]

LONGEST_NAME: Final = 253
HASH_LENGTH: Final = 5
MARKS: Final = frozenset(
    {workloads.POD_SET, workloads.LOCAL_QUEUE, workloads.CLUSTER_QUEUE, workloads.WORKLOAD}
)
"""Labels and annotations that only an admission adds to a template."""
_FINGERPRINT_LENGTH: Final = 16
_SEPARATOR: Final = "."
_METADATA: Final = ("labels", "annotations")
_SPEC: Final = ("nodeSelector", "tolerations", "schedulingGates")


class Unqueueable(ValueError):
    """No Workload can be made of a job, or no pods of what was admitted; the message names the field."""


class _Meta(msgspec.Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


_decode_meta = msgspec.json.Decoder(_Meta).decode


def is_queueable(kind: JobKind[Any]) -> TypeGuard[ReplicaKind[Any]]:
    """Return whether jobs of the kind can be queued: its pods are those of its roles, and the component ``kueue`` has the rights."""
    return isinstance(kind, ReplicaKind) and not kind.is_opt_in


def queue_of(row: JobRow) -> str:
    """Return the queue that a job's label names, empty if it has none."""
    return (_decode_meta(row.metadata).labels or {}).get(workloads.QUEUE_NAME, "")


@dataclass(frozen=True)
class PodSetRole:
    """One role of a job. ``key`` is its spelling in the spec; ``name`` is that of its pod set."""

    key: str
    name: str
    count: int
    template: Object
    succeeded: int = 0
    """Pods that have succeeded."""

    @property
    def is_marked(self) -> bool:
        """Whether an admission has been added to the template."""
        return workloads.POD_SET in ((self.template.get("metadata") or {}).get("labels") or {})


@dataclass(frozen=True)
class QueuedJob:
    """A job as Kueue sees it; parsed when it is needed."""

    kind: ReplicaKind[Any]
    row: JobRow

    @cached_property
    def _meta(self) -> _Meta:
        return _decode_meta(self.row.metadata)

    @property
    def labels(self) -> Mapping[str, str]:
        return self._meta.labels or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        return self._meta.annotations or {}

    @property
    def queue(self) -> str:
        """The LocalQueue that its label names, empty if it has none."""
        return self.labels.get(workloads.QUEUE_NAME, "")

    @cached_property
    def spec(self) -> Object:
        found = msgspec.json.decode(self.row.spec)
        return found if isinstance(found, dict) else {}

    @property
    def policy(self) -> Mapping[str, Any]:
        return self.spec.get("runPolicy") or {}

    @property
    def is_ours(self) -> bool:
        """Whether this operator manages it, and not MultiKueue."""
        return self.policy.get("managedBy") in {None, MANAGED_BY_US, self.kind.managed_by}

    @property
    def is_suspended(self) -> bool:
        return self.row.is_suspended

    @cached_property
    def status(self) -> Object:
        return msgspec.json.decode(self.row.status) or {}

    def condition(self, type_: ConditionType) -> Object | None:
        """Return the condition if it is True."""
        conditions = self.status.get("conditions") or ()
        found = (condition for condition in conditions if condition.get("type") == type_)
        return next((condition for condition in found if condition.get("status") == "True"), None)

    @property
    def end(self) -> Object | None:
        """The condition with which it finished; None if it has not."""
        return self.condition(ConditionType.FAILED) or self.condition(ConditionType.SUCCEEDED)

    @property
    def is_finished(self) -> bool:
        return self.end is not None

    @cached_property
    def roles(self) -> tuple[PodSetRole, ...]:
        """The roles in the order of the pod sets.

        Raises:
            Unqueueable: the replica specs are malformed.
        """
        specs = self.spec.get(self.kind.replicas_field) or {}
        if not isinstance(specs, dict) or not all(isinstance(spec, dict) for spec in specs.values()):
            raise Unqueueable(f"spec.{self.kind.replicas_field}: must map roles to replica specs")
        keys = {key.lower(): key for key in specs}
        order = self.kind.pod_set_order or self.kind.role_names
        statuses = self.status.get("replicaStatuses") or {}
        return tuple(
            _role(self.kind, keys[name.lower()], specs[keys[name.lower()]], statuses.get(name) or {})
            for name in order
            if name.lower() in keys
        )

    @property
    def is_marked(self) -> bool:
        """Whether an admission has been added to a template."""
        return any(role.is_marked for role in self.roles)

    @cached_property
    def pod_sets(self) -> list[Object]:
        """The pod sets of its Workload.

        Raises:
            Unqueueable: a template or an annotation of it is malformed.
        """
        return [_pod_set(self.kind, role) for role in self.roles]

    @cached_property
    def shape(self) -> str:
        """The fingerprint of what an admission does not change: the counts and the containers."""
        return _fingerprint(
            [
                (
                    pod_set["name"],
                    pod_set["count"],
                    pod_set["template"]["spec"].get("containers"),
                    pod_set["template"]["spec"].get("initContainers"),
                )
                for pod_set in self.pod_sets
            ]
        )

    @property
    def fingerprint(self) -> str:
        """The shape, and the fingerprint of the whole templates, which an admission changes."""
        return f"{self.shape}{_SEPARATOR}{_fingerprint(self.pod_sets)}"

    def has_shape_of(self, workload: Workload) -> bool:
        """Return whether the Workload counts the pods that this job creates.

        A Workload without a fingerprint is Kueue's own: only its counts are comparable, because Kueue has normalized the templates.
        """
        if workload.pod_sets:
            return workload.pod_sets.partition(_SEPARATOR)[0] == self.shape
        sizes = {pod_set["name"]: pod_set["count"] for pod_set in pod_sets_of(workload)}
        return sizes == {role.name: role.count for role in self.roles}

    @property
    def max_execution_seconds(self) -> int | None:
        """The value of its label; None if it has none, or one that is not a positive number."""
        text = self.labels.get(workloads.MAX_EXECUTION_SECONDS, "")
        return int(text) if text.isascii() and text.isdigit() and int(text) else None

    @property
    def priority_class(self) -> str:
        """The PriorityClass that counts if no label names a WorkloadPriorityClass; empty for the default one."""
        scheduling = self.policy.get("schedulingPolicy") or {}
        named = (role.template.get("spec", {}).get("priorityClassName") for role in self.roles)
        return str(scheduling.get("priorityClass") or next(filter(None, named), ""))

    @property
    def passed_on(self) -> dict[str, str]:
        """The annotations that its Workload gets."""
        return {key: value for key, value in self.annotations.items() if workloads.is_passed_on(key)}


def pod_sets_of(workload: Workload) -> list[Object]:
    """Return the pod sets of a Workload."""
    return msgspec.json.decode(workload.spec).get("podSets") or []


def workload_name(kind: ReplicaKind[Any], row: JobRow) -> str:
    """Return the name that Kueue itself gives to the Workload of a job, so that there is never a second one.

    Source: kueue 0.19, pkg/controller/jobframework/workload_names.go.
    """
    resource = kind.resource
    text = "\n".join((resource.kind, resource.group, row.name, row.uid))
    suffix = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:HASH_LENGTH]
    return f"{f'{resource.singular}-{row.name}'[: LONGEST_NAME - 1 - HASH_LENGTH]}-{suffix}"


def workload_body(job: QueuedJob, priority: Mapping[str, Any]) -> Object:
    """Return the Workload of a job. ``priority`` is its value, and a reference to its class if it has one.

    Raises:
        Unqueueable: a template or an annotation of it is malformed.
    """
    resource, row = job.kind.resource, job.row
    owner = OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=row.name,
        uid=row.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return {
        "apiVersion": workloads.WORKLOADS.api_version,
        "kind": workloads.WORKLOADS.kind,
        "metadata": {
            "name": workload_name(job.kind, row),
            "namespace": row.namespace,
            "labels": {workloads.JOB_UID: row.uid},
            "annotations": {**job.passed_on, POD_SETS: job.fingerprint},
            "finalizers": [workloads.RESOURCE_IN_USE],
            "ownerReferences": [owner.to_wire()],
        },
        "spec": _spec(job, priority),
    }


def workload_change(job: QueuedJob, workload: Workload, priority: Mapping[str, Any]) -> Object:
    """Return the merge patch that makes a Workload without quota equal to what it would be for the job as it is now.

    Raises:
        Unqueueable: a template or an annotation of it is malformed.
    """
    gone: dict[str, None] = dict.fromkeys(workload.annotations.keys() - job.passed_on.keys())
    absent = {"priorityClassRef": None, "maximumExecutionTimeSeconds": None}
    return {
        "metadata": {"annotations": {**gone, **job.passed_on, POD_SETS: job.fingerprint}},
        "spec": {**absent, **_spec(job, priority)},
    }


def _spec(job: QueuedJob, priority: Mapping[str, Any]) -> Object:
    seconds = job.max_execution_seconds
    limit = {"maximumExecutionTimeSeconds": seconds} if seconds else {}
    return {"podSets": job.pod_sets, "queueName": job.queue, **priority, **limit}


@dataclass
class Addition:
    """What an admission adds to the template of one pod set."""

    labels: dict[str, str] = field(default_factory=dict[str, str])
    annotations: dict[str, str] = field(default_factory=dict[str, str])
    node_selector: dict[str, str] = field(default_factory=dict[str, str])
    tolerations: list[Object] = field(default_factory=list[Object])
    gates: list[Object] = field(default_factory=list[Object])

    def merge(self, other: "Addition", source: str) -> None:
        """Add another addition.

        Raises:
            Unqueueable: both have another value of the same key.
        """
        for name, own, more in (
            ("label", self.labels, other.labels),
            ("annotation", self.annotations, other.annotations),
            ("nodeSelector", self.node_selector, other.node_selector),
        ):
            for key, value in more.items():
                if own.setdefault(key, value) != value and key not in MARKS:
                    raise Unqueueable(f"{source}: {name} {key}={value!r} conflicts with {own[key]!r}")
                own[key] = value
        self.tolerations += [item for item in other.tolerations if item not in self.tolerations]
        self.gates += [item for item in other.gates if item not in self.gates]


def flavors_of(workload: Workload) -> list[str]:
    """Return the flavors that were assigned to the pod sets."""
    return sorted({name for item in _assignments(workload) for name in (item.get("flavors") or {}).values()})


def additions(workload: Workload, flavors: Mapping[str, Mapping[str, Any]]) -> dict[str, Addition]:
    """Return what the admission of a Workload adds to the job, by the name of the pod set.

    Args:
        flavors: the specs of the ResourceFlavors, by name.

    Raises:
        Unqueueable: flavors or admission checks contradict each other.
    """
    spec, status = msgspec.json.decode(workload.spec), msgspec.json.decode(workload.status)
    cluster_queue = status["admission"].get("clusterQueue", "")
    requests = {pod_set["name"]: pod_set.get("topologyRequest") or {} for pod_set in spec["podSets"]}
    found: dict[str, Addition] = {}
    for assignment in _assignments(workload):
        name = assignment["name"]
        labels = {workloads.POD_SET: name, workloads.LOCAL_QUEUE: spec.get("queueName", "")}
        if workloads.is_dns_label(cluster_queue):
            labels[workloads.CLUSTER_QUEUE] = cluster_queue
        addition = found[name] = Addition(labels, {workloads.WORKLOAD: workload.name})
        if assignment.get("topologyAssignment"):
            if requests.get(name, {}).keys().isdisjoint({"required", "preferred", "unconstrained"}):
                addition.annotations[workloads.UNCONSTRAINED_TOPOLOGY] = "true"
            addition.gates.append({"name": workloads.TOPOLOGY})
        for flavor in sorted(set((assignment.get("flavors") or {}).values())):
            own = flavors[flavor]
            # Source: podset.FromAssignment, which lets a later flavor replace the node labels of an earlier one.
            addition.node_selector |= own.get("nodeLabels") or {}
            addition.merge(Addition(tolerations=own.get("tolerations") or []), f"ResourceFlavor {flavor}")
        for check in status.get("admissionChecks") or ():
            for update in check.get("podSetUpdates") or ():
                if update["name"] == name:
                    addition.merge(_update(update), f"admission check {check['name']}")
    return found


def admit(job: QueuedJob, workload: Workload, flavors: Mapping[str, Mapping[str, Any]]) -> Object:
    """Return the merge patch that starts a job with what was admitted, in this version of the job only.

    Raises:
        Unqueueable: the templates contradict what was admitted, or the pod sets are others.
    """
    added = additions(workload, flavors)
    own = {role.name for role in job.roles}
    if added.keys() != own:
        raise Unqueueable(
            f"the Workload admits the pod sets {', '.join(sorted(added))}, but the job has {', '.join(sorted(own))}"
        )
    templates = {role.key: _merged(role, added[role.name]) for role in job.roles}
    return _patch(job, suspend=False, templates=templates)


def suspend(job: QueuedJob, workload: Workload | None) -> Object:
    """Return the merge patch that suspends a job and takes away what an admission has added to it.

    Without a Workload, only the marks of an admission are known; what its flavors have added stays.
    """
    original = {pod_set["name"]: pod_set["template"] for pod_set in pod_sets_of(workload)} if workload else {}
    templates = {
        role.key: _restored(role.template, original[role.name])
        if role.name in original
        else _unmarked(role.template)
        for role in job.roles
    }
    return _patch(job, suspend=True, templates=templates)


def _patch(job: QueuedJob, *, suspend: bool, templates: Mapping[str, Object]) -> Object:
    after = copy.deepcopy(job.spec)
    after["runPolicy"] = {**(after.get("runPolicy") or {}), "suspend": suspend}
    for key, template in templates.items():
        after[job.kind.replicas_field][key]["template"] = template
    change = merge_patch({"spec": job.spec}, {"spec": after})
    metadata = {"uid": job.row.uid}
    if not suspend or job.kind.replicas_field in change.get("spec", {}):
        # A suspension alone is right whatever has changed meanwhile.
        metadata["resourceVersion"] = str(job.row.resource_version)
    return {"metadata": metadata, **change}


def _role(kind: ReplicaKind[Any], key: str, spec: Object, status: Mapping[str, Any]) -> PodSetRole:
    count, template = spec.get("replicas"), spec.get("template") or {}
    where = f"spec.{kind.replicas_field}.{key}"
    if count is not None and (not isinstance(count, int) or count < 0):
        raise Unqueueable(f"{where}.replicas: must be a number that is not negative")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise Unqueueable(f"{where}.template.spec: must be set")
    return PodSetRole(
        key, key.lower(), 1 if count is None else count, template, int(status.get("succeeded") or 0)
    )


def _pod_set(kind: ReplicaKind[Any], role: PodSetRole) -> Object:
    template = _unmarked(role.template)
    metadata = template.get("metadata") or {}
    spec = dict(template["spec"])
    for name in ("containers", "initContainers"):
        if spec.get(name):
            spec[name] = [_without_duplicates(container) for container in spec[name]]
    try:
        request = _topology_request(metadata.get("annotations") or {})
    except ValueError as error:
        where = f"spec.{kind.replicas_field}.{role.key}.template.metadata.annotations"
        raise Unqueueable(f"{where}: {error}") from error
    return {
        "name": role.name,
        "count": role.count,
        "template": {
            "metadata": {key: metadata[key] for key in _METADATA if metadata.get(key)},
            "spec": spec,
        },
        "topologyRequest": request,
    }


def _topology_request(annotations: Mapping[str, str]) -> Object:
    """Return what the annotations of a template request of Kueue's topology-aware scheduling.

    Raises:
        ValueError: an annotation has an invalid value.
    """
    request: Object = {"podIndexLabel": REPLICA_INDEX}
    if value := annotations.get(workloads.REQUIRED_TOPOLOGY):
        request["required"] = value
    elif value := annotations.get(workloads.PREFERRED_TOPOLOGY):
        request["preferred"] = value
    elif (value := annotations.get(workloads.UNCONSTRAINED_TOPOLOGY)) is not None:
        if value not in {"true", "false"}:
            raise ValueError(f"{workloads.UNCONSTRAINED_TOPOLOGY} must be true or false")
        request["unconstrained"] = value == "true"
    size = annotations.get(workloads.SLICE_SIZE)
    if size is not None and (topology := annotations.get(workloads.SLICE_TOPOLOGY)) is not None:
        if not size.isascii() or not size.isdigit() or not int(size):
            raise ValueError(f"{workloads.SLICE_SIZE} must be a number from 1")
        request |= {"podSetSliceRequiredTopology": topology, "podSetSliceSize": int(size)}
    group = annotations.get(workloads.POD_SET_GROUP)
    if group and not request.keys().isdisjoint({"required", "preferred"}):
        request["podSetGroupName"] = group
    return request


def _without_duplicates(container: Object) -> Object:
    """Return a container whose variables have different names; the last one counts. Workloads allow no others."""
    variables = container.get("env")
    if not variables:
        return container
    return {**container, "env": list({variable.get("name"): variable for variable in variables}.values())}


def _assignments(workload: Workload) -> Iterator[Object]:
    admission = msgspec.json.decode(workload.status).get("admission") or {}
    yield from admission.get("podSetAssignments") or ()


def _update(update: Mapping[str, Any]) -> Addition:
    return Addition(
        dict(update.get("labels") or {}),
        dict(update.get("annotations") or {}),
        dict(update.get("nodeSelector") or {}),
        list(update.get("tolerations") or ()),
    )


def _merged(role: PodSetRole, added: Addition) -> Object:
    template = role.template
    metadata, spec = template.get("metadata") or {}, template["spec"]
    merged = Addition(
        dict(metadata.get("labels") or {}),
        dict(metadata.get("annotations") or {}),
        dict(spec.get("nodeSelector") or {}),
        list(spec.get("tolerations") or ()),
        list(spec.get("schedulingGates") or ()),
    )
    merged.merge(added, f"the pod template of {role.key} contradicts what was admitted")
    values = (merged.labels, merged.annotations, merged.node_selector, merged.tolerations, merged.gates)
    return _with(template, dict(zip((*_METADATA, *_SPEC), values, strict=True)))


def _restored(template: Object, original: Mapping[str, Any]) -> Object:
    metadata, spec = original.get("metadata") or {}, original.get("spec") or {}
    values = {key: metadata.get(key) for key in _METADATA} | {key: spec.get(key) for key in _SPEC}
    return _with(template, values)


def _unmarked(template: Object) -> Object:
    metadata, spec = template.get("metadata") or {}, template["spec"]
    values: Object = {
        key: {mark: value for mark, value in (metadata.get(key) or {}).items() if mark not in MARKS}
        for key in _METADATA
    }
    gates = spec.get("schedulingGates") or ()
    values["schedulingGates"] = [gate for gate in gates if gate.get("name") != workloads.TOPOLOGY]
    return _with(template, {key: spec.get(key) for key in _SPEC} | values)


def _with(template: Object, values: Mapping[str, Any]) -> Object:
    """Return the template with these values of the fields that an admission changes; empty ones are absent."""
    metadata, spec = template.get("metadata") or {}, template["spec"]
    changed = {
        **template,
        "metadata": _replaced(metadata, _METADATA, values),
        "spec": _replaced(spec, _SPEC, values),
    }
    if not changed["metadata"] and "metadata" not in template:
        del changed["metadata"]
    return changed


def _replaced(part: Mapping[str, Any], keys: Iterable[str], values: Mapping[str, Any]) -> Object:
    """Return a part of a template with other values of some keys. What was empty and is empty stays as it is."""
    kept = {key: value for key, value in part.items() if key not in keys or not (value or values.get(key))}
    return kept | {key: values[key] for key in keys if values.get(key)}


def _fingerprint(value: object) -> str:
    encoded = msgspec.json.encode(value, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:_FINGERPRINT_LENGTH]
