"""Resource quantities in the form in which the API server writes them back: ``1024Mi`` is ``1Gi``, ``0.5`` is ``500m``.

Source: apimachinery, pkg/api/resource/quantity.go (CanonicalizeBytes).
"""

import re
from decimal import ROUND_UP, Decimal, localcontext

QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))(?P<suffix>[KMGTPE]i|[numkMGTPE]?|[eE][+-]?\d+)"
)

BINARY = {"": 0, "Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

SMALLEST = Decimal("1e-9")


def canonical(text: str) -> str | None:
    """The canonical form; None when it is no quantity."""
    found = QUANTITY.fullmatch(text)
    if found is None:
        return None
    suffix = found["suffix"]
    with localcontext() as context:
        context.prec = 60
        number = Decimal(found["number"])
        if suffix in BINARY and suffix:
            return _binary(number * 1024 ** BINARY[suffix])
        if suffix in DECIMAL:
            return _decimal((number * Decimal(10) ** DECIMAL[suffix]).quantize(SMALLEST, rounding=ROUND_UP))
        return _exponent((number * Decimal(10) ** int(suffix[1:])).quantize(SMALLEST, rounding=ROUND_UP))


def value(text: str) -> Decimal:
    """The number that a quantity stands for; what is no quantity counts as zero."""
    found = QUANTITY.fullmatch(text)
    if found is None:
        return Decimal(0)
    suffix = found["suffix"]
    if suffix in BINARY and suffix:
        return Decimal(found["number"]) * Decimal(1024) ** BINARY[suffix]
    power = DECIMAL[suffix] if suffix in DECIMAL else int(suffix[1:])
    return Decimal(found["number"]) * Decimal(10) ** power


def _binary(amount: Decimal) -> str:
    if amount != amount.to_integral_value() or abs(amount) < 1024:
        return _decimal(amount.quantize(SMALLEST, rounding=ROUND_UP))
    whole, power = int(amount), 0
    while whole and whole % 1024 == 0 and power < 6:
        whole, power = whole // 1024, power + 1
    return f"{whole}{next(name for name, p in BINARY.items() if p == power)}"


def _scaled(amount: Decimal) -> tuple[int, int]:
    """Mantissa and power of ten, the power as large as it can be in steps of three."""
    power = -9
    whole = int(amount.scaleb(9))
    while whole and whole % 1000 == 0 and power < 18:
        whole, power = whole // 1000, power + 3
    return (whole, power) if whole else (0, 0)


def _decimal(amount: Decimal) -> str:
    whole, power = _scaled(amount)
    return f"{whole}{next(name for name, p in DECIMAL.items() if p == power)}"


def _exponent(amount: Decimal) -> str:
    whole, power = _scaled(amount)
    return f"{whole}e{power}" if power else str(whole)
