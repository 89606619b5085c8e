"""Resource quantities."""

from fractions import Fraction

import pytest

from controller.local.node import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("2", Fraction(2), id="plain"),
        pytest.param(3, Fraction(3), id="a number"),
        pytest.param("500m", Fraction(1, 2), id="milli"),
        pytest.param("0.1", Fraction(1, 10), id="a fraction, exactly"),
        pytest.param("1Ki", Fraction(1024), id="binary"),
        pytest.param("1.5Gi", Fraction(3 * 2**29), id="a binary fraction"),
        pytest.param("1k", Fraction(1000), id="decimal"),
        pytest.param("1E", Fraction(10**18), id="exa"),
        pytest.param("1e3", Fraction(1000), id="an exponent"),
        pytest.param("-1", Fraction(-1), id="negative"),
    ],
)
def test_parse(text: str | float, value: Fraction) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1KB", "one", "1e", "1.2.3"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity.parse(text)


def test_a_divisor_rounds_up() -> None:
    assert quantity.times(quantity.parse("250m"), Fraction(1)) == 1
    assert quantity.times(quantity.parse("250m"), quantity.parse("1m")) == 250


def test_spell() -> None:
    assert quantity.spell(Fraction(2)) == "2"
    assert quantity.spell(Fraction(1, 4)) == "250m"
