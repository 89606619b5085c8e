"""Resource quantities: the number that they are, sums, and the form in which they are written."""

from fractions import Fraction

import pytest

from api import quantity
from api.quantity import canonical, read, value


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


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1KB", "one", "1e", "1.2.3", "1e999999999", "1" * 65])
def test_an_invalid_quantity_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a quantity|out of range"):
        quantity.parse(text)


def test_a_divisor_rounds_up() -> None:
    assert quantity.times(quantity.parse("250m"), Fraction(1)) == 1
    assert quantity.times(quantity.parse("250m"), quantity.parse("1m")) == 250


def test_formatting() -> None:
    assert quantity.spell(Fraction(2)) == "2"
    assert quantity.spell(Fraction(1, 4)) == "250m"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1000m", "1"), ("1024Mi", "1Gi"), ("0.5", "500m"), ("1.5Gi", "1536Mi"), ("1500Mi", "1500Mi"), ("0", "0"),
        ("100k", "100k"), ("0.5Ki", "512"), ("1e3", "1e3"), ("1E", "1E"), ("0.1m", "100u"), ("-2", "-2"), ("x", None),
        ("1 Gi", None), ("", None), (".5", "500m"), ("1000000", "1M"), ("0.1n", "1n"), ("-0.1n", "-1n"),
    ],
)  # fmt: skip
def test_canonical(given: str, expected: str | None) -> None:
    assert canonical(given) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param("1Gi", "512Mi", "1536Mi", id="binary"),
        pytest.param("500m", "1500m", "2", id="decimal"),
        pytest.param("1Gi", "1G", "2073741824", id="binary and decimal"),
        pytest.param("1k", "1Ki", "2024", id="decimal and binary"),
        pytest.param("0", "1Gi", "1Gi", id="nothing has no form"),
    ],
)
def test_sums(first: str, second: str, expected: str) -> None:
    assert str(read(first) + read(second)) == expected


def test_a_multiple() -> None:
    assert str(read("512Mi") * 4) == "2Gi"


@pytest.mark.parametrize(
    ("given", "expected"), [("1Ki", "1024"), ("500m", "0.5"), ("2e3", "2000"), ("1.5k", "1500"), ("?", "0")]
)
def test_value(given: str, expected: str) -> None:
    assert value(given) == Fraction(expected)
