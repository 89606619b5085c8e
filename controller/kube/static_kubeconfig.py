"""Kubeconfig files that say all themselves: a server, its authority, a token. No plugin, no other file, no login.

``connect`` knows every kind of file and takes seconds to load for that; a short command on a file such as ``rallypoint
up`` writes need not wait for it. What is read here stays as it was read.
"""

import base64
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from controller.kube.connect import Connection
from controller.kube.tls import client_context

CLUSTER = {"server", "certificate-authority-data"}
USER = {"token"}


def static_kubeconfig(path: str, context: str = "") -> Connection | None:
    """The connection that a file describes; None when it says anything else, or nothing that makes sense."""
    try:
        config = yaml.safe_load(Path(path).read_text())
        found = _named(config["contexts"], context or config["current-context"])["context"]
        cluster = _named(config["clusters"], found["cluster"])["cluster"]
        user = _named(config["users"], found["user"])["user"]
        if set(cluster) - CLUSTER or set(user) != USER or not str(cluster["server"]).startswith("http"):
            return None
        tls = _tls(cluster)
    except (OSError, yaml.YAMLError, KeyError, TypeError, StopIteration, ValueError):
        return None
    token = str(user["token"])
    return Connection(
        server=cluster["server"],
        token=lambda: token,
        tls=lambda: tls,
        namespace=str(found.get("namespace") or ""),
    )


def _named(listed: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next(entry for entry in listed if entry["name"] == name)


def _tls(cluster: Mapping[str, Any]) -> ssl.SSLContext | None:
    """
    Raises:
        ssl.SSLError: the authority makes no sense; it is an OSError.
        KeyError, ValueError: none is named, where the system's own would count.
    """
    if not cluster["server"].startswith("https:"):
        return None
    authority = base64.b64decode(cluster["certificate-authority-data"], validate=True).decode()
    if not authority.strip():
        raise ValueError("an empty authority would mean the system's own")
    return client_context(cadata=authority)
