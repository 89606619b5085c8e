"""Plots as a picture."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.image import imread

from bench.nccl.report import picture
from bench.nccl.schema import Record


def test_a_png_of_both_charts(make_record: Callable[..., Record], tmp_path: Path) -> None:
    path = picture.write(make_record(), tmp_path / "plot.png")

    drawn = imread(path)
    height, width, _ = drawn.shape
    assert (width, height) == (1200, 2 * 660)
    assert drawn.std() > 0.05, "it is not a blank sheet"
