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
    max_replicas: int | None = None
    max_restarts: int | None = None
    metrics: list[dict[str, Any]] | None = None


class PaddleJobSpec(JobSpec):
    paddle_replica_specs: dict[str, ReplicaSpec] | None = None
    elastic_policy: PaddleElasticPolicy | None = None


class PaddleJob(Job):
    spec: PaddleJobSpec = Field(default_factory=PaddleJobSpec)  # pyright: ignore[reportIncompatibleVariableOverride] - only read
