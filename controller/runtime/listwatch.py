"""How lists and watches are asked for and read. What is done with what they say is the informer's business."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from api.meta import Resource
from controller.kube import errors
from controller.kube.client import LONGEST_LINE_BYTES, METADATA_ONLY_LIST, Client
from controller.kube.concurrency import PriorityLevel

PAGE_SIZE = 500
WATCH_SECONDS = (300, 600)
"""A watch is asked to end after a random time between these, so that watches spread over the servers."""
SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner is not opened again before."""
WHOLE = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
"""Asks a watch to begin with everything that is there (KEP-3157). Without a version that is as of now, not of some cache."""
PER_SLICE = 64
"""Objects taken in without giving other tasks a turn; about 1 ms of work."""

_END = "k8s.io/initial-events-end"


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    annotations: dict[str, str] | None = None


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _Meta


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


class Page(msgspec.Struct):
    """A part of a list; ``rest`` asks for the next one, empty after the last."""

    items: list[msgspec.Raw]
    resource_version: int
    rest: str


class Event(msgspec.Struct):
    """One line of a watch: ADDED, MODIFIED or DELETED, or BOOKMARK."""

    type: str
    object: msgspec.Raw


class Bookmark(msgspec.Struct):
    """How far a watch has come. ``ends_whole``: everything that was there at its begin has now been told."""

    resource_version: int
    ends_whole: bool


_decode_list = msgspec.json.Decoder(_List).decode
_decode_event = msgspec.json.Decoder(Event).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode
_decode_status = msgspec.json.Decoder(_Status).decode


def read_bookmark(event: Event) -> Bookmark:
    """
    Raises:
        msgspec.DecodeError: this is no bookmark.
    """
    meta = _decode_bookmark(event.object).metadata
    return Bookmark(_number(meta.resource_version), (meta.annotations or {}).get(_END) == "true")


class Events:
    """The events of one watch. ``heard`` is called for each line."""

    def __init__(self, stream: aiohttp.StreamReader, heard: Callable[[], None]) -> None:
        self.count = 0
        self._stream = stream
        self._heard = heard

    async def next(self) -> Event | None:
        """The next one; None when the watch has ended well.

        Raises:
            ApiError: the server ends the watch and says why.
            msgspec.DecodeError, LineTooLong: this is no watch.
            aiohttp.ClientError, TimeoutError: it is broken, or has been silent for too long.
        """
        # A buffered line is read without waiting, so a long stream would keep all others from their turn.
        if self.count % PER_SLICE == PER_SLICE - 1:
            await asyncio.sleep(0)
        line = await self._stream.readline(max_line_length=LONGEST_LINE_BYTES)
        if not line:
            return None
        self._heard()
        self.count += 1
        event = _decode_event(line)
        if event.type == "ERROR":
            status = _decode_status(event.object)
            raise errors.from_status(status.code, status.reason, status.message)
        return event


class Source:
    """One resource of the server, as far as it is wanted."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        namespace: str,
        selectors: Mapping[str, str],
        accept: Callable[[bool], str],
    ) -> None:
        """``accept`` says in which form: of a list (True) or of a watch."""
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._selectors = selectors
        self._accept = accept

    async def page(self, rest: str = "", *, metadata_only: bool = False) -> Page:
        """The first part of a list, or the one that ``rest`` of another asks for. For metadata only, all other calls go first.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: there is none.
            msgspec.DecodeError: this is no list.
        """
        # Without a resourceVersion the list is consistent, and the limit counts on all servers. A list from "any version" may be older
        # than what is known, and older servers ignore the limit with it.
        params = {**self._selectors, "limit": str(PAGE_SIZE), "continue": rest}
        accept = METADATA_ONLY_LIST if metadata_only else self._accept(True)
        level = PriorityLevel.EVENT if metadata_only else PriorityLevel.FIRST
        answer = await self._client.list(
            self._resource, self._namespace, params=params, accept=accept, level=level
        )
        page = _decode_list(answer)
        return Page(page.items or [], _number(page.metadata.resource_version), page.metadata.continue_)

    async def probe(self) -> None:
        """Ask for a single object, selected or not, to see whether the server lists the resource at all.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: it does not.
            msgspec.DecodeError: it answers with something else than a list.
        """
        params = {"limit": "1"}
        answer = await self._client.list(
            self._resource, self._namespace, params=params, accept=METADATA_ONLY_LIST
        )
        _decode_list(answer)

    async def get(self, namespace: str, name: str) -> bytes:
        """One object, in the form of a watch, whether the selectors match it or not. All other calls go first.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: there is none.
        """
        accept = self._accept(False)
        return await self._client.get(
            self._resource, namespace, name, accept=accept, level=PriorityLevel.EVENT
        )

    @asynccontextmanager
    async def watch(self, begin: Mapping[str, str], heard: Callable[[], None]) -> AsyncGenerator[Events]:
        """One watch, to be read to its end; ``begin`` says from where, ``heard`` is called for each line.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: it did not come about, or ended at once without a word.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        params = {
            **self._selectors,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),
            **begin,
        }
        path, accept = self._resource.path(self._namespace), self._accept(False)
        async with self._client.stream(path, params, resource=self._resource.plural, accept=accept) as stream:
            events = Events(stream, heard)
            yield events
        lasted = loop.time() - started
        if lasted < SHORT_WATCH_SECONDS:
            if not events.count:
                raise aiohttp.ClientPayloadError("the watch ended at once without an event")
            await asyncio.sleep(SHORT_WATCH_SECONDS - lasted)


def _number(resource_version: str) -> int:
    if not resource_version.isdecimal():
        raise msgspec.DecodeError(f"resourceVersion {resource_version!r} is no number")
    return int(resource_version)
