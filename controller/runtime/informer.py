"""List and watch one resource, keep its store true, and tell of each change.

The rules are those of client-go's reflector: a broken or silent watch is resumed where it stopped; only when the server has forgotten
that place (410) is everything listed anew; a watch that ends at once counts as a failure.

Source: client-go, tools/cache/reflector.go.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Generic

import aiohttp
import msgspec
import structlog
from aiohttp.http_exceptions import LineTooLong

from api.meta import Resource
from controller.kube import errors
from controller.kube.client import JSON, LONGEST_LINE_BYTES, Client
from controller.runtime.backoff import Reconnect
from controller.runtime.store import Change, R, Store

PAGE_SIZE = 500
WATCH_SECONDS = (300, 600)
"""A watch is asked to end after a random time between these, so that watches spread over the servers."""
SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner is not opened again before."""
LINES_PER_SLICE = 64
"""Events taken in without giving other tasks a turn; about 1 ms of work."""

log = structlog.get_logger()


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _Meta


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_list = msgspec.json.Decoder(_List).decode
_decode_event = msgspec.json.Decoder(_WatchEvent).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode
_decode_status = msgspec.json.Decoder(_Status).decode


class Informer(Generic[R]):
    """Keeps ``store`` like the server's objects of one resource.

    ``decode`` makes a row of an object's JSON; ``on_change`` is called for each change, plainly, right after the store has it.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        decode: Callable[[msgspec.Raw], R],
        on_change: Callable[[R | None, R | None], None],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        index: Callable[[R], str] | None = None,
        accept: Callable[[bool], str] = lambda whole_list: JSON,
    ) -> None:
        self.resource = resource
        self.store: Store[R] = Store(index)
        self.synced = asyncio.Event()
        """Set once the store holds everything that was there at the start."""
        self._last_heard: float | None = None
        """Loop time of the last list or line from the server, at first of the start."""
        self._client = client
        self._decode = decode
        self._on_change = on_change
        self._namespace = namespace
        self._selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._accept = accept
        self._resource_version = ""
        self._log = log.bind(resource=resource.plural)

    def silent_seconds(self) -> float:
        """For how long no list and no line has come; counted from the start of ``run``, 0 before."""
        now = asyncio.get_running_loop().time()
        return now - (now if self._last_heard is None else self._last_heard)

    async def run(self) -> None:
        """Until cancelled. Errors of the server and of the network are waited out."""
        self._heard()
        reconnect = Reconnect(asyncio.get_running_loop().time)
        while True:
            at_once = False
            try:
                if not self._resource_version:
                    await self._list()
                await self._watch()
                continue
            except errors.Gone:
                self._log.info("watch too old, listing anew")
                self._resource_version = ""
                at_once = reconnect.is_calm  # but a server that forgets each time is not asked each time
            except errors.NotFound as error:
                self._log.warning(
                    "resource not served",
                    api_version=self.resource.api_version,
                    error=error.message,
                    hint="is its CustomResourceDefinition installed?",
                )
            except errors.ApiError as error:
                self._log.warning("watch refused", code=error.code, error=error.message)
            except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError, LineTooLong) as error:
                self._log.info("watch broken", error=repr(error))
            pause = reconnect.pause_seconds()
            await asyncio.sleep(0 if at_once else pause)

    async def _list(self) -> None:
        rows: list[R] = []
        params = {"limit": str(PAGE_SIZE)}
        while True:
            page = _decode_list(
                await self._client.list(
                    self.resource,
                    self._namespace,
                    params={**self._selectors, **params},
                    accept=self._accept(True),
                )
            )
            rows += [row for raw in page.items or () if (row := self._row(raw)) is not None]
            if not page.metadata.continue_:
                break
            params["continue"] = page.metadata.continue_
            await asyncio.sleep(0)
        self._heard()
        for change in self.store.replace(rows, _number(page.metadata.resource_version)):
            self._on_change(*change)
        self._resource_version = page.metadata.resource_version
        self.synced.set()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        started, lines = loop.time(), 0
        params = {
            **self._selectors,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._resource_version,
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),
        }
        path = self.resource.path(self._namespace)
        async with self._client.stream(
            path, params, resource=self.resource.plural, accept=self._accept(False)
        ) as stream:
            while line := await stream.readline(max_line_length=LONGEST_LINE_BYTES):
                self._heard()
                self._take(_decode_event(line))
                lines += 1
                if lines % LINES_PER_SLICE == 0:
                    await asyncio.sleep(0)
        lasted = loop.time() - started
        if lasted < SHORT_WATCH_SECONDS:
            if not lines:
                raise aiohttp.ClientPayloadError("the watch ended at once without an event")
            await asyncio.sleep(SHORT_WATCH_SECONDS - lasted)

    def _take(self, event: _WatchEvent) -> None:
        if event.type == "BOOKMARK":
            self._reached(_number(_decode_bookmark(event.object).metadata.resource_version))
            return
        if event.type == "ERROR":
            status = _decode_status(event.object)
            raise errors.from_status(status.code, status.reason, status.message)
        row = self._row(event.object)
        if row is None:
            return
        change: Change[R] | None = self.store.remove(row) if event.type == "DELETED" else self.store.put(row)
        self._reached(row.resource_version)
        if change is not None:
            self._on_change(*change)

    def _reached(self, resource_version: int) -> None:
        self.store.advance(resource_version)
        self._resource_version = str(self.store.horizon)

    def _row(self, raw: msgspec.Raw) -> R | None:
        try:
            return self._decode(raw)
        except (msgspec.DecodeError, ValueError) as error:
            self._log.error("object not understood", error=str(error))
            return None

    def _heard(self) -> None:
        self._last_heard = asyncio.get_running_loop().time()


def _number(resource_version: str) -> int:
    if not resource_version.isdecimal():
        raise msgspec.DecodeError(f"resourceVersion {resource_version!r} is no number")
    return int(resource_version)
