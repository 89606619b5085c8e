"""Connections to an API server: from inside a cluster, or from a kubeconfig file.

This module implements the in-cluster way itself, with light imports. It imports kubernetes_asyncio only for kubeconfig files that are not
self-contained, because that library supports all their login methods.
"""

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from controller.kube.impersonation import impersonation_headers
from controller.kube.proxy import proxy_for
from controller.kube.tls import client_context

T = TypeVar("T")

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NO_KUBECONFIG = "this environment cannot read kubeconfig files; install rallypoint-operator[kubeconfig], or run in a pod with a ServiceAccount"
_BASIC = "Basic "
"""How the value of a header with a user name and a password begins."""
FILE_LIFETIME_SECONDS = 60.0
"""How long the content of a mounted file is cached. The kubelet replaces a token hourly, long before it expires."""


class NotConfigured(Exception):
    """There is no configuration for an API server: no kubeconfig file, and the process does not run in a cluster."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of the API server and the credentials.

    ``token``, ``tls`` and ``headers`` are called before each request; empty and None mean none.
    """

    server: str
    token: Callable[[], str] = field(default=lambda: "", repr=False)
    tls: Callable[[], ssl.SSLContext | None] = field(default=lambda: None, repr=False)
    tls_name: str = ""
    """The host name in the server's certificate, if it differs from the one in the address."""
    proxy: str = field(default="", repr=False)
    headers: Callable[[], tuple[tuple[str, str], ...]] = field(default=tuple, repr=False)
    """Headers of a request, such as those of impersonation; a name can occur more than once."""
    namespace: str = ""
    """The namespace of this process's pod, or of the kubeconfig's context."""
    renew: Callable[[], Awaitable[None]] | None = field(default=None, repr=False)
    """Reloads CA certificates and credentials after one side rejected the other. Can raise NotConfigured or OSError."""


class MountedFile(Generic[T]):
    """A value derived from a mounted file, read again once a minute, because the kubelet replaces the file.

    The last value stays in use while the file is missing or invalid. The same content returns the same object.
    """

    def __init__(
        self, path: Path, make: Callable[[str], T], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._make = make
        self._clock = clock
        self._text = path.read_text("utf-8", "replace")
        self._made = make(self._text)
        self._read_at = clock()

    def __call__(self) -> T:
        if self._clock() - self._read_at >= FILE_LIFETIME_SECONDS:
            self._read_at = self._clock()
            with contextlib.suppress(OSError, ValueError):
                self._read()
        return self._made

    def expire(self) -> None:
        """Read the file again at the next use."""
        self._read_at = float("-inf")

    def _read(self) -> None:
        text = self._path.read_text("utf-8", "replace")
        if text != self._text:
            self._made = self._make(text)
            self._text = text


def in_cluster(folder: Path = SERVICE_ACCOUNT) -> Connection:
    """Return the connection of a pod with a ServiceAccount.

    Raises:
        NotConfigured: this process does not run in a pod, or the pod has no token or no CA certificates mounted.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").exists():
        raise NotConfigured(
            "no cluster: no kubeconfig is given, and this process does not run in a pod with a ServiceAccount token; use --kubeconfig FILE, "
            "set KUBECONFIG, or start a local cluster with 'rallypoint up' and run the export command that it prints"
        )
    try:
        token, tls = MountedFile(folder / "token", _token), MountedFile(folder / "ca.crt", _trusting)
    except (OSError, ValueError) as error:
        raise NotConfigured(f"the ServiceAccount in {folder}: {error}") from error

    async def renew() -> None:
        token.expire()
        tls.expire()

    namespace = folder / "namespace"
    return Connection(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        token=token,
        tls=tls,
        namespace=namespace.read_text().strip() if namespace.exists() else "",
        renew=renew,
    )


async def from_kubeconfig(path: str, context: str = "", server: str = "") -> Connection:
    """Return the connection that a kubeconfig file describes, with its exec plugins and OIDC logins.

    The proxy is that of the file or of the environment. If the file's user acts as another one, each request says so. With ``server``,
    that address replaces the file's.

    Raises:
        NotConfigured: the file is missing or does not describe a cluster, a plugin failed, or the proxy cannot be used.
    """
    if not server and (static := _static(path, context)):
        return static
    configuration, current = await _load(path, context, server)
    try:
        proxy = proxy_for(configuration.host, configuration.proxy or "")
    except ValueError as error:
        raise NotConfigured(f"kubeconfig {path}: {error}") from error
    login = await _login(path, configuration, current)

    async def renew() -> None:
        nonlocal login
        login = await _login(path, *(await _load(path, context, server)))

    return Connection(
        server=configuration.host,
        token=lambda: login.token,
        tls=lambda: login.tls,
        tls_name=configuration.tls_server_name or "",
        proxy=proxy,
        headers=lambda: login.headers,
        namespace=current.get("namespace") or "",
        renew=renew,
    )


async def connect(kubeconfig: str = "", server: str = "") -> Connection:
    """Connect with a kubeconfig file if the flag or $KUBECONFIG names one, otherwise with the pod's ServiceAccount.

    With ``server``, that address replaces the kubeconfig's. Without a kubeconfig, it gets no credentials, as of ``kubectl proxy``.

    Raises:
        NotConfigured: there is no configuration, or it cannot be used.

    Source: client-go, tools/clientcmd, BuildConfigFromFlags.
    """
    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    if named:
        return await from_kubeconfig(named, server=server)
    if not server:
        return in_cluster(SERVICE_ACCOUNT)
    try:
        return Connection(server.rstrip("/"), proxy=proxy_for(server))
    except ValueError as error:
        raise NotConfigured(str(error)) from error


def _static(path: str, context: str) -> Connection | None:
    """Return the connection of a self-contained file; None for another one, or without a library that reads YAML."""
    try:
        from controller.kube.static_kubeconfig import static_kubeconfig
    except ImportError:
        return None
    return static_kubeconfig(path, context)


@dataclass(frozen=True, slots=True)
class _Login:
    token: str = field(repr=False)
    tls: ssl.SSLContext | None
    headers: tuple[tuple[str, str], ...] = field(repr=False)


def _basic(configuration: Any) -> tuple[tuple[str, str], ...]:
    """Return the header of a user name and a password, which API servers do not accept, but proxies in front of them may require."""
    authorization: str = configuration.api_key.get("BearerToken", "")
    return (("Authorization", authorization),) if authorization.startswith(_BASIC) else ()


async def _login(path: str, configuration: Any, current: dict[str, Any]) -> _Login:
    token: str = configuration.api_key.get("BearerToken", "")
    try:
        headers = (*_basic(configuration), *_impersonation(path, current))
    except ValueError as error:
        raise NotConfigured(f"kubeconfig {path}: {error}") from error
    try:
        # In a thread, because reading the system's CA certificates, the default without any in the file, takes a while.
        tls = (
            await asyncio.to_thread(_tls, configuration) if configuration.host.startswith("https:") else None
        )
    except OSError as error:
        raise NotConfigured(f"kubeconfig {path}: certificates: {error}") from error
    return _Login("" if token.startswith(_BASIC) else token.removeprefix("Bearer "), tls, headers)


async def _load(path: str, context: str, server: str) -> tuple[Any, dict[str, Any]]:
    """Return the generated client's configuration, and the context."""
    if not _exists(path):
        raise NotConfigured(f"kubeconfig {path}: no such file")
    try:
        from kubernetes_asyncio import client, config
    except ImportError as error:
        raise NotConfigured(f"kubeconfig {path}: {NO_KUBECONFIG}") from error
    configuration = client.Configuration(host="")
    try:
        loader = await config.load_kube_config(path, context or None, client_configuration=configuration)
    except Exception as error:  # the loader raises any type of exception for a broken file
        raise NotConfigured(f"kubeconfig {path}: {_complaint(error)}") from error
    configuration.host = server.rstrip("/") or configuration.host
    if not (configuration.host or "").startswith(("http://", "https://")):
        raise NotConfigured(f"kubeconfig {path}: the current context names no server")
    current: dict[str, Any] = loader.current_context or {}
    return configuration, current.get("context") or {}


def _impersonation(path: str, context: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the impersonation headers of the context's user, which the loader does not read.

    Raises:
        ValueError: the user's fields are malformed.
    """
    from kubernetes_asyncio.config.kube_config import KubeConfigMerger

    merged = KubeConfigMerger(path).config
    user = merged["users"].get_with_name(context.get("user"), safe=True) if merged else None
    return impersonation_headers(user.value.get("user") or {}) if user else ()


def _complaint(error: Exception) -> str:
    """Return a message for an error of the loader. Its type and attribute errors describe the loader's code, not the file."""
    import yaml

    if isinstance(error, (AttributeError, KeyError, TypeError)):
        return "it is not a kubeconfig, or a part of it is malformed"
    if isinstance(error, (yaml.YAMLError, UnicodeError)):
        return f"it is not a kubeconfig: {error}"
    return str(error) or "it is incomplete"


def _exists(path: str) -> bool:
    """Return whether any file of a list like $KUBECONFIG exists."""
    return any(Path(file).expanduser().is_file() for file in path.split(os.pathsep))


def _token(text: str) -> str:
    """Return the token without surrounding whitespace.

    Raises:
        ValueError: the token is empty.
    """
    if not text.strip():
        raise ValueError("the token is empty")
    return text.strip()


def _trusting(authorities: str) -> ssl.SSLContext:
    """Return a TLS context with these CA certificates. Takes well under a millisecond.

    Raises:
        ValueError: there are none. Python would then trust the system's own.
        ssl.SSLError: they are invalid.
    """
    if not authorities.strip():
        raise ValueError("the file of CA certificates is empty")
    return client_context(cadata=authorities.encode("ascii", "ignore").decode())


def _tls(configuration: object) -> ssl.SSLContext:
    verify = bool(getattr(configuration, "verify_ssl", True))
    context = client_context(cafile=getattr(configuration, "ssl_ca_cert", None) if verify else None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = getattr(configuration, "cert_file", None)
    if certificate:
        context.load_cert_chain(certificate, getattr(configuration, "key_file", None))
    return context
