"""Quantities: their canonical form and the number that they are."""

from decimal import Decimal

import pytest

from controller.local.apiserver.quantity import canonical, value


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1000m", "1"), ("1024Mi", "1Gi"), ("0.5", "500m"), ("1.5Gi", "1536Mi"), ("1500Mi", "1500Mi"), ("0", "0"),
        ("100k", "100k"), ("0.5Ki", "512"), ("1e3", "1e3"), ("1E", "1E"), ("0.1m", "100u"), ("-2", "-2"), ("x", None),
        ("1 Gi", None), ("", None), (".5", "500m"), ("1000000", "1M"),
    ],
)  # fmt: skip
def test_canonical(given: str, expected: str | None) -> None:
    assert canonical(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"), [("1Ki", "1024"), ("500m", "0.5"), ("2e3", "2000"), ("1.5k", "1500"), ("?", "0")]
)
def test_value(given: str, expected: str) -> None:
    assert value(given) == Decimal(expected)
