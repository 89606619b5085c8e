"""The collectives: buffers, calls, inputs and expected outputs.

Sizes are those of nccl-tests: the larger of a rank's input and output.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from bench.nccl.worker.patterns import PERIOD, addend, moved, total

SEGMENTED = ("all_gather", "reduce_scatter", "alltoall")
"""Their larger buffer has a segment per rank."""
IN_PLACE = {
    "all_reduce": (True,),
    "broadcast": (True,),
    "all_gather": (False, True),
    "reduce_scatter": (False, True),
    "alltoall": (False,),
    "sendrecv": (False,),
}
"""The forms that torch has. NCCL and nccl-tests have the others, too."""
BLOCK = PERIOD * 2048

Pattern = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """A collective with its buffers."""

    collective: str
    rank: int
    ranks: int
    source: Any
    target: Any

    def __call__(self) -> None:
        match self.collective:
            case "all_reduce":
                dist.all_reduce(self.target)
            case "broadcast":
                dist.broadcast(self.target, 0)
            case "all_gather":
                dist.all_gather_into_tensor(self.target, self.source)
            case "reduce_scatter":
                dist.reduce_scatter_tensor(self.target, self.source)
            case "alltoall":
                dist.all_to_all_single(self.target, self.source)
            case _:
                exchange(self.source, (self.rank + 1) % self.ranks, self.target, (self.rank - 1) % self.ranks)

    def fill(self) -> None:
        self.target.zero_()
        given = self._input_patterns()
        for part, pattern in zip(self.source.chunk(len(given)) if given else (), given, strict=True):
            for piece, block in _blocks(part, pattern):
                piece.copy_(block)

    def wrong(self) -> int:
        """Return the number of wrong elements."""
        wanted = self._expected_patterns()
        parts = self.target.chunk(len(wanted))
        return sum(
            int(torch.count_nonzero(piece != block))
            for part, pattern in zip(parts, wanted, strict=True)
            for piece, block in _blocks(part, pattern)
        )

    def _input_patterns(self) -> list[Pattern]:
        """Return a pattern per segment of the source; none if this rank provides no input."""
        match self.collective:
            case "all_reduce":
                return [partial(addend, rank=self.rank, segment=0)]
            case "broadcast":
                return [partial(moved, rank=0, segment=0)] if self.rank == 0 else []
            case "reduce_scatter":
                return [partial(addend, rank=self.rank, segment=to) for to in range(self.ranks)]
            case "alltoall":
                return [partial(moved, rank=self.rank, segment=to) for to in range(self.ranks)]
            case _:
                return [partial(moved, rank=self.rank, segment=0)]

    def _expected_patterns(self) -> list[Pattern]:
        """Return a pattern per segment of the target."""
        match self.collective:
            case "all_reduce":
                return [partial(total, ranks=self.ranks, segment=0)]
            case "broadcast":
                return [partial(moved, rank=0, segment=0)]
            case "all_gather":
                return [partial(moved, rank=by, segment=0) for by in range(self.ranks)]
            case "reduce_scatter":
                return [partial(total, ranks=self.ranks, segment=self.rank)]
            case "alltoall":
                return [partial(moved, rank=by, segment=self.rank) for by in range(self.ranks)]
            case _:
                return [partial(moved, rank=(self.rank - 1) % self.ranks, segment=0)]


def operation(
    collective: str, elements: int, *, in_place: bool, rank: int, ranks: int, memory: tuple[Any, Any]
) -> Operation:
    """Return the operation on the first ``elements`` of the two buffers; in place uses one of them."""
    first, second = memory[0][:elements], memory[1][:elements]
    share = slice(rank * (elements // ranks), (rank + 1) * (elements // ranks))
    match collective:
        case "all_reduce" | "broadcast":
            source, target = first, first
        case "all_gather":
            source, target = (first if in_place else second)[share], first
        case "reduce_scatter":
            source, target = first, (first if in_place else second)[share]
        case _:
            source, target = first, second
    return Operation(collective, rank, ranks, source, target)


def elements_of(collective: str, size_bytes: int, item_bytes: int, ranks: int) -> int:
    """Return the number of elements of a size; 0 if a segment would be empty."""
    elements = size_bytes // item_bytes
    return elements // ranks * ranks if collective in SEGMENTED else elements


def exchange(source: Any, to: int, target: Any, by: int) -> None:
    """Send to one rank and receive from another at the same time."""
    wanted = [dist.P2POp(dist.isend, source, to), dist.P2POp(dist.irecv, target, by)]
    for work in dist.batch_isend_irecv(wanted):
        work.wait()


def _blocks(part: Any, pattern: Pattern) -> Iterator[tuple[Any, Any]]:
    """Return the pieces of a segment with their pattern, which is computed once because it repeats."""
    block = pattern(torch.arange(min(BLOCK, part.numel()), device=part.device)).to(part.dtype)
    for start in range(0, part.numel(), BLOCK):
        piece = part[start : start + BLOCK]
        yield piece, block[: piece.numel()]
