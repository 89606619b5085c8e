"""Resource quantities (``500m``, ``2Gi``): parsing, addition, and the API server's canonical form.

Source: apimachinery, pkg/api/resource/quantity.go.
"""

import math
import re
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from functools import lru_cache

from typing_extensions import override

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))(?P<suffix>[KMGTPE]i|[numkMGTPE]?|[eE][+-]?\d+)"
)
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LONGEST = 64
"""Maximum length of a quantity: longer ones do not occur in practice and would be expensive to compute with."""
_LARGEST_EXPONENT = 30


class Form(Enum):
    """The form of a quantity: ``1Gi``, ``1G``, ``1e9``."""

    BINARY = auto()
    DECIMAL = auto()
    EXPONENT = auto()


@dataclass(frozen=True, slots=True)
class Quantity:
    """The exact amount in its base unit (cores, bytes, pieces), and the form of its text."""

    amount: Fraction
    form: Form

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.amount + other.amount, self.form if self.amount else other.form)

    def __mul__(self, count: int) -> "Quantity":
        return Quantity(self.amount * count, self.form)

    @override
    def __str__(self) -> str:
        """The canonical form: ``1024Mi`` is ``1Gi``, ``0.5`` is ``500m``. Amounts below a billionth are rounded away from zero."""
        if self.form is Form.BINARY and self.amount.denominator == 1 and abs(self.amount) >= 1024:
            whole, power = int(self.amount), 0
            while whole % 1024 == 0 and power < len(_BINARY) - 1:
                whole, power = whole // 1024, power + 1
            return f"{whole}{_BINARY[power]}"
        whole, power = _scaled(self.amount)
        if self.form is Form.EXPONENT:
            return f"{whole}e{power}" if power else str(whole)
        return f"{whole}{next(name for name, exponent in _DECIMAL.items() if exponent == power)}"


@lru_cache(maxsize=4096)
def read(text: str) -> Quantity:
    """Parse a quantity.

    Raises:
        ValueError: it is not a quantity.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"{text[:_LONGEST]!r} is not a quantity")
    number, suffix = Fraction(match["number"]), match["suffix"]
    if suffix in _BINARY[1:]:
        return Quantity(number * 1024 ** _BINARY.index(suffix), Form.BINARY)
    if suffix in _DECIMAL:
        return Quantity(number * Fraction(10) ** _DECIMAL[suffix], Form.DECIMAL)
    exponent = int(suffix[1:])
    if abs(exponent) > _LARGEST_EXPONENT:
        raise ValueError(f"{text!r} has an exponent out of range")
    return Quantity(number * Fraction(10) ** exponent, Form.EXPONENT)


def parse(text: str | float) -> Fraction:
    """Parse a quantity and return only its amount.

    Raises:
        ValueError: it is not a quantity.
    """
    return read(str(text)).amount


@lru_cache(maxsize=4096)
def canonical(text: str) -> str | None:
    """Return the canonical form; None if it is not a quantity."""
    try:
        return str(read(text))
    except ValueError:
        return None


def value(text: str) -> Fraction:
    """Return the amount; 0 if it is not a quantity."""
    try:
        return read(text).amount
    except ValueError:
        return Fraction(0)


def times(quantity: Fraction, divisor: Fraction) -> int:
    """Return how often ``divisor`` fits into ``quantity``, rounded up, as in the downward API."""
    return math.ceil(quantity / divisor)


def spell(quantity: Fraction) -> str:
    """Return the shorter of the plain and the milli form."""
    return str(quantity.numerator) if quantity.denominator == 1 else f"{math.ceil(quantity * 1000)}m"


def _scaled(amount: Fraction) -> tuple[int, int]:
    """Return the mantissa and the largest possible power of ten that is a multiple of three."""
    billionths = math.ceil(abs(amount) * 10**9)
    whole, power = (billionths if amount > 0 else -billionths), -9
    while whole and whole % 1000 == 0 and power < 18:
        whole, power = whole // 1000, power + 3
    return (whole, power) if whole else (0, 0)
