"""MXJob as users write it.

Source: training-operator 1.8, pkg/apis/kubeflow.org/v1/mxnet_types.go.
"""

from pydantic import Field

from api.job import Job, JobSpec, ReplicaSpec
from api.meta import Resource

RESOURCE = Resource("kubeflow.org", "v1", "MXJob", "mxjobs")


class MXJobSpec(JobSpec):
    job_mode: str | None = None
    """``MXTrain`` or ``MXTune``. Any text is accepted and has no effect."""
    mx_replica_specs: dict[str, ReplicaSpec] | None = None
    """Roles of the job: ``Scheduler``, ``Server`` and ``Worker``, or ``TunerTracker``, ``TunerServer`` and ``Tuner`` of a tuning job. Case does
    not matter.
    """


class MXJob(Job):
    """A training job of MXNet: a scheduler, parameter servers and workers."""

    spec: MXJobSpec = Field(default_factory=MXJobSpec)  # pyright: ignore[reportIncompatibleVariableOverride] - only read
