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
    tf_replica_specs: dict[str, ReplicaSpec] | None = None
    """Roles of the job: ``Chief`` or ``Master``, its older name, ``Worker``, ``PS`` and ``Evaluator``. Case does not matter. A job has Chief or
    Master, not both.
    """
    success_policy: str | None = None
    """When a job without a chief succeeds: with ``AllWorkers`` when all workers have succeeded, with any other value when worker 0 has. Defaults to
    worker 0.
    """
    enable_dynamic_worker: bool | None = None
    """Whether workers may come, go and fail while the job runs. ``TF_CONFIG`` then lists only what does not change with them. Defaults to ``false``."""


class TFJob(Job):
    """A training job of TensorFlow: chief, workers, parameter servers and evaluators."""

    spec: TFJobSpec = Field(default_factory=TFJobSpec)  # pyright: ignore[reportIncompatibleVariableOverride] - only read
