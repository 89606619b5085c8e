"""Rank of this process, from the variables of its starter."""

from collections.abc import Mapping
from dataclasses import dataclass

STARTERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Variables of torchrun, Open MPI, and Intel MPI or MPICH: rank, ranks, and both within the node.

torchrun's have the lowest priority: a pod of a PyTorchJob has RANK but no LOCAL_RANK, and so may a launcher's shell.
"""


class UnknownRank(Exception):
    """No variable has the rank."""


@dataclass(frozen=True, slots=True)
class RankInfo:
    rank: int
    ranks: int
    local_rank: int
    local_ranks: int
    """Ranks on this node."""


def read_rank_info(environment: Mapping[str, str]) -> RankInfo:
    """Read the rank from the first complete set of variables.

    Raises:
        UnknownRank: no set of variables is complete.
    """
    for rank, ranks, local_rank, local_ranks in (*STARTERS[1:], STARTERS[0]):
        if rank in environment and ranks in environment and _is_whole(rank, local_rank, environment):
            return RankInfo(
                int(environment[rank]),
                int(environment[ranks]),
                int(environment.get(local_rank, "0")),
                int(environment.get(local_ranks, "1")),
            )
    raise UnknownRank(
        "neither torchrun nor mpirun has started this process: no RANK, OMPI_COMM_WORLD_RANK or PMI_RANK"
    )


def _is_whole(rank: str, local_rank: str, environment: Mapping[str, str]) -> bool:
    """Return whether the local rank is known. MPICH sets none; its ranks count as one per node."""
    return rank == "PMI_RANK" or local_rank in environment
