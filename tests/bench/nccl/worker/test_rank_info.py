"""The rank of a process, by starter."""

import pytest

from bench.nccl.worker.rank_info import RankInfo, UnknownRank, read_rank_info

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        pytest.param(TORCHRUN, RankInfo(5, 8, 1, 4), id="torchrun"),
        pytest.param(OPEN_MPI, RankInfo(3, 4, 1, 2), id="Open MPI"),
        pytest.param(
            {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"},
            RankInfo(2, 4, 0, 2),
            id="Intel MPI",
        ),
        pytest.param(
            {"PMI_RANK": "2", "PMI_SIZE": "4"}, RankInfo(2, 4, 0, 1), id="MPICH says nothing of nodes"
        ),
        pytest.param(
            OPEN_MPI | {"RANK": "0", "WORLD_SIZE": "2"},
            RankInfo(3, 4, 1, 2),
            id="a pod's own RANK is not the process's",
        ),
    ],
)
def test_the_rank_from_the_variables_of_each_starter(environment: dict[str, str], found: RankInfo) -> None:
    assert read_rank_info(environment) == found


def test_a_pod_of_a_pytorchjob_without_torchrun() -> None:
    """RANK is then that of the node."""
    with pytest.raises(UnknownRank):
        read_rank_info({"RANK": "0", "WORLD_SIZE": "4"})
