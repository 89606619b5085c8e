"""The HorizontalPodAutoscaler of an elastic job.

Source: training-operator 1.9, pkg/controller.v1/pytorch/hpa.go.
"""

from typing import Any

from api.job import Job, owner_reference
from api.meta import HORIZONTAL_POD_AUTOSCALERS, Resource
from controller.domain import Child, WriteMode


def autoscaler(
    resource: Resource, job: Job, min_replicas: int, max_replicas: int, metrics: list[dict[str, Any]]
) -> Child:
    """Return an autoscaler for the job's workers. It has the job's name and follows its elastic policy."""
    target = {"apiVersion": resource.api_version, "kind": resource.kind, "name": job.metadata.name}
    body = {
        "apiVersion": HORIZONTAL_POD_AUTOSCALERS.api_version,
        "kind": HORIZONTAL_POD_AUTOSCALERS.kind,
        "metadata": {"name": job.metadata.name, "ownerReferences": [owner_reference(resource, job)]},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": min_replicas,
            "maxReplicas": max_replicas,
            "metrics": metrics,
        },
    }
    return Child(HORIZONTAL_POD_AUTOSCALERS, job.metadata.name, lambda: body, WriteMode.APPLY)
