"""Bandwidths against values computed by hand from the definitions of nccl-tests."""

import pytest

from bench.nccl.formulas import COLLECTIVES, algbw_gb_per_second, busbw_gb_per_second


def test_algorithm_bandwidth() -> None:
    """8 GB in 40 ms are 200 GB/s."""
    assert algbw_gb_per_second(8_000_000_000, 40_000) == pytest.approx(200)


@pytest.mark.parametrize(
    ("collective", "busbw"),
    [
        pytest.param("all_reduce", 350.0, id="each byte goes to the others and comes back: 2 × 7/8"),
        pytest.param("all_gather", 175.0, id="each rank gets 7/8 of the whole"),
        pytest.param("reduce_scatter", 175.0, id="each rank gives 7/8 of the whole away"),
        pytest.param("alltoall", 175.0, id="each rank keeps 1/8"),
        pytest.param("broadcast", 200.0, id="all of it over every link"),
        pytest.param("sendrecv", 200.0, id="all of it to the next rank"),
    ],
)
def test_bus_bandwidth_of_eight_ranks(collective: str, busbw: float) -> None:
    assert busbw_gb_per_second(collective, 8, 8_000_000_000, 40_000) == pytest.approx(busbw)


def test_a_single_rank_has_no_bus_bandwidth() -> None:
    assert [busbw_gb_per_second(collective, 1, 1000, 1) for collective in COLLECTIVES[:4]] == [0, 0, 0, 0]


def test_a_line_of_a_published_table() -> None:
    """64 ranks, 8 GiB in 43.7 ms: algbw 196.6, busbw 387 (coreweave/nccl-tests prints 387)."""
    assert busbw_gb_per_second("all_reduce", 64, 8 << 30, 43_700) == pytest.approx(387, rel=0.001)
