"""Send list and watch requests for one resource and parse the answers. The informer decides what to do with them."""

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
"""The timeout of a watch is a random number between these seconds, so that watches spread over the API servers."""
BOOKMARK_WATCH_SECONDS = 3
"""The timeout of a watch that is to send a bookmark soon: API servers send one 2 s before the timeout, rounded to seconds."""
SHORT_WATCH_SECONDS = 1.0
"""After a shorter watch, the next one waits for the rest of this time."""
WHOLE = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
"""Parameters of a streaming list (KEP-3157). Without a resourceVersion it is consistent, not served from an old cache."""
PER_SLICE = 64
"""Objects processed before other tasks get a turn; about 1 ms of work."""

ANY_NAMESPACE, ANY_NAME = "default", "rallypoint"
"""The list that asks for the present resourceVersion needs some namespace and some name; neither has to exist."""

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
    """One page of a list. ``rest`` is the continue token, empty after the last page."""

    items: list[msgspec.Raw]
    resource_version: int
    rest: str


class Event(msgspec.Struct):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: msgspec.Raw


class ObjectMeta(msgspec.Struct, rename="camel"):
    """The metadata of a listed object."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Item(msgspec.Struct):
    metadata: ObjectMeta


class Bookmark(msgspec.Struct):
    """The position of a watch. ``ends_whole``: the watch has now sent all objects of the initial list."""

    resource_version: int
    ends_whole: bool


_decode_list = msgspec.json.Decoder(_List).decode
_decode_item = msgspec.json.Decoder(_Item).decode
_decode_event = msgspec.json.Decoder(Event).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode
_decode_status = msgspec.json.Decoder(_Status).decode


def list_items(answer: bytes) -> list[msgspec.Raw]:
    """Return the objects of a list.

    Raises:
        msgspec.DecodeError: the answer is not a list.
    """
    return _decode_list(answer).items or []


def read_metadata(item: msgspec.Raw) -> ObjectMeta:
    """Return the metadata of an object of a list.

    Raises:
        msgspec.DecodeError: this is not an object.
    """
    return _decode_item(item).metadata


def read_bookmark(event: Event) -> Bookmark:
    """Parse a bookmark.

    Raises:
        msgspec.DecodeError: this is not a bookmark.
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
        """Return the next event; None when the watch ended normally.

        Raises:
            ApiError: the server ended the watch with this error.
            msgspec.DecodeError, LineTooLong: the line is not a watch event.
            aiohttp.ClientError, TimeoutError: the connection broke or was silent for too long.
        """
        # Reading a buffered line does not yield, so a long stream would block all other tasks.
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
    """Lists and watches one resource with the given selectors."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        namespace: str,
        selectors: Mapping[str, str],
        accept: Callable[[bool], str],
    ) -> None:
        """``accept`` returns the media type to request, for a list (True) or for a watch."""
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._selectors = selectors
        self._accept = accept

    async def page(self, rest: str = "", *, metadata_only: bool = False) -> Page:
        """Request the first page of a list, or the page of the continue token ``rest``. Metadata-only requests have the lowest priority.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: the request failed.
            msgspec.DecodeError: the answer is not a list.
        """
        # Without a resourceVersion the list is consistent, and all servers apply the limit. A list with resourceVersion=0 may be older
        # than the store, and older servers ignore the limit with it.
        params = {**self._selectors, "limit": str(PAGE_SIZE), "continue": rest}
        accept = METADATA_ONLY_LIST if metadata_only else self._accept(True)
        level = PriorityLevel.EVENT if metadata_only else PriorityLevel.FIRST
        answer = await self._client.list(
            self._resource, self._namespace, params=params, accept=accept, level=level
        )
        page = _decode_list(answer)
        return Page(page.items or [], _number(page.metadata.resource_version), page.metadata.continue_)

    async def probe(self) -> None:
        """List a single object, without selectors, to find out whether the server serves the resource.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: it does not.
            msgspec.DecodeError: the answer is not a list.
        """
        params = {"limit": "1"}
        answer = await self._client.list(
            self._resource, self._namespace, params=params, accept=METADATA_ONLY_LIST
        )
        _decode_list(answer)

    async def current_version(self) -> int:
        """Return a resourceVersion that is at least that of each change accepted before this call, and no higher than the present one.

        The list selects at most a single object, by name: the server looks up its key. Servers that answer it from their watch cache
        (Kubernetes 1.31 and newer) first bring the cache up to date, so bookmarks reach that version, too.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: the request failed.
            msgspec.DecodeError: the answer is not a list.
        """
        answer = await self._client.list(
            self._resource,
            self._namespace or ANY_NAMESPACE,
            field_selector=f"metadata.name={ANY_NAME}",
            accept=METADATA_ONLY_LIST,
        )
        return _number(_decode_list(answer).metadata.resource_version)

    async def get(self, namespace: str, name: str) -> bytes:
        """Get one object in the media type of a watch, whether or not the selectors match it. The request has the lowest priority.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: the request failed.
        """
        accept = self._accept(False)
        return await self._client.get(
            self._resource, namespace, name, accept=accept, level=PriorityLevel.EVENT
        )

    @asynccontextmanager
    async def watch(self, begin: Mapping[str, str], heard: Callable[[], None]) -> AsyncGenerator[Events]:
        """Open one watch with the parameters ``begin``, to be read to its end; ``heard`` is called for each line.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: the request failed, or the watch ended immediately without an event.
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
                raise aiohttp.ClientPayloadError("the watch closed immediately without an event")
            await asyncio.sleep(SHORT_WATCH_SECONDS - lasted)


def _number(resource_version: str) -> int:
    if not resource_version.isdecimal():
        raise msgspec.DecodeError(f"resourceVersion {resource_version!r} is not a number")
    return int(resource_version)
