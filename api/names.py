"""Names and labels of a job's children. Users, SDKs, Kueue and dashboards select on them, so none may change.

Source: training-operator 1.9, pkg/controller.v1/common/util.go and pkg/util/labels/labels.go.
"""

from api import labels

LONGEST_NAME = 63
"""Maximum length of a DNS-1035 label, and so of a Service name."""


def child_name(job: str, role: str, index: int) -> str:
    """Return the name of the pod and of the Service of one replica; ``role`` in lower case."""
    return f"{job}-{role}-{index}".replace("/", "-")


def child_labels(controller: str, job: str, role: str, index: int) -> dict[str, str]:
    """Return the four labels of every pod and Service; they are also the Service's selector."""
    return {
        labels.OPERATOR_NAME: controller,
        labels.JOB_NAME: job,
        labels.REPLICA_TYPE: role,
        labels.REPLICA_INDEX: str(index),
    }


def job_labels(controller: str, job: str) -> dict[str, str]:
    """Return the two labels that all pods and Services of a job have."""
    return {labels.OPERATOR_NAME: controller, labels.JOB_NAME: job}


def role_selector(controller: str, job: str, role: str, role_label: str = labels.REPLICA_TYPE) -> str:
    """Return the selector of one role's pods for the scale subresource, with sorted keys. ``role_label`` is the label with the role."""
    pairs = {**job_labels(controller, job), role_label: role}
    return ",".join(f"{key}={value}" for key, value in sorted(pairs.items()))
