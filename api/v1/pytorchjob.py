"""PyTorchJob as users write it.

Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/pytorch_types.go.
"""

from typing import Any

from pydantic import Field

from api.job import Job, JobSpec, ReplicaSpec
from api.meta import Resource, Wire

RESOURCE = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")


class RDZVConf(Wire):
    """One ``key=value`` of torchrun's ``--rdzv-conf``."""

    key: str = ""
    """Name of the setting."""
    value: str = ""
    """Value of the setting."""


class ElasticPolicy(Wire):
    """Elastic training under torchrun."""

    min_replicas: int | None = None
    """Smallest number of workers with which training continues. Must not exceed ``maxReplicas``. Defaults to ``maxReplicas``, or to the number
    of workers if that is unset, too.
    """
    max_replicas: int | None = None
    """Largest number of workers. Defaults to ``minReplicas``, or to the number of workers if that is unset, too."""
    rdzv_backend: str | None = None
    """Rendezvous backend of torchrun, such as ``c10d`` or ``etcd-v2``. Sets ``PET_RDZV_BACKEND``. Defaults to ``c10d``."""
    rdzv_port: int | None = None
    """Port of the rendezvous, a part of ``PET_RDZV_ENDPOINT``. Defaults to the container port ``pytorchjob-port``, 23456 unless the template has
    another.
    """
    rdzv_host: str | None = None
    """Host of the rendezvous, a part of ``PET_RDZV_ENDPOINT``. Defaults to the name of worker 0."""
    rdzv_id: str | None = None
    """Identifier of the rendezvous. Sets ``PET_RDZV_ID``. If unset, torchrun's default applies."""
    rdzv_conf: list[RDZVConf] | None = None
    """Additional settings of the rendezvous backend. Sets ``PET_RDZV_CONF``. If unset, torchrun's defaults apply."""
    standalone: bool | None = None
    """Whether torchrun starts a rendezvous of its own in each pod, for jobs of a single worker. Sets ``PET_STANDALONE``. Defaults to ``false``."""
    nproc_per_node: int | None = Field(default=None, alias="nProcPerNode")
    """Number of processes in each pod. Deprecated: use ``spec.nprocPerNode``, which excludes this field. If unset, ``spec.nprocPerNode`` applies.

    Deprecated upstream since 1.7; the new field has another spelling and type.
    """
    max_restarts: int | None = None
    """Number of times that torchrun restarts the processes of a pod before the pod fails. Sets ``PET_MAX_RESTARTS``. If unset, torchrun's default
    applies.
    """
    metrics: list[dict[str, Any]] | None = None
    """Metrics by which a HorizontalPodAutoscaler changes the number of workers, within ``minReplicas`` and ``maxReplicas``. The operator creates
    the autoscaler, of ``autoscaling/v2``. If empty, it creates none.
    """


class PyTorchJobSpec(JobSpec):
    pytorch_replica_specs: dict[str, ReplicaSpec] | None = None
    """Roles of the job: ``Master``, at most one pod, and ``Worker``. Case does not matter. A job without a master ends with its workers."""
    elastic_policy: ElasticPolicy | None = None
    """Elastic training under torchrun: the number of workers may change while the job runs. The job needs the role ``Worker``. If unset, the job
    is not elastic.
    """
    nproc_per_node: str | None = Field(default=None, alias="nprocPerNode")
    """Processes that torchrun starts in each pod: ``auto``, ``gpu``, ``cpu`` or a number, as text. Sets ``PET_NPROC_PER_NODE``; a number also
    multiplies ``WORLD_SIZE``. Defaults to ``auto``.
    """


class PyTorchJob(Job):
    """A training job of PyTorch: a master and workers, workers alone, or elastic workers under torchrun."""

    spec: PyTorchJobSpec = Field(default_factory=PyTorchJobSpec)  # pyright: ignore[reportIncompatibleVariableOverride] - only read
