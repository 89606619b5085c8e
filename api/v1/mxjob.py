"""MXJob as users write it.

Source: training-operator 1.8, pkg/apis/kubeflow.org/v1/mxnet_types.go.
"""

from pydantic import Field

from api.job import Job, JobSpec, ReplicaSpec
from api.meta import Resource

RESOURCE = Resource("kubeflow.org", "v1", "MXJob", "mxjobs")


class MXJobSpec(JobSpec):
    """``job_mode`` is ``MXTrain`` or ``MXTune``; any text is accepted and has no effect."""

    job_mode: str | None = None
    mx_replica_specs: dict[str, ReplicaSpec] | None = None


class MXJob(Job):
    spec: MXJobSpec = Field(default_factory=MXJobSpec)  # pyright: ignore[reportIncompatibleVariableOverride] - only read
