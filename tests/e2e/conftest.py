"""A real cluster for all tests of this folder, with the operator installed from ``deploy``."""

from collections.abc import Generator

import pytest

from rallypoint.testing.cluster.cluster import Cluster
from rallypoint.testing.cluster.installation import install
from rallypoint.testing.cluster.workloads import Workloads
from rallypoint.testing.manifests import build
from rallypoint.testing.service import WITH_MPI_V1

MPI_V1 = "training-operator-mpi-v1"
"""The name of that component's roles and bindings."""


@pytest.fixture(scope="session")
def cluster() -> Generator[Cluster]:
    with Cluster() as cluster:
        install(cluster)
        yield cluster


@pytest.fixture(scope="session")
def rights_of_mpi_v1(cluster: Cluster) -> None:
    """What the component for ``kubectl exec`` lets the operator do besides."""
    cluster.plane.apply(
        *(manifest for manifest in build(WITH_MPI_V1) if manifest["metadata"]["name"] == MPI_V1)
    )


@pytest.fixture
def workloads(cluster: Cluster) -> Generator[Workloads]:
    """Jobs in a namespace of their own, which goes with them."""
    with Workloads(cluster) as workloads:
        yield workloads
