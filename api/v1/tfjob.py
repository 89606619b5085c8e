"""TFJob as users write it.

Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/tensorflow_types.go.
"""

from pydantic import Field

from api.job import Job, JobSpec, ReplicaSpec
from api.meta import Resource

RESOURCE = Resource("kubeflow.org", "v1", "TFJob", "tfjobs")

ALL_WORKERS = "AllWorkers"
"""The success policy that waits for every worker. Any other text means the default: worker 0 is sufficient."""


class TFJobSpec(JobSpec):
    """``enable_dynamic_worker`` allows workers to be added, removed and to fail while the job runs."""

    tf_replica_specs: dict[str, ReplicaSpec] | None = None
    success_policy: str | None = None
    enable_dynamic_worker: bool | None = None


class TFJob(Job):
    spec: TFJobSpec = Field(default_factory=TFJobSpec)  # pyright: ignore[reportIncompatibleVariableOverride] - only read
