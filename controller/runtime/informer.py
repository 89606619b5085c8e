"""List and watch one resource, keep a store up to date, and report each change.

The rules are those of client-go's reflector. The informer requests a streaming list (a watch that begins with all objects). If the server
refuses that, the informer lists the objects in pages. It resumes a broken watch at its last resourceVersion. It relists only if that
position is unusable: the server no longer has it, the server's resourceVersion went back, the watch fails there repeatedly, or the server
was unreachable for a while.

Source: client-go, tools/cache/reflector.go. Differs: the informer relists after the server was unreachable. The server may have been
restored from a backup that is older than the position and may have passed the position since, which no answer shows; client-go resumes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
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
from controller.runtime.listwatch import (
    BOOKMARK_WATCH_SECONDS,
    PER_SLICE,
    WHOLE,
    Event,
    Events,
    Source,
    read_bookmark,
    read_metadata,
)
from controller.runtime.store import Change, R, Store

TRIES = 3
"""How often a watch may fail at one position, by the server's answers, before the informer relists."""
AWAY_SECONDS = 5.0
"""The informer relists after a server did not answer for this long. The restore of a backup takes longer; a network interruption or the
restart of one of several API servers is shorter. The time counts from the start of the first request without an answer.
"""
SILENT_SECONDS = 60.0
"""An empty store whose server has not sent a list or a line for this long counts as unserved, so that nothing waits for it."""
EVENTS_SECONDS = 1.0
"""How long a new leader waits for the events of changes that its predecessor knew."""
BOOKMARK_SECONDS = 4.0
"""How long it waits for a bookmark of a watch that ends after ``BOOKMARK_WATCH_SECONDS``."""
RELISTED_ROWS = 2000
"""A store of at most so many rows is listed faster than a bookmark arrives: in 0.2 s."""
UNAVAILABLE = 503
_NO_ANSWER = frozenset({502, 503, 504})
"""Status codes of a proxy whose API server does not answer."""

log = structlog.get_logger()

_SERVER = ""
"""The key of a server that cannot be reached: one failure of all informers of a client."""


class Fill(StrEnum):
    """How the informer gets all objects: by a streaming list, or by a list in pages."""

    WATCH = "watch"
    LIST = "list"


class Ending(StrEnum):
    """Why a watch, or the attempt to start one, ended."""

    DONE = "done"
    LOST = "lost"
    """The watch position is unusable."""
    REFUSED = "refused"
    BROKEN = "broken"


class _Lost(Exception):
    """The watch cannot be resumed at its last position."""


class _NotWhole(Exception):
    """The server did not mark the end of a streaming list, so the list may be incomplete."""


_UNFIT = (
    errors.Invalid,
    errors.Forbidden,
    errors.NotFound,
    errors.ServerError,
    msgspec.DecodeError,
    LineTooLong,
    _NotWhole,
)
"""Errors of servers that do not support a streaming list."""


class Informer(Generic[R]):
    """Keeps ``store`` equal to the server's objects of one resource.

    ``decode`` makes a row from an object's JSON. The informer calls ``on_change`` for each change, after the store contains it.
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
        echoed: Container[str] = ("ADDED",),
    ) -> None:
        """``echoed`` are the types of events that mostly report what this process has written and stored itself.

        ``is_gone`` gets a known row and the object that the watch reports as deleted, and returns whether the object is certainly deleted.

        With a selector, the server also reports an object as deleted if its labels no longer match. If ``is_gone`` returns False, the row
        stays until somebody reads the object by name; ``has_unverified_rows`` is set for that reader.
        """
        self.resource = resource
        self.store: Store[R] = Store(index)
        self.synced = asyncio.Event()
        """Set once the store holds all objects that existed when ``run`` started, or later ones. Cleared while the resource is unserved."""
        self.unserved = asyncio.Event()
        """Set while the server does not serve the resource (404), or an empty store gets another lasting refusal."""
        self.settled = asyncio.Event()
        """Set while ``synced`` or ``unserved`` is set."""
        self.fills = Counter[str]()
        """How often the informer received all objects, by ``Fill``."""
        self.endings = Counter[str]()
        """How often a watch ended, by ``Ending``."""
        self.has_unverified_rows = asyncio.Event()
        """Set when the store gets another row that must be read by name; see ``Store.unselected``."""
        self.repaired = 0
        """How many rows relists found to differ from the server."""
        self._last_heard: float | None = None
        """Loop time of the last list or line from the server; at first the time of the start."""
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self.source = Source(client, resource, namespace=namespace, selectors=selectors, accept=accept)
        self.decode = decode
        self._is_gone = is_gone
        self._echoed = echoed
        self.on_change = on_change
        self._streams = True
        """Whether the informer requests a streaming list."""
        self._has_position = False
        """Whether a watch can resume at the store's ``last_synced_resource_version``."""
        self._failed_watches = 0
        """How often the watch has failed since its last success."""
        self._unanswered_since: float | None = None
        """Loop time when the first unanswered request since the last answer started."""
        self._is_answered = False
        """Whether the server answered the current or last request."""
        self._attempt: asyncio.Timeout | None = None
        """The timeout that ends the current watch."""
        self._is_reporting = False
        """Whether the informer is reporting changes that the store already contains. Interrupted now, it would never report the rest."""
        self._is_resuming = False
        """Whether the current watch is to end, and the next one to send a bookmark soon."""
        self._advanced = asyncio.Event()
        """Set when the store has changed or the watch has reached a later version."""
        self._log = log.bind(resource=resource.plural)
        self._failures = client.watch_failures

    @property
    def is_following(self) -> bool:
        """Whether the store is filled and a watch keeps it up to date or is being resumed."""
        return self._has_position and self._unanswered_since is None

    def silent_seconds(self) -> float:
        """Return the seconds since the last list or line from the server, or since ``run`` started; 0 before that."""
        now = asyncio.get_running_loop().time()
        return now - (now if self._last_heard is None else self._last_heard)

    def discard_position(self) -> None:
        """Make the next ``run`` relist; ``synced`` is set when it is done. Must not be called while ``run`` is active."""
        self._unsync()
        if not self.unserved.is_set():
            self.settled.clear()

    async def probe(self) -> bool:
        """List the resource once, set or clear ``unserved``, and return whether the server serves it. Must not be called while ``run`` is active."""
        try:
            await self.source.probe()
        except errors.ApiError as error:
            self._refused(error)
            return False
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
            self._log.info("API server not reachable", error=errors.describe(error))
            return False
        self._served()
        self.settled.clear()
        return True

    def relist(self, reason: str) -> None:
        """Relist as soon as all changes are reported. The store keeps its rows until then."""
        self._log.info("relisting", reason=reason)
        self._has_position = False
        self._interrupt()

    def _interrupt(self) -> None:
        """End the current watch, unless changes are being reported."""
        if self._attempt is not None and self._attempt.when() is None and not self._is_reporting:
            self._attempt.reschedule(0)

    async def catch_up(self, version: int | None, *, listed_rows: int = RELISTED_ROWS) -> bool:
        """Return whether the store now contains every change that the server accepted before this call. If not, list again.

        ``version`` is the ``latest_change`` of another process's store of the same objects, after which nobody else wrote; the event of that
        change is then proof. With None, or if the event does not come, the informer asks the server for the present resourceVersion and
        waits until the watch has reached it by an event or by a bookmark, unless the store has at most ``listed_rows`` rows. ``run`` must be
        active.
        """
        if not (self.synced.is_set() and self.is_following):
            return False
        if version is not None and await self._reaches(version, EVENTS_SECONDS):
            return True
        if len(self.store) <= listed_rows:
            return False
        known = self.store.last_synced_resource_version
        try:
            current = await self.source.current_version()
        except (errors.ApiError, aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
            self._log.info("resourceVersion not read", error=errors.describe(error))
            return False
        if current < known:
            return False  # the server was restored from a backup
        self._is_resuming = True
        self._interrupt()
        return await self._reaches(current, BOOKMARK_SECONDS)

    async def _reaches(self, version: int, seconds: float) -> bool:
        """Return whether the store contains all changes up to this version within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                while self.store.last_synced_resource_version < version or self._is_reporting:
                    self._advanced.clear()
                    await self._advanced.wait()
        except TimeoutError:
            return False
        return self.is_following

    async def run(self) -> None:
        """List and watch until canceled. Retry after errors of the server and of the network."""
        self._heard()
        time = asyncio.get_running_loop().time
        reconnect = Reconnect(time)
        while True:
            shortest_pause, began = 0.0, time()
            failure: Exception | None = None
            self._is_answered = False
            if self._unanswered_since is not None and began - self._unanswered_since >= AWAY_SECONDS:
                self._has_position = False
            attempt = self._attempt = asyncio.timeout(None)
            try:
                async with attempt:
                    if not self._has_position:
                        await self._fill()
                    await self._watch(self._resume())
                continue
            except (_Lost, errors.Gone) as error:
                self._log.info("watch position lost, relisting", error=str(error))
                self._has_position = False
                ending = Ending.LOST
            except errors.ApiError as error:
                if error.code not in _NO_ANSWER:
                    self._answered()
                self._refused(error)
                shortest_pause = min(error.retry_after_seconds, Reconnect.LONGEST_SECONDS)
                ending = Ending.REFUSED
            except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError, LineTooLong) as error:
                if self._is_resuming and attempt.expired():
                    continue
                failure = None if attempt.expired() else error
                self._failed_watches += isinstance(error, (msgspec.DecodeError, LineTooLong))
                ending = Ending.LOST if attempt.expired() else Ending.BROKEN
            finally:
                self._attempt = None
            self.endings[ending] += 1
            if not self._is_answered and self._unanswered_since is None:
                self._unanswered_since = began
            self._has_position = self._has_position and self._failed_watches < TRIES
            if not self.synced.is_set() and self.silent_seconds() >= SILENT_SECONDS:
                self._set_unserved()
            # Relist at once if a position is lost occasionally, but wait if the server loses it repeatedly.
            at_once = ending is Ending.LOST and reconnect.is_calm
            pause = max(reconnect.record_failure(), shortest_pause)
            if failure is not None:
                self._log_failure(failure, pause)
            await asyncio.sleep(0 if at_once else pause)

    def _log_failure(self, error: Exception, pause_seconds: float) -> None:
        """Log that a watch failed, once for each step of its back-off; that the server cannot be reached, once for all watches."""
        text = errors.describe(error)
        key = _SERVER if isinstance(error, aiohttp.ClientConnectorError) else self.resource.plural
        repeats = self._failures.record_fields(key, text, pause_seconds)
        if repeats is not None:
            self._log.info("watch failed", error=text, pause_seconds=pause_seconds, **repeats)

    async def _fill(self) -> None:
        """Get all objects; if they came as a streaming list, follow that watch."""
        if not self._streams:
            await self._list()
            return
        try:
            await self._watch(WHOLE)
        except _UNFIT as error:
            if self._has_position:
                raise
            await self._list()
            if isinstance(error, errors.ApiError) and error.code in _NO_ANSWER:
                return  # The next streaming list may be answered.
            # Only after a successful list: a server that refused both requests may accept a streaming list later.
            self._streams = False
            self._log.info("server refuses a streaming list, falling back to list", error=str(error))

    def _resume(self) -> dict[str, str]:
        """Return the parameters of a watch that continues at the last position."""
        begin = {"resourceVersion": str(self.store.last_synced_resource_version)}
        if self._is_resuming:
            begin["timeoutSeconds"] = str(BOOKMARK_WATCH_SECONDS)
            self._is_resuming = False
        return begin

    async def _list(self) -> None:
        rows: list[R] = []
        rest, resource_version = await self._page("", rows)
        while rest:
            rest, resource_version = await self._page(rest, rows)
        self.fills[Fill.LIST] += 1
        await self._take_all(rows, resource_version)

    async def _page(self, rest: str, rows: list[R]) -> tuple[str, int]:
        """Add one page to ``rows``. Return the continue token, if any, and the resourceVersion of the list.

        The bytes of the answer are free when this returns.
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
        """Follow one watch until it ends."""
        async with self.source.watch(begin, self._heard) as events:
            self._answered()
            try:
                if not self._has_position:
                    await self._take_begin(events)
                while (event := await events.next()) is not None:
                    self._take(event)
            except TimeoutError as error:
                if not self._has_position:
                    raise _NotWhole(
                        "the watch timed out before the bookmark that ends the initial list"
                    ) from error
                raise _Lost("the watch timed out without a bookmark") from error
        self.endings[Ending.DONE] += 1

    async def _take_begin(self, events: Events) -> None:
        """Take all objects of a streaming list, up to the bookmark that ends it.

        Before that bookmark no resourceVersion is a valid position, because the objects come in any order.
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
        raise _NotWhole("the watch ended before the bookmark that ends the initial list")

    async def _take_all(self, rows: Iterable[R], resource_version: int) -> None:
        if resource_version < self.store.last_synced_resource_version:
            self._log.warning(
                "resourceVersion of the API server went back",
                known=self.store.last_synced_resource_version,
                now=resource_version,
            )
        # The store changes in one step, so no reader sees half of it: 10,000 rows take about 5 ms. Reporting takes longer and may yield.
        changes = self.store.replace(rows, resource_version)
        self._has_position, self._failed_watches = True, 0
        self._is_reporting = True
        try:
            for count, change in enumerate(changes, 1):
                self.on_change(*change)
                if count % PER_SLICE == 0:
                    await asyncio.sleep(0)
        finally:
            self._is_reporting = False
            self._advanced.set()
        self._served()
        self.synced.set()
        self.settled.set()
        if not self._has_position:
            raise _Lost("a relist was requested while changes were reported")

    def _take(self, event: Event) -> None:
        if event.type == "BOOKMARK":
            reached = read_bookmark(event).resource_version
            if reached < self.store.last_synced_resource_version:
                raise _Lost("resourceVersion of the API server went back")
            self._reached(reached)
            return
        if event.type in self._echoed and self._skips(event.object):
            return
        row = self._row(event.object)
        if row is None:
            return
        change: Change[R] | None = self._remove(row) if event.type == "DELETED" else self.store.put(row)
        self._reached(row.resource_version)
        if change is not None:
            self.on_change(*change)

    def _skips(self, raw: msgspec.Raw) -> bool:
        """Pass over an object that the store has already, from the answer to a write; return False if it does not have it.

        That takes a tenth of decoding the object.
        """
        try:
            meta = read_metadata(raw)
            version = int(meta.resource_version)
        except (msgspec.DecodeError, ValueError):
            return False
        if not self.store.confirm(meta.namespace, meta.name, meta.uid, version):
            return False
        self._reached(version)
        return True

    def _remove(self, reported: R) -> Change[R] | None:
        known = self.store.get(reported.namespace, reported.name)
        if known is None or known.uid != reported.uid or self._is_gone(known, reported):
            return self.store.remove(reported)
        self.store.unselected.add((known.namespace, known.name))
        self.has_unverified_rows.set()
        return None

    def _reached(self, resource_version: int) -> None:
        self.store.advance(resource_version)
        self._advanced.set()
        self._failed_watches = 0

    def _row(self, raw: msgspec.Raw) -> R | None:
        try:
            return self.decode(raw)
        except (msgspec.DecodeError, ValueError) as error:
            self._log.error("object cannot be decoded", error=str(error))
            return None

    def _refused(self, error: errors.ApiError) -> None:
        """Log a refusal (a missing resource only once), and set ``unserved`` if the refusal means that."""
        self._failed_watches += isinstance(error, errors.ServerError) and error.code != UNAVAILABLE
        if isinstance(error, errors.NotFound):
            if not self.unserved.is_set():
                self._log.warning(
                    "resource not served",
                    api_version=self.resource.api_version,
                    error=error.message,
                    hint="is its CustomResourceDefinition installed?",
                )
            # The objects no longer exist: nothing may use the rows, and no earlier position is valid.
            self._unsync()
            self._set_unserved()
            return
        self._log.warning("watch refused", code=error.code, error=error.message)
        if not self.synced.is_set() and (
            isinstance(error, errors.Forbidden) or self._failed_watches >= TRIES
        ):
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
        self._failures.discard(_SERVER)
        self._failures.discard(self.resource.plural)

    def _heard(self) -> None:
        self._last_heard = asyncio.get_running_loop().time()
