"""The verbs of the Kubernetes API: bytes in, bytes out, typed errors.

The caller interprets the answers. The client itself handles only two of them: it waits and retries if the server says so, and it reloads
credentials or certificates that are not accepted any more, because they may have been replaced.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Self

import aiohttp
import orjson

from api.meta import Resource
from controller.kube import errors
from controller.kube.concurrency import ConcurrencyLimiter, PriorityLevel
from controller.kube.connect import Connection
from controller.kube.failure_log import FailureLog
from controller.kube.namespaces import TerminatingNamespaces
from controller.kube.token_bucket import TokenBucket
from controller.kube.transport import (
    NO_ANSWER,
    NOT_ACCEPTED,
    UNOBSERVED,
    Call,
    Observer,
    Tracer,
    Transport,
    undated,
)
from controller.settings import IN_FLIGHT

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_ONLY_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

LONGEST_LINE_BYTES = 16 * 1024 * 1024
"""The limit of ``readline`` on a stream. Objects in etcd have at most about 1.5 MiB; one line holds one object."""
TRIES = 5
"""How often the client tries a request while the server answers with Retry-After; then the caller's own back-off decides.

Source: client-go, rest/with_retry.go: a number of seconds in Retry-After with 429 or any 5xx. Differs: client-go tries ten times.
"""
LONGEST_PAUSE_SECONDS = 10.0
WARMING_SECONDS = 60.0
"""How often all connections are used, so that neither side closes them as idle; less than ``KEEPALIVE_SECONDS``."""
UNKNOWN_WRITE_SECONDS = 120.0
"""After this time a write without an answer has taken effect, as its watch event shows, or never will: API servers end requests after 60 s."""
SPARE_CONNECTIONS = 8
"""Connections beyond the maximum width, because some are being closed; a call never waits for the connection pool."""


_NO_SPAN = contextlib.nullcontext()


def always() -> float:
    """The permit of a client that needs no leadership to write."""
    return float("inf")


class Client:
    """A client of one API server. Use it as an async context manager; close it last.

    ``permit`` returns the seconds for which a write may still be in progress. The client calls it after all waiting and again right
    before it sends each write, and cancels the write after that time. With ``terminating``, the client creates nothing in a namespace that
    is known to be terminating; without it, the client asks the server each time.
    ``on_date`` gets the ``Date`` header of each answer, and the seconds that the answer took by ``timer``.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        in_flight: int = IN_FLIGHT,
        rate_limiter: TokenBucket | None = None,
        user_agent: str = "rallypoint",
        observer: Observer = UNOBSERVED,
        permit: Callable[[], float] = always,
        terminating: TerminatingNamespaces | None = None,
        on_date: Callable[[str, float], None] = undated,
        timer: Callable[[], float] = time.monotonic,
        tracer: Tracer | None = None,
        read_only: bool = False,
    ) -> None:
        """With ``read_only``, no request but a read is ever sent: neither a write nor the command of a WebSocket."""
        self._is_read_only = read_only
        self.limiter = ConcurrencyLimiter(in_flight, rate_limiter)
        self.terminating = terminating
        self.watch_failures = FailureLog[str]()
        """Which failures of watches have been logged, by resource."""
        self._is_limited = rate_limiter is not None
        self._observer = observer
        self._tracer = tracer
        self._permit = permit
        self._unknown_write_at = float("-inf")
        """Loop time when a write last got no answer that says whether it took effect."""
        self._transport = Transport(
            connection,
            observer,
            connections=in_flight + SPARE_CONNECTIONS,
            user_agent=user_agent,
            on_date=on_date,
            timer=timer,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    async def keep_warm(self) -> None:
        """Keep as many connections open as there may be concurrent calls, until canceled.

        Otherwise the first calls of a job after an idle minute need TLS handshakes, which cost both sides more than the calls: 16 creates
        take 107 ms with handshakes, and 43 ms without. Does nothing with a limit on requests per second, which it would exhaust.
        """
        while not self._is_limited:
            idle = self.limiter.width - self.limiter.in_flight
            await asyncio.gather(*(self._touch() for _ in range(idle)))
            await asyncio.sleep(WARMING_SECONDS)

    async def get(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        subresource: str = "",
        accept: str = JSON,
        level: PriorityLevel = PriorityLevel.FIRST,
    ) -> bytes:
        path = resource.path(namespace, name, subresource)
        return await self.request(
            "GET", path, resource=resource.plural, accept=accept, level=level, group=namespace
        )

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        params: Mapping[str, str] | None = None,
        label_selector: str = "",
        field_selector: str = "",
        accept: str = JSON,
        level: PriorityLevel = PriorityLevel.FIRST,
    ) -> bytes:
        query = {"labelSelector": label_selector, "fieldSelector": field_selector, **(params or {})}
        path = resource.path(namespace)
        return await self.request(
            "GET", path, resource=resource.plural, params=query, accept=accept, level=level, group=namespace
        )

    async def create(
        self,
        resource: Resource,
        namespace: str,
        body: bytes,
        *,
        name: str = "",
        subresource: str = "",
        level: PriorityLevel = PriorityLevel.CHILD,
    ) -> bytes:
        """Create an object, or a subresource of one.

        Raises:
            NamespaceTerminating: the namespace accepts no new objects.
        """
        path, terminating = resource.path(namespace, name, subresource), self.terminating
        if terminating:
            terminating.check(namespace)
        try:
            answer = await self.request(
                "POST", path, resource=resource.plural, body=body, level=level, group=namespace
            )
        except errors.NamespaceTerminating as error:
            if terminating:
                terminating.add(namespace, error)
            raise
        if terminating:
            terminating.discard(namespace)
        return answer

    async def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: bytes,
        *,
        subresource: str = "",
        level: PriorityLevel = PriorityLevel.CHILD,
    ) -> bytes:
        path = resource.path(namespace, name, subresource)
        return await self.request(
            "PUT", path, resource=resource.plural, body=body, level=level, group=namespace
        )

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: bytes,
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
        level: PriorityLevel = PriorityLevel.CHILD,
    ) -> bytes:
        path = resource.path(namespace, name, subresource)
        return await self.request(
            "PATCH",
            path,
            resource=resource.plural,
            body=body,
            content_type=content_type,
            level=level,
            group=namespace,
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        propagation: str = "",
        level: PriorityLevel = PriorityLevel.CHILD,
    ) -> bytes:
        """Delete one object; with ``uid`` or ``resource_version`` only if they match (else Conflict)."""
        options: dict[str, object] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        given = {"uid": uid, "resourceVersion": resource_version}
        if preconditions := {key: value for key, value in given.items() if value}:
            options["preconditions"] = preconditions
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        path = resource.path(namespace, name)
        body = orjson.dumps(options)
        return await self.request(
            "DELETE", path, resource=resource.plural, body=body, level=level, group=namespace
        )

    async def request(
        self,
        method: str,
        path: str,
        *,
        resource: str = "",
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        level: PriorityLevel | None = None,
        group: str = "",
    ) -> bytes:
        """Send one request, and retry while the server answers with Retry-After. ``path`` is already quoted.

        Raises:
            ApiError: the server refused the request.
            NotLeading: the write was not sent, or not sent again.
            ReadOnly: the client is read-only, and this is no read.
            aiohttp.ClientError, TimeoutError: there was no answer; a write may have taken effect.
        """
        self._check_read_only(method, path, is_read=method == "GET")
        headers = {"Content-Type": content_type, "Accept": accept} if body is not None else {"Accept": accept}
        call = Call(method, path, resource, params, body, headers)
        if level is None:
            level = PriorityLevel.FIRST if method == "GET" else PriorityLevel.CHILD
        with self._tracer.call(method, path, headers) if self._tracer else _NO_SPAN:
            return await self._try(call, level, group)

    def knows_its_writes(self) -> bool:
        """Return whether each write of the last ``UNKNOWN_WRITE_SECONDS`` got an answer that says whether it took effect."""
        now = asyncio.get_running_loop().time()
        return now - self._unknown_write_at > UNKNOWN_WRITE_SECONDS

    async def _try(self, call: Call, level: PriorityLevel, group: str) -> bytes:
        """Send a request, and again while the server answers with Retry-After."""
        renewed = False
        for attempt in range(1, TRIES + 1):
            try:
                return await self._once(call, level, group)
            except NOT_ACCEPTED as error:
                if renewed or attempt == TRIES or not await self._transport.renew(error):
                    raise
                renewed, pause, code = True, 0.0, getattr(error, "code", NO_ANSWER)
            except (errors.TooManyRequests, errors.ServerError) as error:
                if attempt == TRIES or not error.retry_after_seconds:
                    raise
                pause, code = min(error.retry_after_seconds, LONGEST_PAUSE_SECONDS), error.code
            self._observer.retried(call.method, str(code))
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def stream(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        resource: str = "",
        accept: str = JSON,
        endless: bool = False,
    ) -> AbstractAsyncContextManager[aiohttp.StreamReader]:
        """Open a streaming answer, such as a watch or a followed log. It bypasses the limiter. An ``endless`` stream may be silent.

        Raises:
            ApiError: the server refused the request.
            aiohttp.ClientError, TimeoutError: no answer, or silence for ``STREAM_SILENCE_SECONDS`` while reading.
        """
        call = Call("GET", path, resource, params, None, {"Accept": accept})
        return self._transport.stream(call, endless=endless)

    def socket(
        self, path: str, protocols: Iterable[str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket, such as that of a command in a pod; ``path`` ends with the query.

        Raises:
            ApiError: the server refused the request.
            ReadOnly: the client is read-only.
            aiohttp.ClientError, TimeoutError: there was no answer.
        """
        self._check_read_only("connect", path, is_read=False)
        return self._transport.socket(Call("GET", path, "", None, None, {}), protocols)

    def _check_read_only(self, method: str, path: str, *, is_read: bool) -> None:
        if self._is_read_only and not is_read:
            raise errors.ReadOnly(f"{method} {path} was not sent: this client is read-only")

    async def _touch(self) -> None:
        with contextlib.suppress(errors.ApiError, aiohttp.ClientError, TimeoutError, OSError):
            await self.request("GET", "/version", level=PriorityLevel.EVENT)

    async def _once(self, call: Call, level: PriorityLevel, group: str) -> bytes:
        time = asyncio.get_running_loop().time
        waiting_since = time()
        async with self.limiter.turn(level, group):
            if self._is_limited:
                self._observer.limited(call.method, time() - waiting_since)
            if call.method == "GET":
                return await self._transport.send(call, None)
            try:
                return await self._transport.send(call, self._permit)
            except (aiohttp.ClientError, TimeoutError, OSError, asyncio.CancelledError, errors.ServerError):
                self._unknown_write_at = time()
                raise
