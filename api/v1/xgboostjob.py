"""XGBoostJob as users write it.

Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/xgboost_types.go.
"""

from pydantic import Field

from api.job import Job, JobSpec, ReplicaSpec
from api.meta import Resource

RESOURCE = Resource("kubeflow.org", "v1", "XGBoostJob", "xgboostjobs")


class XGBoostJobSpec(JobSpec):
    xgb_replica_specs: dict[str, ReplicaSpec] | None = None
    """Roles of the job: ``Master``, exactly one pod, which is rank 0, and ``Worker``. Case does not matter."""


class XGBoostJob(Job):
    """A training job of XGBoost or LightGBM: a master, which runs the tracker, and workers."""

    spec: XGBoostJobSpec = Field(default_factory=XGBoostJobSpec)  # pyright: ignore[reportIncompatibleVariableOverride] - only read
