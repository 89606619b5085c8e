"""The flavor under which an MPIJob runs: its own, unless it already has a launcher."""

from collections.abc import Sequence

import pytest

from api.batch import BatchJob
from api.children import Owned, Pod
from controller.kinds.mpi import MPI
from tests.support.mpi import mpi_job

POD = Pod("hpc", "pi-launcher", "a", 1)
JOB = BatchJob("hpc", "pi-launcher", "b", 1)
OLD = BatchJob("hpc", "pi-launcher", "b", 1, role="launcher")
WORKER = Pod("hpc", "pi-worker-0", "c", 1)


@pytest.mark.parametrize(
    ("flavor", "children", "version"),
    [
        pytest.param("v1", [], "v1", id="no children"),
        pytest.param("v1alpha2", [WORKER], "v1alpha2", id="workers do not count"),
        pytest.param("v2beta1", [WORKER, JOB], "v2beta1", id="its own launcher"),
        pytest.param("v2beta1", [WORKER, POD], "v1", id="a launcher pod"),
        pytest.param("v1", [JOB], "v2beta1", id="a batch Job"),
        pytest.param("v1", [OLD], "v1alpha2", id="a batch Job of v1alpha2"),
        pytest.param("v2beta1", [OLD, WORKER], "v1alpha2", id="a batch Job of v1alpha2 with workers"),
        pytest.param("v1alpha2", [JOB, WORKER], "v2beta1", id="a batch Job of v2beta1 with workers"),
        pytest.param(
            "v1alpha2", [JOB], "v1alpha2", id="a batch Job of 2020, whose workers belong to a StatefulSet"
        ),
    ],
)
def test_a_job_keeps_the_flavor_of_its_launcher(flavor: str, children: Sequence[Owned], version: str) -> None:
    job = mpi_job(flavor=flavor)

    assert MPI.variant(job, children).resource.version == version
    reasons = [event.reason for event in MPI.warnings(job, children)]
    assert reasons == (["FlavorMismatch"] if version != flavor else [])
