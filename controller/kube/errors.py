"""The errors of the API server.

    ApiError                  any answer with a status of 400 or more
    ├── Unauthorized          401: the credentials are not accepted
    ├── Forbidden             403: RBAC, quota or admission refuses the request
    │   └── NamespaceTerminating  a namespace that is being deleted accepts no new objects
    ├── NotFound              404
    ├── Conflict              409: the object was modified, or a precondition failed
    │   └── AlreadyExists     409 on create
    ├── Gone                  410: the resourceVersion is too old
    ├── Invalid               422, 413 and 400: the object is refused, perhaps by a policy that accepts it later
    │   └── InvalidFields     422 by the API server's own validation: ``causes`` name fields of the object
    ├── TooManyRequests       429: retry after ``retry_after_seconds``
    └── ServerError           500 and more

Network errors (``aiohttp.ClientError``, ``TimeoutError``, ``OSError``) are not in this tree and propagate unchanged.
Neither are ``NotLeading`` and ``ReadOnly``: the client did not send the request.
"""

import os

import aiohttp
import msgspec


class ApiError(Exception):
    """An answer with a status of 400 or more. ``reason`` and ``message`` come from its Status object.

    ``kind`` is its resource, such as ``pods``, and ``name`` that of the object; empty if it names none, as for a path that is not served.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        kind: str = "",
        name: str = "",
        causes: tuple[tuple[str, str], ...] = (),
        retry_after_seconds: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.kind = kind
        self.name = name
        self.causes = causes
        """(field path, message) of each refused field."""
        self.retry_after_seconds = retry_after_seconds


class Unauthorized(ApiError): ...


class Forbidden(ApiError): ...


class NamespaceTerminating(Forbidden): ...


class NotFound(ApiError): ...


class Conflict(ApiError): ...


class AlreadyExists(Conflict): ...


class Gone(ApiError): ...


class Invalid(ApiError): ...


class InvalidFields(Invalid):
    """The API server will never accept the object as it is."""


class TooManyRequests(ApiError): ...


class ServerError(ApiError): ...


class NotLeading(Exception):
    """The write was not sent: another process may be the leader by now."""


class ReadOnly(Exception):
    """The request was not sent, because its client only reads: a defect, since a shadow plans no write."""


def unreachable(error: Exception) -> str:
    """Return why a server could not be reached, and the next step if the connection itself failed."""
    hint = ""
    if isinstance(error, (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError)):
        hint = f"; {_PROXY_HINT}"
    elif isinstance(error, aiohttp.ClientConnectorCertificateError):
        hint = "; does this kubeconfig belong to that cluster, and is it from its latest start?"
    elif isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        hint = "; is the cluster running, and is this its kubeconfig?"
    return f"{describe(error)}{hint}"


def describe(error: BaseException) -> str:
    """Return the text of an error without the Python objects that those of aiohttp contain, such as the TLS context."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        # Its other fields contain the headers of the request.
        return f"the proxy refuses to connect to the server: {error.status} {error.message}"
    if not isinstance(error, aiohttp.ClientConnectorError):
        return str(error) or type(error).__name__
    where, cause = f"{error.host}:{error.port}", error.os_error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(cause, "verify_message", "") or str(error.certificate_error)
        return f"the certificate of {where} is not trusted ({why})"
    if isinstance(error, aiohttp.ClientSSLError):
        return f"no TLS connection to {where}: {cause.strerror or cause}"
    is_system_error = cause.errno is not None and cause.errno > 0
    why = os.strerror(cause.errno) if is_system_error and cause.errno else cause.strerror or str(cause)
    whom = "the proxy " if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
    return f"cannot connect to {whom}{where}: {why}"


_PROXY_HINT = "the proxy comes from proxy-url in the kubeconfig or from HTTPS_PROXY; NO_PROXY lists servers to connect to directly"


class _Cause(msgspec.Struct):
    reason: str = ""
    field: str = ""
    message: str = ""


class _Details(msgspec.Struct, rename="camel"):
    name: str = ""
    group: str = ""
    kind: str = ""
    causes: list[_Cause] | None = None
    retry_after_seconds: float = 0.0


class _Status(msgspec.Struct):
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


_decode = msgspec.json.Decoder(_Status).decode

_NAMESPACE_TERMINATING = "NamespaceTerminating"
"""The reason of a cause. Source: Kubernetes, core/v1, NamespaceTerminatingCause."""

_BY_CODE: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Invalid,
    422: Invalid,
    429: TooManyRequests,
}


def from_response(code: int, body: bytes, retry_after: str = "") -> ApiError:
    """Return the error for one answer. If the body is not a Status object, its text becomes the message."""
    try:
        status = _decode(body)
    except msgspec.DecodeError:
        status = _Status(message=body[:1024].decode(errors="replace"))
    details = status.details or _Details()
    reason, message = status.reason or "", status.message or f"HTTP {code}"
    given = details.causes or []
    causes = tuple((cause.field, cause.message) for cause in given)
    if code == 403 and any(cause.reason == _NAMESPACE_TERMINATING for cause in given):
        return NamespaceTerminating(code, reason, message)
    if code == 422 and _names_fields(reason, message, causes, details):
        return InvalidFields(code, reason, message, causes=causes)
    return from_status(
        code,
        reason,
        message,
        kind=details.kind,
        name=details.name,
        causes=causes,
        retry_after_seconds=_seconds(retry_after) or details.retry_after_seconds,
    )


def _names_fields(reason: str, message: str, causes: tuple[tuple[str, str], ...], details: _Details) -> bool:
    """Return whether the API server's own validation refused the object, not an admission policy.

    By default a ValidatingAdmissionPolicy also answers 422 Invalid, but its cause names no field. A webhook can send any Status; the API
    server puts ``admission webhook "…" denied the request`` before its message, whereas its own messages begin with the object.

    Source: apimachinery, pkg/api/errors/errors.go, NewInvalid; apiserver, pkg/admission/plugin/webhook/errors/statuserror.go and
    pkg/admission/plugin/policy/validating/dispatcher.go.
    """
    kind = f"{details.kind}.{details.group}" if details.group else details.kind
    own = message.startswith(f'{kind} "{details.name}" is invalid')
    return reason == "Invalid" and own and any(field for field, _ in causes)


def from_status(
    code: int,
    reason: str,
    message: str,
    *,
    kind: str = "",
    name: str = "",
    causes: tuple[tuple[str, str], ...] = (),
    retry_after_seconds: float = 0.0,
) -> ApiError:
    """Return the error class for a code and a reason."""
    fits = (
        AlreadyExists
        if reason == "AlreadyExists"
        else _BY_CODE.get(code, ServerError if code >= 500 else ApiError)
    )
    return fits(
        code,
        reason,
        message,
        kind=kind,
        name=name,
        causes=causes,
        retry_after_seconds=retry_after_seconds,
    )


def _seconds(header: str) -> float:
    return float(header) if header.isdigit() else 0.0
