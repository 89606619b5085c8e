"""Raw requests to an API server.

A trace is a list of steps. ``RawClient.run`` sends them and returns the replies.
"""

import base64
import io
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self

import aiohttp
import orjson

from controller.kube.tls import client_context

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@dataclass(frozen=True, slots=True)
class Step:
    """One request and the status code that it must have.

    In path and body, ``$2.metadata.uid`` stands for that field of the second step's reply. ``ignore`` lists what is
    left out of the comparison, as dotted paths into the reply.
    """

    method: str
    path: str
    body: Any = None
    code: int = 200
    type: str = JSON
    accept: str = ""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    ignore: Sequence[str] = ()
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: ``body`` is parsed JSON, ``text`` the whole answer."""

    code: int
    body: Any
    text: str
    warnings: tuple[str, ...]


class RawClient:
    """A client that adds nothing to the requests that it sends. Use as an async context manager."""

    def __init__(self, url: str, token: str, tls: ssl.SSLContext | None = None) -> None:
        self.url = url
        self.token = token
        self.tls = tls
        self._connector = aiohttp.TCPConnector(ssl=tls) if tls is not None else aiohttp.TCPConnector()
        self._session = aiohttp.ClientSession(connector=self._connector, trust_env=False)

    @classmethod
    def from_kubeconfig(cls, config: Mapping[str, Any]) -> "RawClient":
        """Return a client for the first cluster and the first user of a kubeconfig."""
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = cluster.get("certificate-authority-data")
        tls = None
        if authority:
            tls = client_context(cadata=base64.b64decode(authority).decode())
        return cls(cluster["server"], user["token"], tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connector.close(abort_ssl=True)
        await self._session.close()

    async def send(self, step: Step, replies: Sequence[Reply] = ()) -> Reply:
        path, query = _filled(step.path, replies), _filled(dict(step.query), replies)
        headers = {"Authorization": f"Bearer {self.token}", "User-Agent": "contract/1"}
        if step.accept:
            headers["Accept"] = step.accept
        data = step.raw
        if data is None and step.body is not None:
            data = orjson.dumps(_filled(step.body, replies))
        stream = None if data is None else io.BytesIO(data)
        if data is not None:
            headers["Content-Type"] = step.type
        request = self._session.request(
            step.method, self.url + path, params=query, data=stream, headers=headers
        )
        async with request as response:
            content = await response.read()
            warnings = tuple(response.headers.getall("Warning", ()))
            return Reply(response.status, _parsed(content), content.decode(), warnings)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], accept: str
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Yield the lines of a watch until it ends or the caller leaves the block."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept}
        timeout = aiohttp.ClientTimeout(total=None)
        request = self._session.get(self.url + path, params=query, headers=headers, timeout=timeout)
        async with request as response:
            if response.status != HTTPStatus.OK:
                raise AssertionError(await response.text())
            transport = response.connection.transport if response.connection is not None else None
            yield aiter(response.content)
            if transport is not None:  # a TLS farewell would outlive the loop
                transport.abort()

    async def run(self, steps: Sequence[Step]) -> list[Reply]:
        replies: list[Reply] = []
        for step in steps:
            replies.append(await self.send(step, replies))
        return replies


def _parsed(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


REFERENCE = re.compile(r"\$(?P<step>\d+)(?P<path>(?:\.[\w-]+)+)")


def _filled(value: Any, replies: Sequence[Reply]) -> Any:
    if isinstance(value, str):
        whole = REFERENCE.fullmatch(value)
        if whole is not None:
            return _reference(whole, replies)
        return REFERENCE.sub(lambda found: str(_reference(found, replies)), value)
    if isinstance(value, dict):
        return {key: _filled(item, replies) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, replies) for item in value]
    return value


def _reference(found: re.Match[str], replies: Sequence[Reply]) -> Any:
    value = replies[int(found["step"]) - 1].body
    for name in found["path"].strip(".").split("."):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value
