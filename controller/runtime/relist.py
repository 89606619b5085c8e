"""Repairs what lost watch events leave behind: lists a resource from time to time, and compares the versions with the store.

A watch may lose an event without a trace: in the server's own watch cache, in a proxy, by a defect of ours. Each resource is listed
every 5 to 8 minutes, each at times of its own, metadata only, in pages, and after all other calls. Only rows that differ are read whole.

The list is consistent: what it says was true at its version. A row that is newer than that was changed since and is left alone, so no
row ever becomes older. What differs may still be on its way through the watch, and is looked at again a little later.

Source: design of our own; client-go has no counterpart, and lists only after a watch has failed.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Generic

import aiohttp
import msgspec
import structlog

from controller.kube import errors
from controller.runtime.informer import Informer
from controller.runtime.listwatch import PER_SLICE
from controller.runtime.store import Change, R

PERIOD_SECONDS = (280.0, 440.0)
"""From the begin of one relist to the next, at random between these. A lost event is repaired within 10 minutes, even if
one relist fails meanwhile.
"""
RETRY_SECONDS = 20.0
"""After a relist that failed, doubled with each that follows, until they are as rare as others."""
CHECK_SECONDS = (20.0, 40.0)
"""How often rows are read that the watch does not report."""
PAGE_PAUSE_SECONDS = 0.05
"""Between pages, so that the list is no burst for either side: 100,000 objects take half a minute."""
GRACE_SECONDS = 10.0
"""How long an event may be on its way that tells of a difference."""
CATCH_UP_SECONDS = 0.5
"""How often that is looked at meanwhile."""
MOST_READS = 500
"""Rows that are read one by one; if more differ, everything is asked for anew."""
_NAMES_IN_LOG = 5

_Key = tuple[str, str]
"""Namespace and name."""

_FAILURES = (errors.ApiError, aiohttp.ClientError, TimeoutError, OSError, ValueError)
"""How lists and reads fail; an answer that is not understood is a ValueError."""

log = structlog.get_logger()


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Item(msgspec.Struct):
    metadata: _Meta


_decode_item = msgspec.json.Decoder(_Item).decode


class _DoesNotFit(Exception):
    """The server is behind what it has said before: it was set back."""


class _Findings:
    """What one list has shown."""

    def __init__(self) -> None:
        self.resource_version = 0
        self.uids: set[str] = set()
        """Of all objects that are there."""
        self.newer: dict[_Key, int] = {}
        """Objects that the store does not have, or has in an older version; the version on the server."""


class Relist(Generic[R]):
    """The relists of one informer."""

    def __init__(self, informer: Informer[R], *, chance: Callable[[], float] = random.random) -> None:
        self._informer = informer
        self._store = informer.store
        self._source = informer.source
        self._chance = chance
        self._unread: set[_Key] = set()
        """What could not be read, and is tried again at each look."""
        self._log = log.bind(resource=informer.resource.plural)

    async def run(self) -> None:
        """Until cancelled."""
        time = asyncio.get_running_loop().time
        due, retry_seconds = time() + self._between(PERIOD_SECONDS), RETRY_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._between(CHECK_SECONDS)):
                    await self._informer.doubted.wait()
            self._informer.doubted.clear()
            await self.read_unselected()
            began = time()
            if began < due or not self._informer.is_following:
                continue
            try:
                await self.relist()
                due, retry_seconds = began + self._between(PERIOD_SECONDS), RETRY_SECONDS
            except _FAILURES as error:
                # The watch tells of a server that is away.
                self._log.debug("relist failed", error=str(error) or repr(error))
                due = time() + retry_seconds
                retry_seconds = min(2 * retry_seconds, PERIOD_SECONDS[0])

    async def read_unselected(self) -> None:
        """Read the rows again that the watch does not report, and those that could not be read."""
        await self._read_all([*self._store.unselected, *(self._unread - self._store.unselected)])

    async def relist(self) -> int:
        """Compare the store with the server and repair what differs; how many rows did.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError, ValueError: the list has failed; what is known is kept.
        """
        try:
            findings = await self._compare()
        except _DoesNotFit as error:
            self._informer.ask_anew(str(error))
            return 0
        await self._let_watch_catch_up(findings)
        newer = [key for key, version in findings.newer.items() if self._is_older(key, version)]
        gone = await self._gone(findings)
        if len(newer) + len(gone) > MOST_READS:
            self._informer.ask_anew("many rows differ from the server")
            return self._repaired(newer, [(row.namespace, row.name) for row in gone])
        # A list by labels does not have what somebody has taken the label from.
        self._store.unselected.update((row.namespace, row.name) for row in gone)
        return self._repaired(
            await self._read_all(newer), await self._read_all([(row.namespace, row.name) for row in gone])
        )

    def _repaired(self, missed: Sequence[_Key], gone: Sequence[_Key]) -> int:
        count = len(missed) + len(gone)
        if count:
            names = [name for _, name in (*missed, *gone)]
            self._informer.repaired += count
            self._log.warning(
                "watch events were lost", missed=len(missed), gone=len(gone), names=names[:_NAMES_IN_LOG]
            )
        return count

    async def _compare(self) -> _Findings:
        """
        Raises:
            _DoesNotFit: the list cannot come after what the watch has said.
        """
        known, found, rest = self._store.last_synced_resource_version, _Findings(), ""
        while True:
            page = await self._source.page(rest, metadata_only=True)
            if page.resource_version < known:
                raise _DoesNotFit("a list is older than what the watch has said before")
            found.resource_version = page.resource_version
            for count, raw in enumerate(page.items, 1):
                self._take(_decode_item(raw).metadata, found)
                if count % PER_SLICE == 0:
                    await asyncio.sleep(0)
            rest = page.rest
            if not rest:
                return found
            del page
            await asyncio.sleep(PAGE_PAUSE_SECONDS)

    def _take(self, item: _Meta, found: _Findings) -> None:
        key, version = (item.namespace, item.name), int(item.resource_version)
        row = self._store.get(*key)
        if row is not None and row.uid == item.uid:
            found.uids.add(row.uid)  # the row's own text, which costs no memory
            if row.resource_version == version:
                self._store.unselected.discard(key)  # the list has the selectors of the watch
                return
            if version < row.resource_version <= found.resource_version:
                raise _DoesNotFit("an object is older than it was")
        else:
            found.uids.add(item.uid)
        if row is None or row.resource_version < version:
            found.newer[key] = version

    async def _let_watch_catch_up(self, findings: _Findings) -> None:
        """Wait until events that were on their way have come."""
        for _ in range(int(GRACE_SECONDS / CATCH_UP_SECONDS)):
            if self._store.last_synced_resource_version >= findings.resource_version:
                break
            await asyncio.sleep(CATCH_UP_SECONDS)

    def _is_older(self, key: _Key, version: int) -> bool:
        """Whether the store still does not have an object in that version or a later one."""
        row = self._store.get(*key)
        return row is None or row.resource_version < version

    async def _gone(self, findings: _Findings) -> list[R]:
        """The rows of objects that are not there any more."""
        gone: list[R] = []
        for count, row in enumerate(self._store, 1):
            is_known = row.uid in findings.uids or (row.namespace, row.name) in self._store.unselected
            if not is_known and row.resource_version <= findings.resource_version:
                gone.append(row)
            if count % (20 * PER_SLICE) == 0:
                await asyncio.sleep(0)
        return [row for row in gone if self._store.get(row.namespace, row.name) is row]

    async def _read_all(self, keys: Sequence[_Key]) -> list[_Key]:
        """Read those rows; which of them had changed. One that cannot be read keeps nobody from the others, and is named once."""
        changed: list[_Key] = []
        failed: dict[_Key, Exception] = {}
        for key in keys:
            if not self._informer.is_following:
                break  # the server is away, or everything is being asked for
            try:
                if await self._read(key):
                    changed.append(key)
                self._unread.discard(key)
            except _FAILURES as error:
                failed[key] = error
        new = [key for key in failed if key not in self._unread]
        self._unread.update(new)
        if new:
            cause = failed[new[0]]
            self._log.warning(
                "objects not read",
                count=len(new),
                names=[name for _, name in new[:_NAMES_IN_LOG]],
                error=str(cause) or repr(cause),
            )
        return changed

    async def _read(self, key: _Key) -> bool:
        """Have the store hold that object as the server has it now; whether that changed anything.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError, ValueError: it cannot be read, and what is known stays.
        """
        known = self._store.get(*key)
        try:
            row = self._informer.decode(msgspec.Raw(await self._source.get(*key)))
        except errors.NotFound:
            # What has come to the store meanwhile is a newer object of that name.
            is_known = known is not None and self._store.get(*key) is known
            return self._report(self._store.remove(known) if known is not None and is_known else None)
        change = self._store.put_unselected(row) if key in self._store.unselected else self._store.put(row)
        if change is None and self._store.get(*key) is None:
            # The watch has come further and will not report it any more.
            change = self._store.put_unselected(row)
        return self._report(change)

    def _report(self, change: Change[R] | None) -> bool:
        if change is not None:
            self._informer.on_change(*change)
        return change is not None

    def _between(self, bounds: tuple[float, float]) -> float:
        low, high = bounds
        return low + (high - low) * self._chance()
