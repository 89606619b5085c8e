"""Inputs and expected outputs, compared with sums."""

import pytest

from bench.nccl.worker.patterns import PERIOD, addend, moved, total


@pytest.mark.parametrize("ranks", [1, 2, 7, 8, 9, 64, 1000])
def test_total_is_the_sum_of_the_addends(ranks: int) -> None:
    found = [total(i, ranks, segment) for i in range(20) for segment in (0, 3)]

    assert found == [
        sum(addend(i, rank, segment) for rank in range(ranks)) for i in range(20) for segment in (0, 3)
    ]
    assert max(found) <= 127, "it has to fit into a byte"


def test_patterns_repeat() -> None:
    assert all(moved(i, 5, 2) == moved(i + PERIOD, 5, 2) for i in range(PERIOD))
    assert all(total(i, 7, 2) == total(i + PERIOD, 7, 2) for i in range(PERIOD))


def test_moved_patterns_differ_between_neighbors() -> None:
    """The sum is exact in every data type: bfloat16 counts to 256, a byte to 127."""
    assert {moved(i, 0, 0) for i in range(PERIOD)} == set(range(101))
    assert (
        len({moved(0, rank, 0) for rank in range(8)} | {moved(0, 0, segment) for segment in range(8)}) == 15
    )
