"""Field errors: the causes of an Invalid error, in the words of apimachinery.

Source: apimachinery, pkg/util/validation/field/errors.go.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from rallypoint.local.apiserver.apimachinery.unstructured import Json


@dataclass(frozen=True, slots=True)
class FieldError:
    """One reason why an object is invalid; ``reason`` and ``message`` are those of a ``StatusCause``."""

    reason: str
    field: str
    message: str

    @property
    def cause(self) -> Json:
        return {"reason": self.reason, "message": self.message, "field": self.field}

    @property
    def text(self) -> str:
        return f"{self.field}: {self.message}"


def quoted(value: object) -> str:
    """Format a value for a message: strings in quotes, the rest as JSON."""
    return orjson.dumps(value).decode()


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(
        "FieldValueRequired", field, f"Required value: {detail}" if detail else "Required value"
    )


def invalid(field: str, value: object, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, f"Invalid value: {quoted(value)}: {detail}")


def negative(field: str, value: object) -> FieldError:
    return invalid(field, value, "must be greater than or equal to 0")


def type_invalid(field: str, value: object, detail: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", field, f"Invalid value: {quoted(value)}: {detail}")


def duplicate(field: str, value: object) -> FieldError:
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {quoted(value)}")


def not_supported(field: str, value: object, supported: Iterable[object]) -> FieldError:
    names = ", ".join(quoted(name) for name in supported)
    return FieldError(
        "FieldValueNotSupported", field, f"Unsupported value: {quoted(value)}: supported values: {names}"
    )


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def too_long(field: str, limit: int) -> FieldError:
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} items")
