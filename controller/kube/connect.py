"""How to reach an API server: from inside a cluster, from a kubeconfig file, or told by hand.

The in-cluster way is ours and imports nothing heavy. Kubeconfig files go through kubernetes_asyncio, which knows all their ways
of logging in; it is imported only then.
"""

import os
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_LIFETIME_SECONDS = 60.0
"""How long a token file's content is trusted. The kubelet replaces it hourly, well before it ends."""


class NotConfigured(Exception):
    """There is no way to an API server: neither a kubeconfig file nor a cluster around this process."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the API server is and how to log in. ``token`` is asked before each request; empty is no token."""

    server: str
    token: Callable[[], str] = field(default=lambda: "", repr=False)
    tls: ssl.SSLContext | None = None
    tls_name: str = ""
    """The name that the server's certificate is for, where it is not the one in its address."""
    proxy: str = field(default="", repr=False)
    namespace: str = ""
    """The namespace this process lives in, or that the kubeconfig's context names."""
    renew: Callable[[], Awaitable[None]] | None = field(default=None, repr=False)
    """Logs in again, after the server has not accepted the token. May raise NotConfigured or OSError."""


class TokenFile:
    """The token in a file, read again once a minute."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._token = ""
        self._read_at = float("-inf")

    def __call__(self) -> str:
        if self._clock() - self._read_at >= TOKEN_LIFETIME_SECONDS:
            self._token = self._path.read_text().strip()
            self._read_at = self._clock()
        return self._token

    async def renew(self) -> None:
        """Have the file read again the next time."""
        self._read_at = float("-inf")


def in_cluster(folder: Path = SERVICE_ACCOUNT) -> Connection:
    """The connection of a pod with a ServiceAccount.

    Raises:
        NotConfigured: this process does not run in a pod, or the pod has no token mounted.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").exists():
        raise NotConfigured(
            "no cluster around this process (KUBERNETES_SERVICE_HOST or the ServiceAccount token is missing); use --kubeconfig FILE"
        )
    namespace, token = folder / "namespace", TokenFile(folder / "token")
    return Connection(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        token=token,
        tls=ssl.create_default_context(cafile=str(folder / "ca.crt")),
        namespace=namespace.read_text().strip() if namespace.exists() else "",
        renew=token.renew,
    )


async def from_kubeconfig(path: str, context: str = "") -> Connection:
    """The connection that a kubeconfig file describes, with its exec plugins and OIDC logins.

    Raises:
        NotConfigured: the file is missing or does not describe a cluster, or a plugin failed.
    """
    configuration, namespace = await _load(path, context)
    tokens: dict[str, str] = configuration.api_key

    async def renew() -> None:
        tokens.update((await _load(path, context))[0].api_key)

    try:
        tls = _tls(configuration) if configuration.host.startswith("https:") else None
    except OSError as error:
        raise NotConfigured(f"kubeconfig {path}: certificates: {error}") from error
    return Connection(
        server=configuration.host,
        token=lambda: tokens.get("BearerToken", "").removeprefix("Bearer "),
        tls=tls,
        tls_name=configuration.tls_server_name or "",
        proxy=configuration.proxy or "",
        namespace=namespace,
        renew=renew,
    )


async def connect(kubeconfig: str = "") -> Connection:
    """A kubeconfig file if one is named (by flag or $KUBECONFIG), else the cluster around this process."""
    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    return await from_kubeconfig(named) if named else in_cluster(SERVICE_ACCOUNT)


async def _load(path: str, context: str) -> tuple[Any, str]:
    """The generated client's configuration, and the namespace that the context names."""
    from kubernetes_asyncio import client, config

    if not _exists(path):
        raise NotConfigured(f"kubeconfig {path}: no such file")
    configuration = client.Configuration(host="")
    try:
        loader = await config.load_kube_config(path, context or None, client_configuration=configuration)
    except Exception as error:  # the loader meets a broken file with any exception there is
        raise NotConfigured(f"kubeconfig {path}: {_complaint(error)}") from error
    if not (configuration.host or "").startswith(("http://", "https://")):
        raise NotConfigured(f"kubeconfig {path}: it names no server")
    current: dict[str, Any] = loader.current_context or {}
    return configuration, current.get("context", {}).get("namespace") or ""


def _complaint(error: Exception) -> str:
    """What to tell of a loader's error. Those of types and attributes speak of the loader's insides, not of the file."""
    if isinstance(error, (AttributeError, KeyError, TypeError)):
        return "it is no kubeconfig, or a part of it is malformed"
    if isinstance(error, (yaml.YAMLError, UnicodeError)):
        return f"it is no kubeconfig: {error}"
    return str(error) or "it is incomplete"


def _exists(path: str) -> bool:
    """Whether any of the files in a list like $KUBECONFIG is there."""
    return any(Path(one).expanduser().is_file() for one in path.split(os.pathsep))


def _tls(configuration: object) -> ssl.SSLContext:
    verify = bool(getattr(configuration, "verify_ssl", True))
    context = ssl.create_default_context(
        cafile=getattr(configuration, "ssl_ca_cert", None) if verify else None
    )
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = getattr(configuration, "cert_file", None)
    if certificate:
        context.load_cert_chain(certificate, getattr(configuration, "key_file", None))
    return context
