"""Errors from responses of the API server."""

import errno
import socket
import ssl
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import RequestInfo
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from controller.kube import errors


def status(reason: str = "", message: str = "", **details: Any) -> bytes:
    return orjson.dumps({"kind": "Status", "reason": reason, "message": message, "details": details})


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        pytest.param(400, "BadRequest", errors.Invalid, id="a bad request"),
        pytest.param(401, "Unauthorized", errors.Unauthorized, id="rejected credentials"),
        pytest.param(403, "Forbidden", errors.Forbidden, id="no permission, or no quota"),
        pytest.param(404, "NotFound", errors.NotFound, id="not found"),
        pytest.param(409, "Conflict", errors.Conflict, id="conflict"),
        pytest.param(409, "AlreadyExists", errors.AlreadyExists, id="already exists"),
        pytest.param(410, "Expired", errors.Gone, id="an expired resource version"),
        pytest.param(413, "RequestEntityTooLarge", errors.Invalid, id="an object that is too large"),
        pytest.param(422, "Invalid", errors.Invalid, id="an invalid object"),
        pytest.param(429, "TooManyRequests", errors.TooManyRequests, id="too many requests"),
        pytest.param(500, "InternalError", errors.ServerError, id="an internal error"),
        pytest.param(503, "ServiceUnavailable", errors.ServerError, id="service unavailable"),
        pytest.param(504, "Timeout", errors.ServerError, id="a timeout"),
        pytest.param(418, "", errors.ApiError, id="an unknown code"),
    ],
)
def test_the_error_class_of_a_code(code: int, reason: str, expected: type[errors.ApiError]) -> None:
    error = errors.from_response(code, status(reason, "because"))

    assert type(error) is expected
    assert (error.code, error.reason, error.message, str(error)) == (code, reason, "because", "because")


DENIED = "ValidatingAdmissionPolicy 'window' with binding 'window' denied request: maintenance window"
FIELD = {"reason": "FieldValueInvalid", "field": "spec.x", "message": "bad"}
INVALID = 'Pod "a" is invalid: spec.x: bad'
WEBHOOK = 'admission webhook "w.example.com" denied the request'


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        pytest.param(
            422,
            status("Invalid", INVALID, name="a", kind="Pod", causes=[FIELD]),
            errors.InvalidFields,
            id="the API server's own validation",
        ),
        pytest.param(
            422,
            status(
                "Invalid", 'Job.batch "a" is invalid: x', name="a", group="batch", kind="Job", causes=[FIELD]
            ),
            errors.InvalidFields,
            id="the same for an object of a named group",
        ),
        pytest.param(
            422,
            status(
                "Invalid",
                f'pods "a" is forbidden: {DENIED}',
                name="a",
                kind="pods",
                causes=[{"message": DENIED}],
            ),
            errors.Invalid,
            id="a ValidatingAdmissionPolicy without a reason",
        ),
        pytest.param(
            413,
            status("RequestEntityTooLarge", f'pods "a" is forbidden: {DENIED}', causes=[{"message": DENIED}]),
            errors.Invalid,
            id="a ValidatingAdmissionPolicy with reason RequestEntityTooLarge",
        ),
        pytest.param(
            403,
            status("Forbidden", f'pods "a" is forbidden: {DENIED}', causes=[{"message": DENIED}]),
            errors.Forbidden,
            id="a ValidatingAdmissionPolicy with reason Forbidden",
        ),
        pytest.param(
            400,
            status(message=f"{WEBHOOK} without explanation"),
            errors.Invalid,
            id="a webhook without a message",
        ),
        pytest.param(
            422,
            status("Invalid", f"{WEBHOOK}: {INVALID}", name="a", kind="Pod", causes=[FIELD]),
            errors.Invalid,
            id="a webhook with the response of the API server's validation",
        ),
        pytest.param(
            400,
            status(
                "BadRequest", 'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal string'
            ),
            errors.Invalid,
            id="a body of the wrong type",
        ),
    ],
)
def test_admission_errors_differ_from_validation_errors(
    code: int, body: bytes, expected: type[errors.ApiError]
) -> None:
    """As kube-apiserver 1.36 answers; a refusal is final only if its own validation names a field."""
    assert type(errors.from_response(code, body)) is expected


def test_the_fields_of_a_validation_error() -> None:
    causes = [{"reason": "FieldValueInvalid", "field": "spec.a", "message": "no"}, {"message": "of no field"}]

    error = errors.from_response(422, status("Invalid", "refused", causes=causes))

    assert error.causes == (("spec.a", "no"), ("", "of no field"))


def test_a_namespace_that_is_being_terminated() -> None:
    message = "unable to create new content in namespace team because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": "namespace team is being terminated",
        "field": "metadata.namespace",
    }

    error = errors.from_response(403, status("Forbidden", message, causes=[cause]))

    assert type(error) is errors.NamespaceTerminating
    assert (error.code, error.message) == (403, message)


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        pytest.param("7", {}, 7, id="in the header"),
        pytest.param("", {"retryAfterSeconds": 3}, 3, id="in the Status"),
        pytest.param("7", {"retryAfterSeconds": 3}, 7, id="in both, the header wins"),
        pytest.param("", {}, 0, id="nowhere"),
        pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", {}, 0, id="as a date, which no API server sends"),
    ],
)
def test_the_retry_delay_of_an_error(header: str, details: dict[str, Any], seconds: float) -> None:
    assert errors.from_response(429, status(**details), header).retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "HTTP 502", id="empty"),
        pytest.param(b"<html>bad gateway</html>", "<html>bad gateway</html>", id="HTML of a proxy"),
        pytest.param(b"\xff", "�", id="invalid UTF-8"),
        pytest.param(b'["a"]', '["a"]', id="JSON of another type"),
        pytest.param(b"x" * 5000, "x" * 1024, id="without end"),
        pytest.param(b'{"message":null,"reason":null,"details":null}', "HTTP 502", id="full of nulls"),
    ],
)
def test_a_body_that_is_not_a_status(body: bytes, message: str) -> None:
    error = errors.from_response(502, body)

    assert isinstance(error, errors.ServerError)
    assert (error.message, error.reason, error.causes) == (message, "", ())


def refused(error: OSError) -> aiohttp.ClientConnectorError:
    key = ConnectionKey("api.example", 6443, True, ssl.create_default_context(), None, None, None)
    if isinstance(error, ssl.SSLCertVerificationError):
        return aiohttp.ClientConnectorCertificateError(key, error)
    kind = (
        aiohttp.ClientConnectorSSLError if isinstance(error, ssl.SSLError) else aiohttp.ClientConnectorError
    )
    return kind(key, error)


def untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(
            refused(OSError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 6443)")),
            "cannot connect to api.example:6443: Connection refused; ",
            id="refused",
        ),
        pytest.param(
            refused(socket.gaierror(socket.EAI_NONAME, "Name or service not known")),
            "cannot connect to api.example:6443: Name or service not known; ",
            id="no such name",
        ),
        pytest.param(
            refused(untrusted()),
            "the certificate of api.example:6443 is not trusted (self-signed certificate); ",
            id="another cluster's certificate",
        ),
        pytest.param(
            refused(ssl.SSLError(1, "wrong version number")),
            "no TLS connection to api.example:6443: wrong version number",
            id="no TLS",
        ),
        pytest.param(
            aiohttp.ClientProxyConnectionError(
                ConnectionKey("127.0.0.1", 9, False, False, None, None, None),
                OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)"),
            ),
            "cannot connect to the proxy 127.0.0.1:9: Connection refused; the proxy comes from proxy-url in the kubeconfig or from HTTPS_PROXY",
            id="no proxy",
        ),
        pytest.param(
            aiohttp.ClientHttpProxyError(
                RequestInfo(
                    URL("https://api.example"), "CONNECT", CIMultiDictProxy(CIMultiDict({"a": "secret"}))
                ),
                (),
                status=407,
                message="Proxy Authentication Required",
            ),
            "the proxy refuses to connect to the server: 407 Proxy Authentication Required; the proxy comes from",
            id="a proxy that refuses",
        ),
        pytest.param(aiohttp.ServerDisconnectedError(), "Server disconnected", id="hung up"),
        pytest.param(TimeoutError(), "TimeoutError", id="silence"),
    ],
)
def test_a_server_that_cannot_be_reached(error: Exception, text: str) -> None:
    assert errors.unreachable(error).startswith(text)
    assert "SSLContext" not in errors.unreachable(error)
    assert errors.unreachable(error).startswith(errors.describe(error))
