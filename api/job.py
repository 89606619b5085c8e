"""The types that all job kinds of kubeflow.org/v1 share: run policy, replica specs and status.

Pod templates stay plain dicts and are passed on unchanged. Defaults are applied in memory (``controller.kind``)
and never written back.

Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/common_types.go.
"""

from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from api.failure_policy import Attempt, FailurePolicy
from api.meta import ObjectMeta, Resource, Wire
from api.progress import Progress
from api.success_policy import SuccessPolicy
from api.times import Time
from api.wall_clock import WallClock


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


class TopologyConstraint(Wire):
    """A topology domain of the group."""

    key: str
    """Label of nodes, such as ``topology.kubernetes.io/zone``. All pods go to nodes with the same value."""


class SchedulingConstraints(Wire):
    """Where the pods of a group may go.

    Source: Kubernetes 1.37, staging/src/k8s.io/api/scheduling/v1beta1/types.go, PodGroupSchedulingConstraints.
    """

    topology: list[TopologyConstraint] | None = None
    """Topology domains of the group; Kubernetes 1.37 accepts one."""


class GroupResourceClaim(Wire):
    """A ResourceClaim of a group; pod templates that use it have the same entry in ``resourceClaims``.

    Source: Kubernetes 1.37, staging/src/k8s.io/api/scheduling/v1beta1/types.go, PodGroupResourceClaim.
    """

    name: str
    """Name of the claim in the pods."""
    resource_claim_name: str | None = None
    """Name of an existing ResourceClaim."""
    resource_claim_template_name: str | None = None
    """Name of a ResourceClaimTemplate, from which the group gets a claim of its own."""


class SchedulingPolicy(Wire):
    """Parameters of gang scheduling."""

    min_available: int | None = None
    """Number of pods that must start together. Defaults to the number of all pods of the job."""
    queue: str | None = None
    """Volcano queue of the job. Immutable, except in MPIJobs of v2beta1 and v1alpha2. The coscheduling plugin ignores it. Defaults to
    the queue ``default``.
    """
    min_resources: dict[str, int | str] | None = None
    """Resources that must be free before the pods start, by resource name. Defaults to what the first ``minAvailable`` pods request."""
    priority_class: str | None = None
    """Priority class of the job's PodGroup in Volcano and Kubernetes. Under the coscheduling plugin, pods whose template names no class get it.
    YuniKorn ignores it. If unset, the PodGroup has none; MPIJobs of v2beta1, and all kinds in Kubernetes, use that of the first pod template that names one.
    """
    schedule_timeout_seconds: int | None = None
    """Seconds that the pods wait in the coscheduling plugin for the others. Volcano ignores it. If unset, the plugin's own timeout applies."""
    scheduling_constraints: SchedulingConstraints | None = None
    """Where the pods may go as a group. Only for ``--gang-scheduler-name=kubernetes``. Changes have no effect while the job runs."""
    resource_claims: list[GroupResourceClaim] | None = None
    """Devices that the pods share. Only for ``--gang-scheduler-name=kubernetes``. Changes have no effect while the job runs."""


class RunPolicy(Wire):
    """The limits of a job's duration and restarts, and what remains after its end."""

    clean_pod_policy: str | None = None
    """Pods to delete when the job has finished: ``None``, ``Running`` or ``All``. ``Running`` deletes pods that run or are pending, with their
    Services; ``All`` deletes all pods and Services. Any other value counts as ``All``. A job that reaches a limit loses all pods, whatever
    this field says. Defaults to ``None``.
    """
    ttl_seconds_after_finished: int | None = None
    """Seconds until a finished job is deleted, counted from ``status.completionTime``. A suspended job stays. If unset, the job stays."""
    active_deadline_seconds: int | None = None
    """Seconds that the job may be active before it fails. They count from ``status.startTime``, and again from the time when the job is
    resumed. If unset, the job has no deadline.
    """
    backoff_limit: int | None = None
    """Number of restarts at which the job fails. 3 tolerates two restarts; 0 and 1 tolerate none. Restarts of containers in place and
    replaced pods count, except in roles with the restart policy ``Never``. If unset, the number of restarts has no limit.
    """
    scheduling_policy: SchedulingPolicy | None = None
    """Parameters of gang scheduling, if the operator has a gang scheduler (``--gang-scheduler-name``)."""
    suspend: bool | None = None
    """Whether to suspend the job, which deletes its pods. The job starts or continues when this becomes false. Defaults to ``false``."""
    managed_by: str | None = None
    """Controller that manages the job. ``kubeflow.org/training-operator`` is this operator; ``kueue.x-k8s.io/multikueue`` leaves the job to
    MultiKueue. Immutable. Defaults to this operator.
    """
    node_lost_seconds: int | None = None
    """Seconds without a sign of life, at least 30, after which a node counts as lost: its pods are deleted without waiting for it, and replaced.
    If the node has only lost its network, its containers still run. If unset, only nodes that are certainly gone are lost.
    """
    failure_policy: FailurePolicy | None = None
    """What happens when a pod fails: ordered rules, and the restart of the whole job. If unset, the restart policies of the roles decide.

    Differs: training-operator has none. See docs/decisions/0033-failure-policy.md.
    """
    wall_clock: bool | None = None
    """Whether the status says where the time of the job went. Defaults to ``true`` for jobs with a failurePolicy, and to ``false`` for others."""
    pending_timeout_seconds: int | None = None
    """Seconds within which all pods must run after they were created, or the job fails or restarts by its failurePolicy and frees what it
    holds. The time in queues does not count. If unset, pods may wait forever.

    Differs: training-operator has none. See docs/decisions/0038-failure-and-success-rules.md.
    """
    success_policy: SuccessPolicy | None = None
    """Which pods decide that the job has succeeded. If unset, the kind's own rule decides.

    Differs: training-operator has none. See docs/decisions/0038-failure-and-success-rules.md.
    """
    progress_deadline_seconds: int | None = None
    """Seconds without progress after which the running job hangs: the failure policy decides with the reason ``NoProgress``, or the job fails.
    At least 10. If unset, the job may be silent forever.

    Differs: training-operator has none. See docs/decisions/0036-hangs.md.
    """
    progress: Progress | None = None
    """What counts as progress. Defaults to any line in the logs of any pod."""

    @property
    def scheduling(self) -> SchedulingPolicy:
        """The scheduling policy, empty if there is none."""
        return self.scheduling_policy or SchedulingPolicy()


class ReplicaSpec(Wire):
    """One role of a job: the number of pods, their template and restart policy."""

    replicas: int | None = None
    """Number of pods of the role. 0 means none. Defaults to ``1``; for the workers of MPIJobs to ``0``."""
    template: dict[str, Any] | None = None
    """Template of the role's pods. The operator adds labels, and ports, variables and volumes that the kind needs, and sets the restart policy."""
    restart_policy: str | None = None
    """What happens when a pod fails: ``Always``, ``OnFailure``, ``Never`` or ``ExitCode``. ``Never`` fails the job. With ``OnFailure`` and
    ``Always`` the kubelet restarts containers in place, and a pod that fails nevertheless is replaced. ``ExitCode`` replaces a pod with an exit
    code of 128 or more, or without one, and fails the job otherwise. Defaults to ``Never``; to ``OnFailure`` in PyTorchJobs, PaddleJobs and
    launchers of v2beta1 and v1alpha2 MPIJobs; to ``Always`` in workers of v1alpha2 MPIJobs.
    """


class ReplicaStatus(Wire):
    """How many pods of a role are active, succeeded and failed; zero counters are omitted in JSON."""

    active: int | None = None
    """Number of pods that run. Absent if it is 0."""
    succeeded: int | None = None
    """Number of pods that succeeded. Absent if it is 0."""
    failed: int | None = None
    """Number of pods that failed and are not replaced yet. Absent if it is 0."""
    selector: str | None = None
    """Label selector of the role's pods, for the scale subresource. Only kinds that have it set this field."""
    restarts: int | None = None
    """Restarts of deleted pods, which count towards ``backoffLimit``. Only jobs with that limit have it.

    Differs: training-operator ignores them, see docs/decisions/0003-limits.md.
    """
    replacing: list[str] | None = None
    """UIDs of failed pods that ``restarts`` includes and that still exist. Each restart thereby counts exactly once."""


class JobCondition(Wire):
    """One entry of the condition list, which is ordered by the last write."""

    type: str
    """Created, Running, Restarting, Suspended, Succeeded or Failed."""
    status: str
    """Whether the condition holds: ``True``, ``False`` or ``Unknown``."""
    reason: str | None = None
    """Why it has this status, as one word for programs."""
    message: str | None = None
    """Why it has this status, as text for people."""
    last_update_time: Time | None = None
    """When the operator last wrote the condition."""
    last_transition_time: Time | None = None
    """When ``status`` last changed."""


class JobStatus(Wire):
    """The status of a job."""

    conditions: list[JobCondition] | None = None
    """State of the job, with at most one entry of each type. The entry that changed last comes last; kubectl shows it as STATE."""
    replica_statuses: dict[str, ReplicaStatus] | None = None
    """Number of pods in each state, by role."""
    start_time: Time | None = None
    """When the job became active, or was last resumed. The deadline counts from here."""
    completion_time: Time | None = None
    """When the job succeeded or failed."""
    last_reconcile_time: Time | None = None
    """When the job began to wait for its PodGroup. Only jobs under a gang scheduler have it."""
    restarts: int | None = None
    """How often the job was restarted as a whole, which is the number of the current attempt. Only jobs with a failure policy have it."""
    restarts_count_towards_max: int | None = None
    """How many of these restarts count towards ``maxRestarts``."""
    in_place_restarts: int | None = None
    """How many of the last restarts kept the pods, which are those of an earlier attempt."""
    attempts: list[Attempt] | None = None
    """The last ten attempts that a failed pod ended, the oldest first."""
    assembled_time: Time | None = None
    """When all pods of the attempt ran together for the first time. Only jobs with a ``pendingTimeoutSeconds`` have it."""
    lost_seconds: int | None = None
    """Seconds between failures and the next time the job ran, over all attempts."""
    wall_clock: WallClock | None = None
    """Where the time of the job went."""

    @property
    def pods_attempt(self) -> int:
        """The attempt that the job's pods were created for. Restarts in place keep them, so it may be an earlier one than the present."""
        return (self.restarts or 0) - (self.in_place_restarts or 0)

    @property
    def last_attempt(self) -> Attempt | None:
        """The newest of ``attempts``; None before the first."""
        return self.attempts[-1] if self.attempts else None


_NO_POLICY = RunPolicy()


class JobSpec(Wire):
    """The fields of a spec that all kinds have."""

    run_policy: RunPolicy | None = None
    """Limits of the job's duration and restarts, and what remains after its end."""

    @property
    def policy(self) -> RunPolicy:
        """The run policy, empty if there is none."""
        return self.run_policy or _NO_POLICY


class Job(Wire):
    """A job of any kind; each kind has its own type of spec."""

    other_versions: ClassVar[tuple[str, ...]] = ()
    """API versions that are served in addition to the resource's version, which is the storage version."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: JobSpec = Field(default_factory=JobSpec)
    """Desired state of the job."""
    status: JobStatus | None = None
    """Observed state of the job, which the operator writes."""

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
    group = f"{resource.group}/" if resource.group else ""
    return {
        "apiVersion": f"{group}{job.owner_version or resource.version}",
        "kind": resource.kind,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
