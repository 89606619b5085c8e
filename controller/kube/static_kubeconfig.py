"""Self-contained kubeconfig files: a server, its CA certificate and a token, without plugins, other files or logins.

``from_kubeconfig`` supports every kubeconfig file, takes long to import and 34 MiB of memory. A short command with a file such as
``rallypoint up`` writes should not wait for that, nor an operator that is started by hand keep it in memory.
"""

import base64
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from controller.kube.connect import Connection, NotConfigured
from controller.kube.proxy import proxy_for
from controller.kube.tls import client_context

CLUSTER = {"server", "certificate-authority-data"}
USER = {"token"}
_SCHEMES = ("Basic ", "Bearer ")
"""With one of them, a token is a whole header."""


@dataclass(frozen=True, slots=True)
class _Login:
    """What a file says, and its text."""

    text: str = field(repr=False)
    server: str
    token: str = field(repr=False)
    tls: ssl.SSLContext | None
    namespace: str


def static_kubeconfig(path: str, context: str = "") -> Connection | None:
    """Return the connection that a file describes; None if it contains anything else or is invalid.

    Its renewal reads token and CA certificate again. It raises NotConfigured if the file has meanwhile become one of another sort.
    """
    first = _read(path, context)
    if first is None:
        return None
    login: _Login = first
    try:
        proxy = proxy_for(login.server)
    except ValueError:
        return None

    async def renew() -> None:
        nonlocal login
        newest = _read(path, context)
        if newest is None or newest.server != login.server:
            raise NotConfigured(
                f"kubeconfig {path}: the file is missing or invalid, or its server or login method has changed since startup; restart the process"
            )
        if newest.text != login.text:  # Another TLS context opens new connections.
            login = newest

    return Connection(
        server=login.server,
        token=lambda: login.token,
        tls=lambda: login.tls,
        proxy=proxy,
        namespace=login.namespace,
        renew=renew,
    )


def _read(path: str, context: str) -> _Login | None:
    try:
        text = Path(path).expanduser().read_text()
        config = yaml.safe_load(text)
        found = _named(config["contexts"], context or config["current-context"])["context"]
        cluster = _named(config["clusters"], found["cluster"])["cluster"]
        user = _named(config["users"], found["user"])["user"]
        server, token = str(cluster["server"]).rstrip("/"), str(user["token"])
        if set(cluster) - CLUSTER or set(user) != USER or not server.startswith("http"):
            return None
        if not token or token.startswith(_SCHEMES):
            return None
        return _Login(text, server, token, _tls(cluster), str(found.get("namespace") or ""))
    except (OSError, yaml.YAMLError, KeyError, TypeError, StopIteration, ValueError):
        return None


def _named(listed: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next(entry for entry in listed if entry["name"] == name)


def _tls(cluster: Mapping[str, Any]) -> ssl.SSLContext | None:
    """Return a TLS context with the CA certificate.

    Raises:
        ssl.SSLError: the certificate is invalid; it is an OSError.
        KeyError, ValueError: there is none, so that Python would trust the system's own.
    """
    if not cluster["server"].startswith("https:"):
        return None
    authority = base64.b64decode(cluster["certificate-authority-data"], validate=True).decode()
    if not authority.strip():
        raise ValueError("an empty authority would mean the system's own")
    return client_context(cadata=authority)
