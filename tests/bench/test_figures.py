"""Spreads and their text form."""

import pytest

from bench.figures import Spread, percentile, spread, text


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        pytest.param([12.345, 10.0, 20.06], "10 / 12.3 / 20.1", id="three runs"),
        pytest.param([1.0, 2.0], "1 / 1.5 / 2", id="the median of two is between them"),
        pytest.param([38, 38, 38], "38", id="equal values are written once"),
        pytest.param([0.5678], "0.568", id="one run"),
    ],
)
def test_the_text_of_a_spread(values: list[float], shown: str) -> None:
    assert str(spread(values)) == shown


def test_a_spread_is_of_all_runs() -> None:
    assert spread([3, 1, 2, 10]) == Spread(smallest=1, median=2.5, largest=10)


def test_no_values_have_no_spread() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        spread([])


@pytest.mark.parametrize(
    ("percent", "value"),
    [
        pytest.param(50, 100, id="half of them"),
        pytest.param(99, 198, id="nearly all"),
        pytest.param(100, 200, id="all"),
        pytest.param(0, 1, id="the first"),
    ],
)
def test_a_percentile_is_an_element_of_the_values(percent: int, value: int) -> None:
    assert percentile(range(200, 0, -1), percent) == value


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        percentile([], 50)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(12345.6, "12,346"), (99.94, "99.9"), (0.01234, "0.0123"), (0, "0"), (7.0, "7"), (541, "541")],
)
def test_three_digits_and_all_before_the_point(value: float, shown: str) -> None:
    assert text(value) == shown
