"""XGBoostJob as users write it.

Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/xgboost_types.go.
"""

from pydantic import Field

from api.job import Job, JobSpec, ReplicaSpec
from api.meta import Resource

RESOURCE = Resource("kubeflow.org", "v1", "XGBoostJob", "xgboostjobs")


class XGBoostJobSpec(JobSpec):
    xgb_replica_specs: dict[str, ReplicaSpec] | None = None


class XGBoostJob(Job):
    spec: XGBoostJobSpec = Field(default_factory=XGBoostJobSpec)  # pyright: ignore[reportIncompatibleVariableOverride] - only read
