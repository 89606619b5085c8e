"""Selects the HTTP proxy for an API server, as kubectl does: the kubeconfig's ``proxy-url``, else the environment's.

Python's ``urllib`` knows no networks such as ``10.0.0.0/8`` in ``NO_PROXY``, which are common there.

Source: golang.org/x/net, http/httpproxy/proxy.go. Differs: SOCKS proxies are refused, and a pod
that connects with its ServiceAccount uses no proxy, because the API server is inside its cluster.
"""

import contextlib
import os
from collections.abc import Mapping
from ipaddress import ip_address, ip_network

from yarl import URL

SCHEMES = ("http", "https")


def proxy_for(server: str, proxy_url: str = "", environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the proxy for a server; empty for none.

    Args:
        proxy_url: the kubeconfig's; it precedes the environment, and ``NO_PROXY`` does not apply to it.

    Raises:
        ValueError: the proxy is not one that speaks HTTP.
    """
    url = URL(server)
    if proxy_url:
        return _checked(proxy_url, "proxy-url")
    name = f"{url.scheme.upper()}_PROXY"
    found = _variable(environment, name)
    if not found or not _uses_proxy(url.host or "", url.port, _variable(environment, "NO_PROXY")):
        return ""
    return _checked(found if "://" in found else f"http://{found}", f"${name}")


def _variable(environment: Mapping[str, str], name: str) -> str:
    return (environment.get(name) or environment.get(name.lower()) or "").strip()


def _checked(proxy: str, where: str) -> str:
    url = URL(proxy)
    if url.scheme not in SCHEMES or not url.host:
        # The text of a proxy may contain a password.
        raise ValueError(f"{where} is not the URL of an HTTP proxy; only http:// and https:// are supported")
    return proxy


def _uses_proxy(host: str, port: int | None, no_proxy: str) -> bool:
    """Return whether requests to a host use the proxy. Those to this machine never do."""
    host = host.lower().rstrip(".")
    address = None
    with contextlib.suppress(ValueError):
        address = ip_address(host)
    if host == "localhost" or (address and address.is_loopback):
        return False
    for entry in filter(None, (part.strip().lower() for part in no_proxy.split(","))):
        if entry == "*":
            return False
        network = None
        with contextlib.suppress(ValueError):
            network = ip_network(entry, strict=False)
        if network:
            if address and address in network:
                return False
            continue
        name, entry_port = _split(entry)
        if entry_port and entry_port != str(port):
            continue
        if _matches(host, name):
            return False
    return True


def _split(entry: str) -> tuple[str, str]:
    """Split ``host:port`` or ``[address]:port``; the port may be missing."""
    name, colon, port = entry.rpartition(":")
    if colon and port.isdecimal() and (":" not in name or name.endswith("]")):
        return name.strip("[]"), port
    return entry.strip("[]"), ""


def _matches(host: str, name: str) -> bool:
    """Return whether ``example.com`` or ``.example.com`` names a host. The latter, like ``*.example.com``, only names subdomains."""
    name = name.removeprefix("*")
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")
