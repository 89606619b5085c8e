"""List and watch one resource, keep its store true, and tell of each change.

The rules are those of client-go's reflector. Everything that is there comes as the begin of the watch itself; from a server that
refuses this, it is listed in pages. A broken watch is resumed where it stopped, and only when that place is of no use any more is
everything asked for anew: the server has forgotten it, or has been set back behind it, or fails at it again and again, or was away.

Source: client-go, tools/cache/reflector.go. Differs: after a server was away, a watch is not resumed. The server may have been restored
from a backup that is older than the place and may have passed it since, and then nothing that it says shows this; client-go goes on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Generic

import aiohttp
import msgspec
import structlog
from aiohttp.http_exceptions import LineTooLong

from api.meta import Resource
from controller.kube import errors
from controller.kube.client import JSON, Client
from controller.runtime.backoff import Reconnect
from controller.runtime.listwatch import PER_SLICE, WHOLE, Event, Events, Source, read_bookmark
from controller.runtime.store import Change, R, Store

TRIES = 3
"""How often a watch may fail at one place, by what the server says, before everything is asked for anew."""
AWAY_SECONDS = 5.0
"""A server that has not answered for so long was away. One that is restored from a backup takes longer, a blip of the network or the
restart of one of several API servers is over sooner. Counted from the begin of the first request without an answer."""
SILENT_SECONDS = 60.0
"""An empty store whose server has not sent a list or a line for so long counts as unserved: nothing waits for it any more."""
UNAVAILABLE = 503
_NO_ANSWER = frozenset({502, 503, 504})
"""The answers of whoever stands in front of a server that gives none."""

log = structlog.get_logger()


class Fill(StrEnum):
    """How everything that is there comes: as the begin of a watch, or in the pages of a list."""

    WATCH = "watch"
    LIST = "list"


class Ending(StrEnum):
    """How a watch, or what should have become one, came to its end."""

    DONE = "done"
    LOST = "lost"
    """Its place is of no use any more."""
    REFUSED = "refused"
    BROKEN = "broken"


class _Lost(Exception):
    """There is no use in resuming from where the watch stopped."""


class _NotWhole(Exception):
    """The server does not say when it has told everything, so perhaps it has not."""


_UNFIT = (
    errors.Invalid,
    errors.Forbidden,
    errors.NotFound,
    errors.ServerError,
    msgspec.DecodeError,
    LineTooLong,
    _NotWhole,
)
"""How servers fail that cannot begin a watch with everything that is there."""


class Informer(Generic[R]):
    """Keeps ``store`` like the server's objects of one resource.

    ``decode`` makes a row of an object's JSON; ``on_change`` is called for each change, plainly, after the store has it.
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
        is_gone: Callable[[R, R], bool] = lambda known, reported: True,
    ) -> None:
        """``is_gone`` says of a row and of what the watch reports as deleted whether that is so beyond doubt.

        To a watch with a selector the server reports an object as deleted whose labels do not match any more. In doubt the row stays
        until somebody has read the object by its name; ``doubted`` is set for whoever does that.
        """
        self.resource = resource
        self.store: Store[R] = Store(index)
        self.synced = asyncio.Event()
        """Set once the store holds everything that was there when ``run`` began, or later; cleared while the resource is unserved."""
        self.unserved = asyncio.Event()
        """Set while the server has no such resource, or does not let it be read: 404, or without a filled store any lasting refusal."""
        self.settled = asyncio.Event()
        """Set while either of them is."""
        self.fills = Counter[str]()
        """How often everything that is there was taken in, by ``Fill``."""
        self.endings = Counter[str]()
        """How often watches have come to an end, by ``Ending``."""
        self.doubted = asyncio.Event()
        """Set when the store has got another row that is to be read by its name; see ``Store.unselected``."""
        self.repaired = 0
        """How many rows a relist has found to differ from the server."""
        self._last_heard: float | None = None
        """Loop time of the last list or line from the server, at first of the start."""
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self.source = Source(client, resource, namespace=namespace, selectors=selectors, accept=accept)
        self.decode = decode
        self._is_gone = is_gone
        self.on_change = on_change
        self._streams = True
        """Whether the server may be asked to begin a watch with everything that is there."""
        self._has_position = False
        """Whether a watch may go on from the store's horizon."""
        self._vain = 0
        """How often the watch has failed since it last came on."""
        self._unanswered_since: float | None = None
        """Loop time when the first request began that the server has not answered, of those since it last did."""
        self._is_answered = False
        """Whether the server has answered the request that is under way, or was last."""
        self._attempt: asyncio.Timeout | None = None
        """What ends the watch that is under way."""
        self._is_reporting = False
        """Whether changes that the store has are still to be reported: cut off now, they never would be."""
        self._log = log.bind(resource=resource.plural)

    @property
    def is_following(self) -> bool:
        """Whether the store is filled and a watch keeps it up to date, or goes on from where it broke."""
        return self._has_position and self._unanswered_since is None

    def silent_seconds(self) -> float:
        """For how long no list and no line has come; counted from the start of ``run``, 0 before."""
        now = asyncio.get_running_loop().time()
        return now - (now if self._last_heard is None else self._last_heard)

    def discard_position(self) -> None:
        """Have the next ``run`` ask for everything anew; ``synced`` tells when it is there. Not while one is under way."""
        self._unsync()
        if not self.unserved.is_set():
            self.settled.clear()

    async def probe(self) -> bool:
        """Whether the server lists this resource; ``unserved`` is set or cleared accordingly. Not while ``run`` is under way."""
        try:
            await self.source.probe()
        except errors.ApiError as error:
            self._refused(error)
            return False
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
            self._log.info("server not reached", error=repr(error))
            return False
        self._served()
        self.settled.clear()
        return True

    def ask_anew(self, reason: str) -> None:
        """Ask for everything anew, as soon as all changes are reported; the store holds what it held until that is there."""
        self._log.info("asking for everything", reason=reason)
        self._has_position = False
        if self._attempt is not None and self._attempt.when() is None and not self._is_reporting:
            self._attempt.reschedule(0)

    async def run(self) -> None:
        """Until cancelled. Errors of the server and of the network are waited out."""
        self._heard()
        time = asyncio.get_running_loop().time
        reconnect = Reconnect(time)
        while True:
            shortest_pause, began = 0.0, time()
            self._is_answered = False
            if self._unanswered_since is not None and began - self._unanswered_since >= AWAY_SECONDS:
                self._has_position = False
            attempt = self._attempt = asyncio.timeout(None)
            try:
                async with attempt:
                    if not self._has_position:
                        await self._fill()
                    await self._watch({"resourceVersion": str(self.store.last_synced_resource_version)})
                continue
            except (_Lost, errors.Gone) as error:
                self._log.info("place of the watch lost, asking for everything", error=str(error))
                self._has_position = False
                ending = Ending.LOST
            except errors.ApiError as error:
                if error.code not in _NO_ANSWER:
                    self._answered()
                self._refused(error)
                shortest_pause = min(error.retry_after_seconds, Reconnect.LONGEST_SECONDS)
                ending = Ending.REFUSED
            except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError, LineTooLong) as error:
                if not attempt.expired():
                    self._log.info("watch broken", error=repr(error))
                self._vain += isinstance(error, (msgspec.DecodeError, LineTooLong))
                ending = Ending.LOST if attempt.expired() else Ending.BROKEN
            finally:
                self._attempt = None
            self.endings[ending] += 1
            if not self._is_answered and self._unanswered_since is None:
                self._unanswered_since = began
            self._has_position = self._has_position and self._vain < TRIES
            if not self.synced.is_set() and self.silent_seconds() >= SILENT_SECONDS:
                self._set_unserved()
            # A place that is lost now and then is no failure, but a server that forgets each time is not asked each time.
            at_once = ending is Ending.LOST and reconnect.is_calm
            pause = max(reconnect.record_failure(), shortest_pause)
            await asyncio.sleep(0 if at_once else pause)

    async def _fill(self) -> None:
        """Take in everything that is there, and watch on if that came as a watch."""
        if not self._streams:
            await self._list()
            return
        try:
            await self._watch(WHOLE)
        except _UNFIT as error:
            if self._has_position:
                raise
            await self._list()
            # Only now: a server that refused both may be fit for the better way once it refuses neither.
            self._streams = False
            self._log.info("server does not stream what is there, it is listed", error=str(error))

    async def _list(self) -> None:
        rows: list[R] = []
        rest, resource_version = await self._page("", rows)
        while rest:
            rest, resource_version = await self._page(rest, rows)
        self.fills[Fill.LIST] += 1
        await self._take_all(rows, resource_version)

    async def _page(self, rest: str, rows: list[R]) -> tuple[str, int]:
        """Add one page to ``rows``; what to ask the next by, if any, and the list's version.

        The answer's bytes are free when this returns.
        """
        page = await self.source.page(rest)
        self._answered()
        self._heard()
        for count, raw in enumerate(page.items, 1):
            if (row := self._row(raw)) is not None:
                rows.append(row)
            if count % PER_SLICE == 0:
                await asyncio.sleep(0)
        return page.rest, page.resource_version

    async def _watch(self, begin: Mapping[str, str]) -> None:
        """Follow one watch to its end."""
        async with self.source.watch(begin, self._heard) as events:
            self._answered()
            try:
                if not self._has_position:
                    await self._take_begin(events)
                while (event := await events.next()) is not None:
                    self._take(event)
            except TimeoutError as error:
                if not self._has_position:
                    raise _NotWhole("silence before the last of it") from error
                raise _Lost("silence, without a single bookmark") from error
        self.endings[Ending.DONE] += 1

    async def _take_begin(self, events: Events) -> None:
        """Take in what a watch begins with: everything that is there, and then a bookmark that says so.

        Until then no resourceVersion is a place to go on from: what is there comes in any order.
        """
        rows: dict[tuple[str, str], R] = {}
        while (event := await events.next()) is not None:
            if event.type == "BOOKMARK":
                bookmark = read_bookmark(event)
                if not bookmark.ends_whole:
                    break
                self.fills[Fill.WATCH] += 1
                return await self._take_all(rows.values(), bookmark.resource_version)
            row = self._row(event.object)
            if row is None:
                continue
            if event.type == "DELETED":
                rows.pop((row.namespace, row.name), None)
            else:
                rows[row.namespace, row.name] = row
        raise _NotWhole("no word of which was the last of it")

    async def _take_all(self, rows: Iterable[R], resource_version: int) -> None:
        if resource_version < self.store.last_synced_resource_version:
            self._log.warning(
                "the server has been set back",
                known=self.store.last_synced_resource_version,
                now=resource_version,
            )
        # In one go, so that no reader meets half of it: 10,000 rows take about 5 ms. To tell of them takes longer, and may.
        changes = self.store.replace(rows, resource_version)
        self._has_position, self._vain = True, 0
        self._is_reporting = True
        try:
            for count, change in enumerate(changes, 1):
                self.on_change(*change)
                if count % PER_SLICE == 0:
                    await asyncio.sleep(0)
        finally:
            self._is_reporting = False
        self._served()
        self.synced.set()
        self.settled.set()
        if not self._has_position:
            raise _Lost("everything was asked for while it was reported")

    def _take(self, event: Event) -> None:
        if event.type == "BOOKMARK":
            reached = read_bookmark(event).resource_version
            if reached < self.store.last_synced_resource_version:
                raise _Lost("the server has been set back")
            self._reached(reached)
            return
        row = self._row(event.object)
        if row is None:
            return
        change: Change[R] | None = self._remove(row) if event.type == "DELETED" else self.store.put(row)
        self._reached(row.resource_version)
        if change is not None:
            self.on_change(*change)

    def _remove(self, reported: R) -> Change[R] | None:
        known = self.store.get(reported.namespace, reported.name)
        if known is None or known.uid != reported.uid or self._is_gone(known, reported):
            return self.store.remove(reported)
        self.store.unselected.add((known.namespace, known.name))
        self.doubted.set()
        return None

    def _reached(self, resource_version: int) -> None:
        self.store.advance(resource_version)
        self._vain = 0

    def _row(self, raw: msgspec.Raw) -> R | None:
        try:
            return self.decode(raw)
        except (msgspec.DecodeError, ValueError) as error:
            self._log.error("object not understood", error=str(error))
            return None

    def _refused(self, error: errors.ApiError) -> None:
        """Log a refusal, a missing resource only once, and see whether the resource is unserved by it."""
        self._vain += isinstance(error, errors.ServerError) and error.code != UNAVAILABLE
        if isinstance(error, errors.NotFound):
            if not self.unserved.is_set():
                self._log.warning(
                    "resource not served",
                    api_version=self.resource.api_version,
                    error=error.message,
                    hint="is its CustomResourceDefinition installed?",
                )
            # Its objects are gone with it: no row is to be worked on, and no place of before is one to go on from.
            self._unsync()
            self._set_unserved()
            return
        self._log.warning("watch refused", code=error.code, error=error.message)
        if not self.synced.is_set() and (isinstance(error, errors.Forbidden) or self._vain >= TRIES):
            self._set_unserved()

    def _set_unserved(self) -> None:
        self.unserved.set()
        self.settled.set()

    def _served(self) -> None:
        if self.unserved.is_set():
            self._log.info("resource served")
            self.unserved.clear()

    def _unsync(self) -> None:
        self._has_position = False
        self.synced.clear()

    def _answered(self) -> None:
        self._is_answered, self._unanswered_since = True, None

    def _heard(self) -> None:
        self._last_heard = asyncio.get_running_loop().time()
