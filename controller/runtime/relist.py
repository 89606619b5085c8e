"""Repairs the effects of lost watch events: lists a resource periodically and compares the resourceVersions with the store.

A watch can lose an event without an error: in the server's watch cache, in a proxy, through a bug of this client. The relister lists each
resource every 5 to 8 minutes, at independent times, metadata only, in pages, and at the lowest priority. It reads only rows that differ.

The list is consistent at its resourceVersion. A row that is newer changed since and stays, so no row becomes older. A difference may be
an event that is still in transit, so the relister checks it again a little later.

Source: own design; client-go has no counterpart and lists only after a watch failed.
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
from controller.runtime.listwatch import PER_SLICE, ObjectMeta, read_metadata
from controller.runtime.store import Change, R

PERIOD_SECONDS = (280.0, 440.0)
"""Seconds between the starts of two relists, at random. A lost event is repaired within 10 minutes, even if
one relist fails meanwhile.
"""
RETRY_SECONDS = 20.0
"""Pause after a failed relist, doubled with each further failure up to the normal period."""
CHECK_SECONDS = (20.0, 40.0)
"""Seconds between reads of rows that the watch does not report."""
PAGE_PAUSE_SECONDS = 0.05
"""Pause between pages, so that the list is not a burst for either side: 100,000 objects take half a minute."""
GRACE_SECONDS = 10.0
"""How long an event about a difference may be in transit."""
CATCH_UP_SECONDS = 0.5
"""Interval of checks during that time."""
MOST_READS = 500
"""Maximum number of rows to read one by one; if more differ, the informer relists."""
_NAMES_IN_LOG = 5

_Key = tuple[str, str]
"""Namespace and name."""

_FAILURES = (errors.ApiError, aiohttp.ClientError, TimeoutError, OSError, ValueError)
"""Errors of lists and reads; an answer that cannot be parsed is a ValueError."""

log = structlog.get_logger()


class _DoesNotFit(Exception):
    """The server's state is older than before: it was restored from a backup."""


class _Findings:
    """The result of one list."""

    def __init__(self) -> None:
        self.resource_version = 0
        self.uids: set[str] = set()
        """UIDs of all existing objects."""
        self.newer: dict[_Key, int] = {}
        """Objects that the store lacks or has in an older version, with the version on the server."""


class Relist(Generic[R]):
    """Relists for one informer."""

    def __init__(self, informer: Informer[R], *, chance: Callable[[], float] = random.random) -> None:
        self._informer = informer
        self._store = informer.store
        self._source = informer.source
        self._chance = chance
        self._unread: set[_Key] = set()
        """Rows that could not be read; each check retries them."""
        self._log = log.bind(resource=informer.resource.plural)

    async def run(self) -> None:
        """Check and relist until canceled."""
        time = asyncio.get_running_loop().time
        due, retry_seconds = time() + self._between(PERIOD_SECONDS), RETRY_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._between(CHECK_SECONDS)):
                    await self._informer.has_unverified_rows.wait()
            self._informer.has_unverified_rows.clear()
            await self.read_unselected()
            began = time()
            if began < due or not self._informer.is_following:
                continue
            try:
                await self.relist()
                due, retry_seconds = began + self._between(PERIOD_SECONDS), RETRY_SECONDS
            except _FAILURES as error:
                # The informer logs that the server is unreachable.
                self._log.debug("relist failed", error=errors.describe(error))
                due = time() + retry_seconds
                retry_seconds = min(2 * retry_seconds, PERIOD_SECONDS[0])

    async def read_unselected(self) -> None:
        """Read the rows that the watch does not report, and those whose last read failed."""
        await self._read_all([*self._store.unselected, *(self._unread - self._store.unselected)])

    async def relist(self) -> int:
        """Compare the store with the server, repair differences, and return the number of repaired rows.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError, ValueError: the list failed; the store is unchanged.
        """
        try:
            findings = await self._compare()
        except _DoesNotFit as error:
            self._informer.relist(str(error))
            return 0
        await self._let_watch_catch_up(findings)
        newer = [key for key, version in findings.newer.items() if self._is_older(key, version)]
        gone = await self._gone(findings)
        if len(newer) + len(gone) > MOST_READS:
            self._informer.relist("many rows differ from the server")
            return self._repaired(newer, [(row.namespace, row.name) for row in gone])
        # A list by label does not contain an object whose label somebody has removed.
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
        """List the resource and compare.

        Raises:
            _DoesNotFit: the list is inconsistent with what the watch has reported.
        """
        known, found, rest = self._store.last_synced_resource_version, _Findings(), ""
        while True:
            page = await self._source.page(rest, metadata_only=True)
            if page.resource_version < known:
                raise _DoesNotFit("the list is older than the last watch event")
            found.resource_version = page.resource_version
            for count, raw in enumerate(page.items, 1):
                self._take(read_metadata(raw), found)
                if count % PER_SLICE == 0:
                    await asyncio.sleep(0)
            rest = page.rest
            if not rest:
                return found
            del page
            await asyncio.sleep(PAGE_PAUSE_SECONDS)

    def _take(self, item: ObjectMeta, found: _Findings) -> None:
        key, version = (item.namespace, item.name), int(item.resource_version)
        row = self._store.get(*key)
        if row is not None and row.uid == item.uid:
            found.uids.add(row.uid)  # the string of the row, which needs no memory
            if row.resource_version == version:
                self._store.unselected.discard(key)  # the list has the same selectors as the watch
                return
            if version < row.resource_version <= found.resource_version:
                raise _DoesNotFit("an object has an older resourceVersion than in the cache")
        else:
            found.uids.add(item.uid)
        if row is None or row.resource_version < version:
            found.newer[key] = version

    async def _let_watch_catch_up(self, findings: _Findings) -> None:
        """Wait for events in transit."""
        for _ in range(int(GRACE_SECONDS / CATCH_UP_SECONDS)):
            if self._store.last_synced_resource_version >= findings.resource_version:
                break
            await asyncio.sleep(CATCH_UP_SECONDS)

    def _is_older(self, key: _Key, version: int) -> bool:
        """Return whether the store still lacks that version of an object, or a later one."""
        row = self._store.get(*key)
        return row is None or row.resource_version < version

    async def _gone(self, findings: _Findings) -> list[R]:
        """Return the rows of objects that no longer exist."""
        gone: list[R] = []
        for count, row in enumerate(self._store, 1):
            is_known = row.uid in findings.uids or (row.namespace, row.name) in self._store.unselected
            if not is_known and row.resource_version <= findings.resource_version:
                gone.append(row)
            if count % (20 * PER_SLICE) == 0:
                await asyncio.sleep(0)
        return [row for row in gone if self._store.get(row.namespace, row.name) is row]

    async def _read_all(self, keys: Sequence[_Key]) -> list[_Key]:
        """Read these rows and return those that had changed. A failed read does not stop the others, and is logged once."""
        changed: list[_Key] = []
        failed: dict[_Key, Exception] = {}
        for key in keys:
            if not self._informer.is_following:
                break  # the server is unreachable, or a relist is running
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
        """Read one object into the store, and return whether that changed the store.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError, ValueError: the read failed; the store is unchanged.
        """
        known = self._store.get(*key)
        try:
            row = self._informer.decode(msgspec.Raw(await self._source.get(*key)))
        except errors.NotFound:
            # A row that came to the store meanwhile is a newer object of that name.
            is_known = known is not None and self._store.get(*key) is known
            return self._report(self._store.remove(known) if known is not None and is_known else None)
        change = self._store.put_unselected(row) if key in self._store.unselected else self._store.put(row)
        if change is None and self._store.get(*key) is None:
            # The watch has passed this version and will not report it.
            change = self._store.put_unselected(row)
        return self._report(change)

    def _report(self, change: Change[R] | None) -> bool:
        if change is not None:
            self._informer.on_change(*change)
        return change is not None

    def _between(self, bounds: tuple[float, float]) -> float:
        low, high = bounds
        return low + (high - low) * self._chance()
