"""Requests to the API server: bytes in, bytes out, typed errors, explicit time limits.

Two pools of connections, so that long watches never take the place of writes. At most ``in_flight`` calls run at once. What the
answers mean is the caller's business; only ``retry later`` (429, and 503 with Retry-After) is handled here.
"""

import asyncio
import contextlib
import io
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Self

import aiohttp
import orjson

from api.meta import Resource
from controller.kube import errors
from controller.kube.connect import Connection, NotConfigured
from controller.kube.limiter import TokenBucket

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_ONLY_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

CALL_TIMEOUT_SECONDS = 30.0
"""A call that has no answer after this long has failed; the API server itself gives up after 60."""
CONNECT_TIMEOUT_SECONDS = 10.0
STREAM_SILENCE_SECONDS = 90.0
"""A watch that says nothing for so long is dead: the API server sends a bookmark about once a minute."""
KEEPALIVE_SECONDS = 75.0
LONGEST_LINE_BYTES = 16 * 1024 * 1024
"""Given to ``readline`` of a stream. Objects are at most about 1.5 MiB in etcd; one line holds one object."""
LARGE_BYTES = 1024 * 1024
"""Bodies of this size are sent in pieces, so that one does not hold up the event loop."""
TRIES = 5
"""How often a call is tried when the server says ``later``; then the caller's own back-off decides."""
LONGEST_PAUSE_SECONDS = 10.0
RENEWAL_SECONDS = 10.0
"""How long a new login is left alone, whatever the server says of it."""

Observe = Callable[[str, str, str, float], None]
"""Told of each answer: method, resource (plural), code (``<error>`` when there was none), seconds."""


def _nobody(method: str, resource: str, code: str, seconds: float) -> None: ...


class Client:
    """A client of one API server. Use as an async context manager; close it last."""

    def __init__(
        self,
        connection: Connection,
        *,
        in_flight: int = 32,
        limiter: TokenBucket | None = None,
        user_agent: str = "rallypoint",
        observe: Observe = _nobody,
    ) -> None:
        self._connection = connection
        self._in_flight = asyncio.Semaphore(in_flight)
        self._limiter = limiter
        self._user_agent = user_agent
        self._observe = observe
        self._renewing = asyncio.Lock()
        self._renewed_at = float("-inf")
        self._calls = self._session(
            in_flight + 8, aiohttp.ClientTimeout(CALL_TIMEOUT_SECONDS, CONNECT_TIMEOUT_SECONDS)
        )
        self._streams = self._session(
            0,
            aiohttp.ClientTimeout(
                None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=STREAM_SILENCE_SECONDS
            ),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._calls.close()
        await self._streams.close()

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = "", accept: str = JSON
    ) -> bytes:
        return await self.request(
            "GET", resource.path(namespace, name, subresource), resource=resource.plural, accept=accept
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
    ) -> bytes:
        query = {"labelSelector": label_selector, "fieldSelector": field_selector, **(params or {})}
        return await self.request(
            "GET", resource.path(namespace), resource=resource.plural, params=query, accept=accept
        )

    async def create(
        self, resource: Resource, namespace: str, body: bytes, *, name: str = "", subresource: str = ""
    ) -> bytes:
        path = resource.path(namespace, name, subresource)
        return await self.request("POST", path, resource=resource.plural, body=body)

    async def update(
        self, resource: Resource, namespace: str, name: str, body: bytes, *, subresource: str = ""
    ) -> bytes:
        path = resource.path(namespace, name, subresource)
        return await self.request("PUT", path, resource=resource.plural, body=body)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: bytes,
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
    ) -> bytes:
        path = resource.path(namespace, name, subresource)
        return await self.request(
            "PATCH", path, resource=resource.plural, body=body, content_type=content_type
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_period_seconds: int | None = None,
        propagation: str = "",
    ) -> bytes:
        """Delete one object; with ``uid`` only that very one (else Conflict)."""
        options: dict[str, object] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        path = resource.path(namespace, name)
        return await self.request("DELETE", path, resource=resource.plural, body=orjson.dumps(options))

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
    ) -> bytes:
        """One call, repeated while the server asks to come back later.

        Raises:
            ApiError: the server refused.
            aiohttp.ClientError, TimeoutError: there was no answer; a write may have been done all the same.
        """
        headers = {"Content-Type": content_type, "Accept": accept} if body is not None else {"Accept": accept}
        renewed, pause = False, 0.0
        for attempt in range(1, TRIES + 1):
            if self._limiter:
                await self._limiter.take()
            try:
                async with self._in_flight:
                    return await self._once(method, path, resource, params, body, headers)
            except errors.Unauthorized as error:
                if renewed or attempt == TRIES or not await self._log_in_again(error):
                    raise
                renewed, pause = True, 0.0
            except (errors.TooManyRequests, errors.ServerError) as error:
                if attempt == TRIES or not error.retry_after_seconds:
                    raise
                pause = min(error.retry_after_seconds, LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, resource: str = "", accept: str = JSON
    ) -> AsyncGenerator[aiohttp.StreamReader]:
        """The body of a long answer, such as a watch or a followed log.

        Raises:
            ApiError: the server refused.
            aiohttp.ClientError, TimeoutError: no answer, or silence for ``STREAM_SILENCE_SECONDS`` while reading.
        """
        started = time.monotonic()
        headers = {"Accept": accept}
        async with self._streams.get(
            self._connection.server + path,
            params=_given(params),
            headers=self._with_token(headers),
            server_hostname=self._connection.tls_name or None,
        ) as response:
            self._observe("GET", resource, str(response.status), time.monotonic() - started)
            if response.status >= 400:
                error = errors.from_response(
                    response.status, await response.read(), response.headers.get("Retry-After", "")
                )
                if isinstance(error, errors.Unauthorized):
                    await self._log_in_again(error)
                raise error
            yield response.content

    async def _once(
        self,
        method: str,
        path: str,
        resource: str,
        params: Mapping[str, str] | None,
        body: bytes | None,
        headers: dict[str, str],
    ) -> bytes:
        started, code = time.monotonic(), "<error>"
        try:
            async with self._calls.request(
                method,
                self._connection.server + path,
                params=_given(params),
                data=io.BytesIO(body) if body and len(body) >= LARGE_BYTES else body,
                headers=self._with_token(headers),
                server_hostname=self._connection.tls_name or None,
            ) as response:
                answer = await response.read()
                code = str(response.status)
        finally:
            self._observe(method, resource, code, time.monotonic() - started)
        if response.status >= 400:
            raise errors.from_response(response.status, answer, response.headers.get("Retry-After", ""))
        return answer

    async def _log_in_again(self, refusal: errors.Unauthorized) -> bool:
        """Whether there is a new login to try; many calls refused at once share one."""
        renew = self._connection.renew
        if renew is None:
            return False
        async with self._renewing:
            now = asyncio.get_running_loop().time()
            if now - self._renewed_at >= RENEWAL_SECONDS:
                self._renewed_at = now
                try:
                    await renew()
                except (NotConfigured, OSError) as error:
                    text = f"{refusal.message}; the new login failed: {error}"
                    raise errors.Unauthorized(refusal.code, refusal.reason, text) from error
        return True

    def _with_token(self, headers: dict[str, str]) -> dict[str, str]:
        token = self._connection.token()
        return {**headers, "Authorization": f"Bearer {token}"} if token else headers

    def _session(self, limit: int, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=limit, keepalive_timeout=KEEPALIVE_SECONDS, ssl=self._connection.tls or True
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            trust_env=False,
            proxy=self._connection.proxy or None,
            cookie_jar=aiohttp.DummyCookieJar(),
        )


def _given(params: Mapping[str, str] | None) -> dict[str, str]:
    return {key: value for key, value in (params or {}).items() if value != ""}
