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
    value: str = ""


class ElasticPolicy(Wire):
    """Elastic training: the bounds count workers, ``max_restarts`` counts restarts of the worker group inside a pod."""

    min_replicas: int | None = None
    max_replicas: int | None = None
    rdzv_backend: str | None = None
    rdzv_port: int | None = None
    rdzv_host: str | None = None
    rdzv_id: str | None = None
    rdzv_conf: list[RDZVConf] | None = None
    standalone: bool | None = None
    nproc_per_node: int | None = Field(default=None, alias="nProcPerNode")
    """Deprecated upstream since 1.7 in favor of ``spec.nprocPerNode``, which has another spelling and type."""
    max_restarts: int | None = None
    metrics: list[dict[str, Any]] | None = None
    """``autoscaling/v2`` metric specs; if not empty, the operator creates a HorizontalPodAutoscaler."""


class PyTorchJobSpec(JobSpec):
    """``nproc_per_node`` is text: ``auto``, ``gpu``, ``cpu`` or a number."""

    pytorch_replica_specs: dict[str, ReplicaSpec] | None = None
    elastic_policy: ElasticPolicy | None = None
    nproc_per_node: str | None = Field(default=None, alias="nprocPerNode")


class PyTorchJob(Job):
    spec: PyTorchJobSpec = Field(default_factory=PyTorchJobSpec)  # pyright: ignore[reportIncompatibleVariableOverride] - only read
