"""All pairs in rounds of disjoint pairs."""

from itertools import chain, combinations

import pytest

from bench.nccl.worker.round_robin import rounds


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8, 64])
def test_each_pair_occurs_once(ranks: int) -> None:
    schedule = rounds(ranks)

    assert sorted(chain.from_iterable(schedule)) == list(combinations(range(ranks), 2))
    assert all(len(set(chain.from_iterable(pairs))) == 2 * len(pairs) for pairs in schedule)
    assert len(schedule) <= max(ranks, 1)
