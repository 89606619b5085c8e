"""The types that all job kinds of kubeflow.org/v1 share: run policy, replica specs and status.

Pod templates stay plain dicts and are passed on unchanged. Defaults are applied in memory (``controller.kind``)
and never written back.

Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/common_types.go.
"""

from dataclasses import replace
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from api.meta import ObjectMeta, OwnerReference, Resource, Wire
from api.times import Time


class ConditionType(StrEnum):
    """The types of a job's conditions."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class CleanPodPolicy(StrEnum):
    """Which pods are deleted when a job has finished. Unknown values count as ALL, as in the original."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class RestartPolicy(StrEnum):
    """When a failed pod is replaced. EXIT_CODE replaces it for exit codes of 128 and more."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class SchedulingPolicy(Wire):
    """Parameters of gang scheduling. ``schedule_timeout_seconds`` is in seconds."""

    min_available: int | None = None
    queue: str | None = None
    min_resources: dict[str, int | str] | None = None
    priority_class: str | None = None
    schedule_timeout_seconds: int | None = None


class RunPolicy(Wire):
    """The limits of a job's duration and restarts, and what remains after its end. Durations are in seconds."""

    clean_pod_policy: str | None = None
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    scheduling_policy: SchedulingPolicy | None = None
    suspend: bool | None = None
    managed_by: str | None = None


class ReplicaSpec(Wire):
    """One role of a job: the number of pods, their template and restart policy."""

    replicas: int | None = None
    template: dict[str, Any] | None = None
    restart_policy: str | None = None


class ReplicaStatus(Wire):
    """How many pods of a role are active, succeeded and failed; zero counters are omitted in JSON."""

    active: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    selector: str | None = None
    restarts: int | None = None
    """Restarts of deleted pods that count towards ``backoffLimit``; written only for jobs with that limit.

    Differs: training-operator ignores them, see docs/decisions/0003-limits.md.
    """
    replacing: list[str] | None = None
    """UIDs of failed pods that ``restarts`` already includes and that still exist, so that each restart counts exactly once."""


class JobCondition(Wire):
    """One entry of the condition list, which is ordered by the last write."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_update_time: Time | None = None
    last_transition_time: Time | None = None


class JobStatus(Wire):
    """The status of a job. ``last_reconcile_time`` is written only while a gang waits."""

    conditions: list[JobCondition] | None = None
    replica_statuses: dict[str, ReplicaStatus] | None = None
    start_time: Time | None = None
    completion_time: Time | None = None
    last_reconcile_time: Time | None = None


class JobSpec(Wire):
    """The fields of a spec that all kinds have."""

    run_policy: RunPolicy | None = None

    @property
    def policy(self) -> RunPolicy:
        """The run policy, empty if there is none."""
        return self.run_policy or RunPolicy()


class Job(Wire):
    """A job of any kind; each kind has its own type of spec."""

    other_versions: ClassVar[tuple[str, ...]] = ()
    """API versions that are served in addition to the resource's version, which is the storage version."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: JobSpec = Field(default_factory=JobSpec)
    status: JobStatus | None = None

    @property
    def owner_version(self) -> str:
        """The API version in the owner references of children; empty means that of the resource."""
        return ""


class ReplicaField(NamedTuple):
    """A field of a spec that maps roles to replica specs."""

    attribute: str
    wire_name: str


def replica_field(model: type[Job]) -> ReplicaField:
    """Return the field of the job's spec that maps roles to replica specs.

    Raises:
        TypeError: the spec has no such field, or more than one.
    """
    spec: Any = model.model_fields["spec"].annotation
    fields = [
        ReplicaField(name, field.alias or name)
        for name, field in spec.model_fields.items()
        if field.annotation in {dict[str, ReplicaSpec], dict[str, ReplicaSpec] | None}
    ]
    if not fields:
        raise TypeError(f"{spec.__name__} has no replica specs")
    if len(fields) > 1:
        names = " and ".join(field.attribute for field in fields)
        raise TypeError(f"{spec.__name__} has more than one map of replica specs: {names}")
    return fields[0]


def owner_reference(resource: Resource, job: Job) -> dict[str, Any]:
    """Return the owner reference of every child: the job as the controller."""
    named = replace(resource, version=job.owner_version or resource.version)
    return OwnerReference(
        api_version=named.api_version,
        kind=named.kind,
        name=job.metadata.name,
        uid=job.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    ).to_wire()
