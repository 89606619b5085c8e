"""JAXJob as users write it.

Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/jax_types.go.
"""

from pydantic import Field

from api.job import Job, JobSpec, ReplicaSpec
from api.meta import Resource

RESOURCE = Resource("kubeflow.org", "v1", "JAXJob", "jaxjobs")


class JAXJobSpec(JobSpec):
    jax_replica_specs: dict[str, ReplicaSpec] | None = None
    """The role of the job: ``Worker``, in any case. Worker 0 is the coordinator."""


class JAXJob(Job):
    """A training job of JAX: workers of one role, the first of which is the coordinator."""

    spec: JAXJobSpec = Field(default_factory=JAXJobSpec)  # pyright: ignore[reportIncompatibleVariableOverride] - only read
