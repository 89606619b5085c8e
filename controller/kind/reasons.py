"""The reasons of conditions and events, which users, alerts and other programs read.

The docstrings are their descriptions in docs/reference/events.md.

Source: training-operator 1.9, pkg/util/status.go and pkg/common/util/reason.go; mpi-operator 0.8, pkg/controller/mpi_job_controller_status.go.
"""

from enum import StrEnum


class ConditionReason(StrEnum):
    """The reason of a condition, after the kind: PyTorchJobCreated. ``controller.kind.idle`` has those of the condition Running (False)."""

    CREATED = "Created"
    """Created is True: the operator has seen the job. An event (Normal) reports it for MPIJobs of v2beta1 and v1alpha2."""
    RUNNING = "Running"
    """Running is True: the pods that decide about the job run. For MPIJobs an event (Normal) reports that the launcher runs, or in v1 that it
    was created. In a finished MPIJob that was never seen to run, Running is False with this reason.
    """
    RESTARTING = "Restarting"
    """Restarting is True: failed pods are replaced, at once or after a back-off. An event (Warning) reports each restart."""
    EVICTED = "Evicted"
    """Restarting is True: workers of an MPIJob were evicted and are replaced. An event (Warning) reports it."""
    SUSPENDED = "Suspended"
    """Suspended is True, and Running is False: ``runPolicy.suspend`` is true, and the pods are deleted. An event (Normal) reports it."""
    RESUMED = "Resumed"
    """Suspended is False: ``runPolicy.suspend`` is false again. An event (Normal) reports it."""
    SUCCEEDED = "Succeeded"
    """Succeeded is True. An event (Normal) reports it."""
    FAILED = "Failed"
    """Failed is True: pods failed for good, or the job reached its ``backoffLimit`` or deadline. An event reports it: Warning if an exit code
    below 128 under ``ExitCode`` is the cause, and for MPIJobs of v2beta1 and v1alpha2; otherwise Normal.
    """
    FAILURE_POLICY = "FailurePolicy"
    """Failed is True: a rule of ``runPolicy.failurePolicy`` with the action ``FailJob`` matched a failed pod, or the job cannot succeed without the
    failed pods that rules ignore. An event (Warning) reports it.
    """
    MAX_RESTARTS_EXCEEDED = "MaxRestartsExceeded"
    """Failed is True: the job restarted ``maxRestarts`` times as a whole, and failed again. An event (Warning) reports it."""
    PENDING_TIMEOUT = "PendingTimeout"
    """Failed is True: not all pods ran within ``runPolicy.pendingTimeoutSeconds``; the message says what one of them lacked. An event (Warning)
    reports it.
    """
    NO_PROGRESS = "NoProgress"
    """Failed is True: the job made no progress for ``progressDeadlineSeconds``, and no rule of a failure policy matched. All pods are deleted.
    An event (Warning) reports it.
    """
    FAILED_VALIDATION = "FailedValidation"
    """Failed is True: the job cannot run; the message names each field. An event (Warning) reports it, and also reports that a job which has
    started continues in spite of an invalid change.
    """


class EventReason(StrEnum):
    """The reason of an event that reports no change of a condition."""

    CREATED_WORKLOAD = "CreatedWorkload"
    """Normal, with ``--kueue``: the job's Workload was created, and waits in its queue."""
    UPDATED_WORKLOAD = "UpdatedWorkload"
    """Normal, with ``--kueue``: the job has changed, and its Workload with it."""
    DELETED_WORKLOAD = "DeletedWorkload"
    """Normal, with ``--kueue``: the job has changed after its admission or has left the queue, so its Workload was deleted."""
    FINISHED_WORKLOAD = "FinishedWorkload"
    """Normal, with ``--kueue``: the job and its pods have ended, and its quota is returned."""
    STARTED = "Started"
    """Normal, with ``--kueue``: Kueue has admitted the job, which is resumed."""
    STOPPED = "Stopped"
    """Normal, with ``--kueue``: the job is suspended because it is evicted or was never admitted; the message says why."""
    WORKLOAD_BLOCKED = "WorkloadBlocked"
    """Warning, with ``--kueue``: no Workload can be created for the job, or the job contradicts what was admitted."""
    LEFT_TO_ANOTHER = "LeftToAnother"  # after the kind
    """Normal, for MPIJobs: ``runPolicy.managedBy`` names a controller that is neither this operator nor MultiKueue."""
    EXITED_WITH_CODE = "ExitedWithCode"
    """Normal: the main container of a pod exited with a code other than 0."""
    FAILURE_IGNORED = "FailureIgnored"
    """Normal: a rule of ``runPolicy.failurePolicy`` with the action ``Ignore`` matched a failed pod."""
    IN_PLACE_UNAVAILABLE = "InPlaceRestartUnavailable"
    """Warning: the failure policy asks for restarts in place, and the Kubernetes release has none. The job restarts by recreation."""
    JOB_TERMINATED = "JobTerminated"
    """Normal: the job has finished or is suspended, and its PodGroup is deleted."""
    POD_TEMPLATE_RESTART_POLICY = "PodTemplateRestartPolicy"  # after the kind's ``settings_word``
    """Warning: a pod template has a restart policy. That of the replica spec applies. In v1 MPIJobs it is
    ``SettedPodTemplateRestartPolicy``.
    """
    POD_TEMPLATE_SCHEDULER_NAME = "PodTemplateSchedulerName"  # after the kind's ``settings_word``
    """Warning: a pod template names another scheduler than ``--gang-scheduler-name``, which ignores the PodGroup. In v1 MPIJobs it is
    ``SettedPodTemplateSchedulerName``.
    """
    PROGRESS_UNKNOWN = "ProgressUnknown"  # after the kind
    """Warning: the progress of a job with ``progressDeadlineSeconds`` cannot be read, so no hang is detected; the message says why."""
    VALIDATION_ERROR = "ValidationError"
    """Warning, MPIJobs of v2beta1 and v1alpha2: the job is invalid; the message names each field."""
    RESOURCE_EXISTS = "ErrResourceExists"
    """Warning, MPIJobs: an object of another owner has a name that the job needs."""
    MISSING_PERMISSIONS = "MissingPermissions"
    """Warning, MPIJobs of v1 and v1alpha2: the operator lacks the rights of the component ``mpi-v1``."""
    FLAVOR_MISMATCH = "FlavorMismatch"
    """Warning, MPIJobs: annotation and field name different flavors, or the launcher has another flavor and continues."""
    FLAVOR_UNKNOWN = "FlavorUnknown"
    """Warning, MPIJobs: the annotation names no flavor, and is ignored."""
    FLAVOR_IMMUTABLE = "FlavorImmutable"
    """Warning, MPIJobs: the manifest was applied again with another ``apiVersion``. The job keeps its flavor."""
    FIELDS_IGNORED = "FieldsIgnored"
    """Warning, MPIJobs: fields are set that the job's flavor does not read."""
    NODE_LOST = "NodeLost"
    """Warning: the node of a pod is lost, so the pod is deleted without waiting for the node. The message has the evidence."""
    NODES_UNKNOWN = "NodesUnknown"
    """Warning: the job has ``runPolicy.nodeLostSeconds``, and the operator cannot read nodes or their Leases, for example because it serves
    one namespace.
    """
    NO_WORKERS = "NoWorkers"
    """Warning, MPIJobs of v1 and v1alpha2: there are no workers, so all ranks run on the launcher."""
