"""Sizes as text, and sweeps."""

import pytest

from bench.nccl.sizes import parse, spelled, sweep


@pytest.mark.parametrize(
    ("text", "size"),
    [("8", 8), ("64K", 65536), ("512m", 512 << 20), ("8G", 8 << 30), ("8GiB", 8 << 30), ("1MB", 1 << 20)],
)
def test_parse(text: str, size: int) -> None:
    assert parse(text) == size


@pytest.mark.parametrize("text", ["", "0", "-8", "8T", "1.5G", "G"])
def test_texts_that_are_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse(text)


@pytest.mark.parametrize("size", [1, 8, 1000, 1536, 65536, 3 << 20, 8 << 30])
def test_a_spelled_size_parses_to_itself(size: int) -> None:
    assert parse(spelled(size)) == size


def test_sweep() -> None:
    assert sweep(8, 64, 2) == [8, 16, 32, 64]
    assert sweep(8, 100, 3) == [8, 24, 72]
    assert len(sweep(8, 8 << 30, 2)) == 31


def test_sweeps_without_an_end() -> None:
    with pytest.raises(ValueError, match="factor"):
        sweep(8, 64, 1)
    with pytest.raises(ValueError, match="the smallest size, 1K, is above the largest, 8"):
        sweep(1024, 8, 2)
