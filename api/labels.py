"""Every label and annotation key of the contract. The values are made in ``api.names``.

Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/common_types.go.
"""

OPERATOR_NAME = "training.kubeflow.org/operator-name"
JOB_NAME = "training.kubeflow.org/job-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"

MANAGED_BY_US = "kubeflow.org/training-operator"
"""Value of ``runPolicy.managedBy`` that means this operator; unset means the same."""
MANAGED_BY_MPI_OPERATOR = "kubeflow.org/mpi-operator"
"""The same of MPIJobs of the versions that mpi-operator has."""
MANAGED_BY_MULTIKUEUE = "kueue.x-k8s.io/multikueue"
"""The only other value that ``runPolicy.managedBy`` may have; of an MPIJob it may be any text."""
KUEUE_PREFIX = "kueue.x-k8s.io/"
"""How the keys of Kueue's labels and annotations begin."""

FAILED_BEFORE = "training.kubeflow.org/failed-before"
"""Annotation of a pod that replaces a failed one: how many pods of its name failed in a row before it, if two or more.

Differs: training-operator has none. See docs/decisions/0022-replacement-backoff.md.
"""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation: the manifest that client-side ``kubectl apply`` has applied last, as JSON."""

GROUP_NAME = "scheduling.k8s.io/group-name"
"""Annotation: the PodGroup that a pod is a member of, for Volcano."""
TASK_SPEC = "volcano.sh/task-spec"
"""Annotation: which task of that group, for Volcano."""
POD_GROUP = "scheduling.x-k8s.io/pod-group"
"""Label: the PodGroup that a pod is a member of, for the coscheduling of scheduler-plugins."""
