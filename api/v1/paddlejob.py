"""PaddleJob as users write it.

Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/paddlepaddle_types.go.
"""

from typing import Any

from pydantic import Field

from api.job import Job, JobSpec, ReplicaSpec
from api.meta import Resource, Wire

RESOURCE = Resource("kubeflow.org", "v1", "PaddleJob", "paddlejobs")


class PaddleElasticPolicy(Wire):
    """Accepted without effect, as in the original."""

    min_replicas: int | None = None
    """Smallest number of workers. Accepted without effect."""
    max_replicas: int | None = None
    """Largest number of workers. Accepted without effect."""
    max_restarts: int | None = None
    """Number of restarts of the workers. Accepted without effect."""
    metrics: list[dict[str, Any]] | None = None
    """Metrics for an autoscaler. Accepted without effect: the operator creates none."""


class PaddleJobSpec(JobSpec):
    paddle_replica_specs: dict[str, ReplicaSpec] | None = None
    """Roles of the job: ``Worker``, the trainers, and ``Master``, the parameter servers if there are any. Case does not matter."""
    elastic_policy: PaddleElasticPolicy | None = None
    """Elastic training. Accepted without effect, as in training-operator."""


class PaddleJob(Job):
    """A training job of PaddlePaddle: trainers, with or without parameter servers."""

    spec: PaddleJobSpec = Field(default_factory=PaddleJobSpec)  # pyright: ignore[reportIncompatibleVariableOverride] - only read
