"""Self-contained kubeconfig files: a server, its CA certificate and a token, without plugins, other files or logins.

``connect`` supports every kubeconfig file and takes seconds to import. A short command with a file such as ``rallypoint
up`` writes should not wait for that. The contents are read once.
"""

import base64
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from controller.kube.connect import Connection
from controller.kube.proxy import proxy_for
from controller.kube.tls import client_context

CLUSTER = {"server", "certificate-authority-data"}
USER = {"token"}


def static_kubeconfig(path: str, context: str = "") -> Connection | None:
    """Return the connection that a file describes; None if it contains anything else or is invalid."""
    try:
        config = yaml.safe_load(Path(path).read_text())
        found = _named(config["contexts"], context or config["current-context"])["context"]
        cluster = _named(config["clusters"], found["cluster"])["cluster"]
        user = _named(config["users"], found["user"])["user"]
        if set(cluster) - CLUSTER or set(user) != USER or not str(cluster["server"]).startswith("http"):
            return None
        tls = _tls(cluster)
        proxy = proxy_for(cluster["server"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, StopIteration, ValueError):
        return None
    token = str(user["token"])
    return Connection(
        server=cluster["server"],
        token=lambda: token,
        tls=lambda: tls,
        proxy=proxy,
        namespace=str(found.get("namespace") or ""),
    )


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
