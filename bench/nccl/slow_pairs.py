"""Which pairs of ranks are slower than their like, and whether one rank is behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from bench.figures import percentile
from bench.nccl.schema import Pairs, Rank

BELOW = 0.7
"""Of what pairs of the same sort reach; slower ones are named."""
MOSTLY = 0.75
"""Of a rank's pairs; with so many slow ones it is the rank that is slow."""


@dataclass(frozen=True, slots=True)
class SlowPair:
    low: int
    high: int
    gb_per_second: float
    usual_gb_per_second: float
    """What three of four pairs of its sort do not exceed: of those within a node, or of those between nodes."""


@dataclass(frozen=True, slots=True)
class Slow:
    pairs: tuple[SlowPair, ...]
    """The slowest first."""
    ranks: tuple[int, ...]


def find(pairs: Pairs, ranks: Sequence[Rank], below: float = BELOW) -> Slow:
    """A pair counts by its slower direction. Two ranks are held to be on one node when their pods are on it, or are one."""
    met = list(combinations(range(len(pairs.gb_per_second)), 2))
    speed = {(a, b): min(pairs.gb_per_second[a][b], pairs.gb_per_second[b][a]) for a, b in met}
    near = {pair: _place(ranks, pair[0]) == _place(ranks, pair[1]) for pair in met}
    usual = {
        sort: percentile([speed[pair] for pair in met if near[pair] == sort], 75)
        for sort in set(near.values())
    }
    found = [
        SlowPair(*pair, speed[pair], usual[near[pair]])
        for pair in met
        if speed[pair] < below * usual[near[pair]]
    ]
    return Slow(
        tuple(sorted(found, key=lambda one: one.gb_per_second / one.usual_gb_per_second)),
        _behind(found, len(pairs.gb_per_second)),
    )


def told(slow: Slow, ranks: Sequence[Rank]) -> list[str]:
    """In words; pairs of a slow rank are told with it."""
    words = [
        f"slow: {who(ranks, rank)}, in {sum(rank in (one.low, one.high) for one in slow.pairs)} slow pairs"
        for rank in slow.ranks
    ]
    return words + [
        f"slow pair: {who(ranks, one.low)} and {who(ranks, one.high)}: {one.gb_per_second:.3g} GB/s, "
        f"others {one.usual_gb_per_second:.3g}"
        for one in slow.pairs
        if not {one.low, one.high} & set(slow.ranks)
    ]


def who(ranks: Sequence[Rank], number: int) -> str:
    """``rank 5 (node gpu-17, pod nccl-worker-0, GPU 1)``, as far as it is known."""
    one = next((one for one in ranks if one.rank == number), None)
    if one is None:
        return f"rank {number}"
    parts = [
        f"node {one.node}" if one.node else "",
        f"pod {one.host}",
        f"GPU {one.local_rank}" if one.gpu else "",
    ]
    return f"rank {number} ({', '.join(filter(None, parts))})"


def _behind(slow: Sequence[SlowPair], ranks: int) -> tuple[int, ...]:
    """Ranks most of whose pairs are slow. Of two ranks there is no telling which it is."""
    if ranks < 3:
        return ()
    met = {rank: sum(rank in (one.low, one.high) for one in slow) for rank in range(ranks)}
    return tuple(rank for rank, count in met.items() if count >= MOSTLY * (ranks - 1))


def _place(ranks: Sequence[Rank], number: int) -> str:
    one = next((one for one in ranks if one.rank == number), None)
    return (one.node or one.host) if one else ""
