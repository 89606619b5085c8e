"""The API server: start, address, stop."""

import asyncio
import base64
import contextlib
import random
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from controller.bounded_server import BoundedServer
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.auth import authorization
from rallypoint.local.apiserver.auth.authorization import GROUP as RBAC
from rallypoint.local.apiserver.auth.serviceaccounts import PodTokens
from rallypoint.local.apiserver.controllers.expiry import expire_events
from rallypoint.local.apiserver.controllers.garbagecollector import GarbageCollector
from rallypoint.local.apiserver.registry.requests import Target, WriteOptions
from rallypoint.local.apiserver.registry.writer import Writer
from rallypoint.local.apiserver.resources.catalog import Catalog
from rallypoint.local.apiserver.resources.customresources import GROUP
from rallypoint.local.apiserver.serving.handlers import Handlers, PodRequest
from rallypoint.local.apiserver.serving.interceptor import Interceptor
from rallypoint.local.apiserver.storage.journal import Journal
from rallypoint.local.apiserver.storage.store import Store

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")

STOP_SECONDS = 2.0
MAX_CONNECTIONS = 512
"""Half of the usual limit of 1,024 file descriptors; the local node needs the rest."""
IDLE_SECONDS = 90.0
"""Idle timeout of connections, as in kube-apiserver; clients close them earlier."""


def _now() -> datetime:
    return datetime.now(UTC)


class ApiServer:
    """An API server on loopback. Call ``start`` and ``stop`` on the same event loop."""

    def __init__(
        self,
        *,
        crds: Sequence[Json] = (),
        token: str = "",
        clock: Callable[[], datetime] = _now,
        auto_namespaces: bool = False,
        history: int = 4096,
        interceptor: Interceptor | None = None,
        seed: int | None = None,
        data: Path | None = None,
        notices: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            token: the administrator's token; random by default.
            auto_namespaces: create the namespace of a new object if it is missing.
            history: number of changes that each resource keeps for watches.
            data: file in which objects persist; acknowledged writes survive the process.
            notices: warnings for creating objects of a resource (``group/plural``).

        Raises:
            JournalError: ``data`` cannot be used.
        """
        self.token = token or secrets.token_urlsafe(32)
        self.store = Store(history)
        rng = random.Random(seed) if seed is not None else random.SystemRandom()
        self._clock = clock
        self._writer = Writer(
            self.store, Catalog(), clock, rng, auto_namespaces=auto_namespaces, notices=notices or {}
        )
        self._collector = GarbageCollector(self._writer)
        self._pod_tokens = PodTokens(self.store)
        self._handlers = Handlers(self._writer, self.token, self._pod_tokens, clock, interceptor)
        self._server: BoundedServer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._url = ""
        self._authority = b""
        self._journal = None if data is None else Journal(data)
        if self._journal is not None:
            self._restore(self._journal)
        for name in NAMESPACES:
            if ("", name) not in self.store.collection("/namespaces").entries:
                self._writer.add("", "namespaces", {"metadata": {"name": name}})
        for plural, obj in authorization.bootstrap_policy():
            if ("", obj["metadata"]["name"]) not in self.store.collection(f"{RBAC}/{plural}").entries:
                self._writer.add(RBAC, plural, obj)
        for definition in crds:
            self.define(definition)

    async def _date(self, request: web.Request, response: web.StreamResponse) -> None:
        """Set the Date header from the clock of the server."""
        response.headers["Date"] = format_datetime(self._clock(), usegmt=True)

    @property
    def url(self) -> str:
        """``http://host:port`` of the latest address; empty until started."""
        return self._url

    def answer_for_pods(self, subresource: str, answer: PodRequest) -> None:
        """Set the handler of a subresource of pods (``log``, ``exec``, ``attach``, ``portforward``)."""
        self._handlers.pods[subresource] = answer

    def pod_token(self, pod: Mapping[str, Any], audience: str = "") -> str:
        """Return the token of a pod's ServiceAccount for an audience, by default this server."""
        return self._pod_tokens.issue(pod, audience)

    def define(self, definition: Json) -> None:
        """Create or replace a CustomResourceDefinition.

        Raises:
            StatusError: it is not valid.
        """
        resource = self._writer.catalog.find(GROUP, "v1", "customresourcedefinitions")
        assert resource is not None
        options = WriteOptions(validation="Ignore")
        existing = self._writer.collection(resource).entries.get(("", definition["metadata"]["name"]))
        if existing is None:
            self._writer.create(Target(resource), definition, options)
            return
        metadata = {**definition["metadata"], "resourceVersion": existing.metadata["resourceVersion"]}
        target = Target(resource, name=metadata["name"])
        self._writer.update(target, {**definition, "metadata": metadata}, options)

    def serve_definitions(self) -> None:
        """Serve the resources of the definitions in a restored store."""
        self._writer.catalog.undefine_all()
        for definition in self.store.collection(f"{GROUP}/customresourcedefinitions").select():
            self._writer.catalog.define(definition.object)
            self._writer.reread(definition.object)

    def _restore(self, journal: Journal) -> None:
        self.store.restore(journal.revision, journal.objects())
        self.serve_definitions()
        self.store.recorder = journal

    async def start(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        authority: bytes = b"",
    ) -> None:
        """Start serving, and listen on an address."""
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._handlers.handle)
        app.on_response_prepare.append(self._date)
        self._server = BoundedServer(
            app,
            max_connections=MAX_CONNECTIONS,
            idle_seconds=IDLE_SECONDS,
            handler_cancellation=True,
            shutdown_timeout=STOP_SECONDS,
        )
        await self._server.start()
        await self.listen(host, port, tls=tls, authority=authority)
        self._tasks = [
            asyncio.create_task(self._collector.run(), name="garbage collector"),
            asyncio.create_task(expire_events(self._writer), name="expiry of events"),
        ]

    async def listen(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        authority: bytes = b"",
    ) -> None:
        """Listen on another address, which becomes the address of the server.

        ``tls`` enables TLS; ``authority`` (PEM) signed its certificate. kubectl sends tokens only over TLS; the clients
        of this package also send them without.
        """
        assert self._server is not None
        address, bound_port = await self._server.listen(
            host, port, tls=(lambda: tls) if tls is not None else None
        )
        self._url = f"{'https' if tls is not None else 'http'}://{address}:{bound_port}"
        self._authority = authority

    async def listen_on(self, listener: socket.socket, tls: ssl.SSLContext) -> None:
        """Listen on another socket over TLS; the address of the server does not change."""
        assert self._server is not None
        self._server.listen_on(listener, tls=lambda: tls)

    async def stop(self) -> None:
        """Close all watches, then stop listening."""
        self.store.close_watchers()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._server is not None:
            await self._server.stop()
        if self._journal is not None:
            await asyncio.to_thread(self._journal.close)
            self.store.recorder = self._journal = None
        self._server = None
        self._tasks = []
        self._url = ""

    def kubeconfig(self) -> Json:
        """Return a kubeconfig for this server."""
        name = "rallypoint"
        cluster: Json = {"server": self.url}
        if self._authority:
            cluster["certificate-authority-data"] = base64.b64encode(self._authority).decode()
        context = {"cluster": name, "user": name, "namespace": "default"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"token": self.token}}],
            "contexts": [{"name": name, "context": context}],
            "current-context": name,
        }
