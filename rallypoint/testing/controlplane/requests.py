"""Blocking requests to the control plane for setup and checks; the code under test has its own client."""

import functools
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from controller.kube.tls import client_context

_TIMEOUT_SECONDS = 30.0
_APPLY = "fieldManager=rallypoint-testing&force=true"


class Refused(RuntimeError):
    """The server answered with an error; ``code`` is its HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Untrusted(RuntimeError):
    """The client does not accept the server's certificate; a retry would not help."""


class Requests:
    """Requests of one user."""

    def __init__(self, server: str, ca: Path, token: str) -> None:
        self._server = server
        self._ssl = _context(ca)
        self._token = token

    def send(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> Any:
        """Return the parsed JSON of the answer, or its text."""
        request = urllib.request.Request(self._server + path, method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", content_type)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=self._ssl) as response:
                return _decode(response.read())
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, _message(error.read())) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise Untrusted(str(error.reason)) from error
            raise

    def apply(self, document: Any) -> Any:
        """Apply one object of any kind, by server-side apply; the server's discovery gives its path."""
        metadata = document["metadata"]
        base = self._base(document["apiVersion"])
        resource = next(
            entry
            for entry in self.send("GET", base)["resources"]
            if entry["kind"] == document["kind"] and "/" not in entry["name"]
        )
        namespace = f"/namespaces/{metadata.get('namespace', 'default')}" if resource["namespaced"] else ""
        path = f"{base}{namespace}/{resource['name']}/{metadata['name']}?{_APPLY}"
        return self.send("PATCH", path, document, content_type="application/apply-patch+yaml")

    @staticmethod
    def _base(api_version: str) -> str:
        return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


@functools.cache
def _context(ca: Path) -> ssl.SSLContext:
    return client_context(cafile=str(ca))


def _decode(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode()


def _message(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["message"])
    except (ValueError, LookupError, TypeError):
        return raw.decode(errors="replace")
