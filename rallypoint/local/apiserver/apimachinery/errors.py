"""API errors: each becomes a ``Status`` object with the code, reason and message of a real API server.

Source: apimachinery, pkg/api/errors/errors.go.
"""

from collections.abc import Iterable

from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.unstructured import Json


class StatusError(Exception):
    """An error that the server answers with; ``status`` is the body of the response."""

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


def _details(name: str, group: str, kind: str) -> Json:
    details: Json = {"name": name} if name else {}
    if group:
        details["group"] = group
    return details | {"kind": kind}


def qualified(name: str, group: str) -> str:
    """Return a resource or kind with its group: ``pytorchjobs.kubeflow.org``; ``pods`` for the core group."""
    return f"{name}.{group}" if group else name


def invalid(group: str, kind: str, name: str, errors: Iterable[FieldError]) -> StatusError:
    """Return a 422 error with one cause per field error; the message lists each distinct text once."""
    causes = list(errors)
    texts = list(dict.fromkeys(error.text for error in causes))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _details(name, group, kind) | {"causes": [error.cause for error in causes]}
    return StatusError(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {listed}', details)


def invalid_options(kind: str, error: FieldError) -> StatusError:
    """Return the error for invalid query parameters or an invalid DeleteOptions body."""
    return invalid("meta.k8s.io", kind, "", [error])


def not_found(group: str, plural: str, name: str) -> StatusError:
    return StatusError(
        404, "NotFound", f'{qualified(plural, group)} "{name}" not found', _details(name, group, plural)
    )


def no_such_resource() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str, *, deleting: bool) -> StatusError:
    message = f'{qualified(plural, group)} "{name}" already exists'
    if deleting:
        message = f"object is being deleted: {message}"
    return StatusError(409, "AlreadyExists", message, _details(name, group, plural))


def conflict(group: str, subject: str, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {qualified(subject, group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(name, group, subject))


def modified(group: str, plural: str, name: str) -> StatusError:
    """Return the conflict for an object that has changed since the client read it."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(group, plural, name, why)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def forbidden(group: str, plural: str, name: str, why: str, causes: list[Json] | None = None) -> StatusError:
    details = _details(name, group, plural) | ({"causes": causes} if causes else {})
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def internal(message: str, details: Json | None = None) -> StatusError:
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details)


def method_not_supported() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def unsupported_media_type(accepted: Iterable[str]) -> StatusError:
    listed = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return StatusError(415, "UnsupportedMediaType", message)
