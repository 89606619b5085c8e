"""Every label and annotation key of the contract. ``api.names`` computes the values.

Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/common_types.go.
"""

OPERATOR_NAME = "training.kubeflow.org/operator-name"
JOB_NAME = "training.kubeflow.org/job-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"

MANAGED_BY_US = "kubeflow.org/training-operator"
"""The value of ``runPolicy.managedBy`` that names this operator; an empty value means the same."""
MANAGED_BY_MPI_OPERATOR = "kubeflow.org/mpi-operator"
"""The same for MPIJobs of mpi-operator's versions."""
MANAGED_BY_MULTIKUEUE = "kueue.x-k8s.io/multikueue"
"""The only other valid value of ``runPolicy.managedBy``; MPIJobs accept any text."""
KUEUE_PREFIX = "kueue.x-k8s.io/"
"""The prefix of Kueue's labels and annotations."""

RESTART_ATTEMPT = "training.kubeflow.org/restart-attempt"
"""Label of the pods of a job with a failurePolicy, and of the batch Job of a launcher: how often the job had been restarted as a whole when it was created."""

FAILED_BEFORE = "training.kubeflow.org/failed-before"
"""Annotation of a replacement pod: how many pods of its name failed in a row before it, if two or more.

Differs: training-operator has none. See docs/decisions/0022-replacement-backoff.md.
"""

CHECKPOINT_TIME = "training.kubeflow.org/checkpoint-time"
"""Annotation that a pod writes about itself: when its newest checkpoint was complete, such as ``2026-11-27T12:00:00Z``."""
CHECKPOINT_DIR = "training.kubeflow.org/checkpoint-dir"
"""Annotation of a job: where its program keeps checkpoints, which its pods find in ``RALLYPOINT_CHECKPOINT_DIR``."""
SERVICES = "training.kubeflow.org/services"
"""Annotation of a job: which Services it gets, one of ``services.ServiceMode``, in place of the controller's ``--services``."""
POD_SETS = "training.kubeflow.org/pod-sets"
"""Annotation of a Workload of Kueue: fingerprints of the job's pods as they were when the Workload was written."""
HANDOVER = "training.kubeflow.org/handover"
"""Annotation of the released Lease of the leader election: up to which changes the last leader knew the objects, as JSON."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation: the manifest of the last client-side ``kubectl apply``, as JSON."""

GROUP_NAME = "scheduling.k8s.io/group-name"
"""Annotation: the PodGroup of a pod, for Volcano."""
TASK_SPEC = "volcano.sh/task-spec"
"""Annotation: the task of a pod in that group, for Volcano."""
POD_GROUP = "scheduling.x-k8s.io/pod-group"
"""Label: the PodGroup of a pod, for the coscheduling of scheduler-plugins."""

YUNIKORN_APP = "yunikorn.apache.org/app-id"
"""Label: the application of a pod, for YuniKorn."""
YUNIKORN_QUEUE = "yunikorn.apache.org/queue"
"""Label: the queue of that application, for YuniKorn."""
TASK_GROUP_NAME = "yunikorn.apache.org/task-group-name"
"""Annotation: the task group of a pod, for YuniKorn."""
TASK_GROUPS = "yunikorn.apache.org/task-groups"
"""Annotation: all task groups of the application, as JSON, for YuniKorn."""
SCHEDULING_PARAMETERS = "yunikorn.apache.org/schedulingPolicyParameters"
"""Annotation of jobs and of pods: how YuniKorn schedules the gang."""
