"""Resource quantities (``500m``, ``2Gi``) as numbers. What is asked for and how it is counted belongs to ``capacity``."""

import math
import re
from fractions import Fraction

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|(m|u|n|k|M|G|T|P|E|[KMGTPE]i)?)\Z")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def parse(text: str | float) -> Fraction:
    """The quantity in its base unit (cores, bytes, pieces), exactly.

    Raises:
        ValueError: it is not a quantity.
    """
    match = _QUANTITY.match(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, exponent, suffix = match.groups(default="")
    if suffix in _BINARY:
        return Fraction(number) * (1 << _BINARY[suffix])
    return Fraction(number) * Fraction(10) ** int(exponent or _DECIMAL[suffix])


def times(quantity: Fraction, divisor: Fraction) -> int:
    """How often ``divisor`` goes into ``quantity``, rounded up, as the downward API gives it."""
    return math.ceil(quantity / divisor)


def spell(quantity: Fraction) -> str:
    """The shortest of the plain and the milli form."""
    return str(quantity.numerator) if quantity.denominator == 1 else f"{math.ceil(quantity * 1000)}m"
