"""Slow pairs and slow ranks."""

from bench.nccl import slow_pairs
from bench.nccl.schema import Pairs, Rank

RANKS = [Rank(rank, rank % 2, f"pod-{rank // 2}", f"GPU-{rank}", f"node-{rank // 2}") for rank in range(4)]


def matrix(within: float, between: float, **others: float) -> Pairs:
    """Four ranks on two nodes; ``r02`` is the bandwidth between ranks 0 and 2."""
    speed = {(a, b): within if a // 2 == b // 2 else between for a in range(4) for b in range(4) if a != b}
    for name, value in others.items():
        a, b = int(name[1]), int(name[2])
        speed[a, b] = speed[b, a] = value
    return Pairs(1024, [[speed.get((a, b), 0.0) for b in range(4)] for a in range(4)])


def test_slower_pairs_between_nodes_are_not_reported() -> None:
    assert slow_pairs.find(matrix(400, 40), RANKS) == slow_pairs.SlowPairs((), ())


def test_a_slow_pair() -> None:
    found = slow_pairs.find(matrix(400, 40, r02=10), RANKS)

    assert [(pair.low, pair.high, pair.usual_gb_per_second) for pair in found.pairs] == [(0, 2, 40)]
    assert found.ranks == ()
    assert slow_pairs.describe(found, RANKS) == [
        "slow pair: rank 0 (node node-0, pod pod-0, GPU 0) and rank 2 (node node-1, pod pod-1, GPU 0): 10 GB/s, others 40"
    ]


def test_a_slow_rank() -> None:
    found = slow_pairs.find(matrix(400, 40, r01=50, r12=5, r13=6), RANKS)

    assert found.ranks == (1,)
    assert slow_pairs.describe(found, RANKS) == [
        "slow: rank 1 (node node-0, pod pod-0, GPU 1), in 3 slow pairs"
    ]


def test_of_three_ranks() -> None:
    """Two of three pairs are slow: the best pair defines the usual bandwidth."""
    pairs = Pairs(1024, [[0, 10, 1], [10, 0, 1], [1, 1, 0]])

    assert slow_pairs.find(pairs, []).ranks == (2,)


def test_a_single_slow_direction_is_enough() -> None:
    pairs = Pairs(1024, [[0, 10, 10], [10, 0, 10], [10, 2, 0]])

    assert [(pair.low, pair.high) for pair in slow_pairs.find(pairs, []).pairs] == [(1, 2)]


def test_two_ranks_have_nothing_to_compare_with() -> None:
    assert slow_pairs.find(Pairs(1024, [[0, 1], [1, 0]]), RANKS) == slow_pairs.SlowPairs((), ())
    assert slow_pairs.find(Pairs(1024, [[0]]), RANKS[:1]) == slow_pairs.SlowPairs((), ())
