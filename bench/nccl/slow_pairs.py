"""Finds pairs of ranks that are slower than others of their sort, and ranks that cause them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from bench.figures import percentile
from bench.nccl.schema import Pairs, Rank

SLOW_SHARE = 0.7
"""A pair below this share of the usual bandwidth of its sort is slow."""
SLOW_RANK_SHARE = 0.75
"""A rank with at least this share of slow pairs is slow itself."""


@dataclass(frozen=True, slots=True)
class SlowPair:
    low: int
    high: int
    gb_per_second: float
    usual_gb_per_second: float
    """The upper quartile of its sort: pairs within a node, or between nodes."""


@dataclass(frozen=True, slots=True)
class SlowPairs:
    pairs: tuple[SlowPair, ...]
    """Slowest first."""
    ranks: tuple[int, ...]


def find(pairs: Pairs, ranks: Sequence[Rank], below: float = SLOW_SHARE) -> SlowPairs:
    """Find the slow pairs by their slower direction. Ranks share a node if their pods do, or if they share a pod."""
    met = list(combinations(range(len(pairs.gb_per_second)), 2))
    speed = {(a, b): min(pairs.gb_per_second[a][b], pairs.gb_per_second[b][a]) for a, b in met}
    near = {pair: _node_of(ranks, pair[0]) == _node_of(ranks, pair[1]) for pair in met}
    usual = {
        sort: percentile([speed[pair] for pair in met if near[pair] == sort], 75)
        for sort in set(near.values())
    }
    found = [
        SlowPair(*pair, speed[pair], usual[near[pair]])
        for pair in met
        if speed[pair] < below * usual[near[pair]]
    ]
    return SlowPairs(
        tuple(sorted(found, key=lambda pair: pair.gb_per_second / pair.usual_gb_per_second)),
        _slow_ranks(found, len(pairs.gb_per_second)),
    )


def describe(slow: SlowPairs, ranks: Sequence[Rank]) -> list[str]:
    """Describe slow ranks, and slow pairs of other ranks."""
    words = [
        f"slow: {describe_rank(ranks, rank)}, in {sum(rank in (pair.low, pair.high) for pair in slow.pairs)} slow pairs"
        for rank in slow.ranks
    ]
    return words + [
        f"slow pair: {describe_rank(ranks, pair.low)} and {describe_rank(ranks, pair.high)}: {pair.gb_per_second:.3g} GB/s, "
        f"others {pair.usual_gb_per_second:.3g}"
        for pair in slow.pairs
        if not {pair.low, pair.high} & set(slow.ranks)
    ]


def describe_rank(ranks: Sequence[Rank], number: int) -> str:
    """Return ``rank 5 (node gpu-17, pod nccl-worker-0, GPU 1)``, with the parts that are known."""
    rank = next((rank for rank in ranks if rank.rank == number), None)
    if rank is None:
        return f"rank {number}"
    parts = [
        f"node {rank.node}" if rank.node else "",
        f"pod {rank.host}",
        f"GPU {rank.local_rank}" if rank.gpu else "",
    ]
    return f"rank {number} ({', '.join(filter(None, parts))})"


def _slow_ranks(slow: Sequence[SlowPair], ranks: int) -> tuple[int, ...]:
    """Return the ranks most of whose pairs are slow. With two ranks either could be the cause."""
    if ranks < 3:
        return ()
    met = {rank: sum(rank in (pair.low, pair.high) for pair in slow) for rank in range(ranks)}
    return tuple(rank for rank, count in met.items() if count >= SLOW_RANK_SHARE * (ranks - 1))


def _node_of(ranks: Sequence[Rank], number: int) -> str:
    rank = next((rank for rank in ranks if rank.rank == number), None)
    return (rank.node or rank.host) if rank else ""
