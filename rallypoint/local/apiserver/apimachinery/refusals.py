"""The answers that say no: each becomes a ``Status`` object with the code and reason that a real server gives.

``Refusal`` is raised from anywhere behind the routes. ``FieldError`` is not raised: it is one cause of an Invalid
refusal, with the path of its field and the wording of apimachinery's field errors.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

Json = dict[str, Any]


class Refusal(Exception):
    """An answer other than success; ``status`` is its body."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.list_metadata: Json = {}

    @property
    def status(self) -> Json:
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.list_metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


@dataclass(frozen=True, slots=True)
class FieldError:
    """One reason why an object is refused; ``reason`` and ``message`` are those of a ``StatusCause``."""

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
    """A value as the messages show it: strings in quotes, the rest as JSON."""
    return orjson.dumps(value).decode()


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(
        "FieldValueRequired", field, f"Required value: {detail}" if detail else "Required value"
    )


def bad_value(field: str, value: object, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, f"Invalid value: {quoted(value)}: {detail}")


def wrong_type(field: str, value: object, detail: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", field, f"Invalid value: {quoted(value)}: {detail}")


def duplicate(field: str, value: object) -> FieldError:
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {quoted(value)}")


def unsupported(field: str, value: object, supported: Iterable[object]) -> FieldError:
    names = ", ".join(quoted(name) for name in supported)
    return FieldError(
        "FieldValueNotSupported", field, f"Unsupported value: {quoted(value)}: supported values: {names}"
    )


def forbidden_field(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def too_long(field: str, limit: int) -> FieldError:
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} items")


def _about(name: str, group: str, kind: str) -> Json:
    details: Json = {"name": name} if name else {}
    if group:
        details["group"] = group
    return details | {"kind": kind}


def qualified(name: str, group: str) -> str:
    """A resource or kind with its group: ``pytorchjobs.kubeflow.org``, in the core group just ``pods``."""
    return f"{name}.{group}" if group else name


def invalid(group: str, kind: str, name: str, errors: Iterable[FieldError]) -> Refusal:
    """422 with one cause per error; the message shows each text once, as a list when there are several."""
    causes = list(errors)
    texts = list(dict.fromkeys(error.text for error in causes))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _about(name, group, kind) | {"causes": [error.cause for error in causes]}
    return Refusal(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {listed}', details)


def bad_options(kind: str, error: FieldError) -> Refusal:
    """Query parameters or a DeleteOptions body that do not add up."""
    return invalid("meta.k8s.io", kind, "", [error])


def not_found(group: str, plural: str, name: str) -> Refusal:
    return Refusal(
        404, "NotFound", f'{qualified(plural, group)} "{name}" not found', _about(name, group, plural)
    )


def no_such_resource() -> Refusal:
    return Refusal(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str, *, going: bool) -> Refusal:
    message = f'{qualified(plural, group)} "{name}" already exists'
    if going:
        message = f"object is being deleted: {message}"
    return Refusal(409, "AlreadyExists", message, _about(name, group, plural))


def conflict(group: str, subject: str, name: str, why: str) -> Refusal:
    message = f'Operation cannot be fulfilled on {qualified(subject, group)} "{name}": {why}'
    return Refusal(409, "Conflict", message, _about(name, group, subject))


def modified(group: str, plural: str, name: str) -> Refusal:
    """The object is not the one that the writer had read."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(group, plural, name, why)


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def forbidden(group: str, plural: str, name: str, why: str, causes: list[Json] | None = None) -> Refusal:
    details = _about(name, group, plural) | ({"causes": causes} if causes else {})
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    return Refusal(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def not_allowed() -> Refusal:
    message = "the server does not allow this method on the requested resource"
    return Refusal(405, "MethodNotAllowed", message, {})


def expired(message: str) -> Refusal:
    return Refusal(410, "Expired", message)


def unknown_media_type(accepted: Iterable[str]) -> Refusal:
    listed = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return Refusal(415, "UnsupportedMediaType", message)
