"""The options of MPIJobs."""

from dataclasses import dataclass
from typing import ClassVar

from controller.kind.options import KindOptions, option


@dataclass(frozen=True, slots=True)
class MPIOptions(KindOptions):
    prefix: ClassVar[str] = "mpi"

    kubectl_delivery_image: str = option(
        "kubeflow/kubectl-delivery:latest",
        "image that copies kubectl into the launchers of v1 and v1alpha2 MPIJobs",
    )
    """It writes ``kubectl`` to $TARGET_DIR. Images before training-operator 1.9.4 contain a kubectl for amd64 only.

    Since 1.9.2 training-operator's default is ``ghcr.io/kubeflow/training-v1/kubectl-delivery:latest``. Its release workflow pushes the same
    image under both names. This default is that of 1.9.0, which the recordings contain and which clusters mirror.

    Source: training-operator 1.9.4, pkg/config/config.go and .github/workflows/build-and-publish-images.yaml.
    """
    wait_for_workers: bool = option(False, "start the launchers of MPIJobs only when all workers are ready")
    """Off as in the originals. The annotation ``kubeflow.org/mpi-wait-for-workers`` of a job overrides it."""
    ssh_check: bool = option(True, "probe the ssh servers of the workers that a launcher waits for")
    """If pods are unreachable or send no banner within 10 s, pod readiness is enough."""
    launcher_only_key: bool = option(
        False, "mount the private ssh key of v2beta1 MPIJobs only into the launcher"
    )
    """Off as in mpi-operator: above 64 hosts mpirun lets workers start others. This option disables that for Open MPI."""
    topology_label: str = option(
        "", "node label that groups the hosts of MPIJobs; requires the right to read nodes", metavar="LABEL"
    )
    """A label of nodes, such as ``topology.kubernetes.io/zone``: the lists of hosts are grouped by it, the group of worker 0 first.

    Launchers then wait for their workers, whose nodes are unknown before. Empty reads no nodes; the base ClusterRole does not allow it.
    """
