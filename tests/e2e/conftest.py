"""One real cluster for all tests of this folder, with the operator installed from ``deploy``."""

from collections.abc import Generator

import pytest

from controller.testing.cluster.cluster import Cluster
from controller.testing.cluster.installation import install
from controller.testing.cluster.workloads import Workloads


@pytest.fixture(scope="session")
def cluster() -> Generator[Cluster]:
    with Cluster() as cluster:
        install(cluster)
        yield cluster


@pytest.fixture
def workloads(cluster: Cluster) -> Generator[Workloads]:
    """Jobs in a namespace of their own, which goes with them."""
    with Workloads(cluster) as workloads:
        yield workloads
