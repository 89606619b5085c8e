"""Persists the latest version of every object in SQLite, so that a killed process loses nothing.

``record`` queues a change, and a thread writes the queue in batches. The server answers a request and sends a watch
event only after ``flush`` has returned.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson

from rallypoint.local import private
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.storage.store import Change, Entry, Key

FORMAT = 1
"""Increases when this version cannot read earlier files."""

TABLES = f"""
    CREATE TABLE IF NOT EXISTS objects (
        collection TEXT, namespace TEXT, name TEXT, object BLOB NOT NULL, PRIMARY KEY (collection, namespace, name)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT OR IGNORE INTO counters VALUES ('format', {FORMAT}), ('revision', 1);
"""

ObjectKey = tuple[str, Key]


class JournalError(Exception):
    """The file cannot be used; the message is the reason."""


class Journal:
    """One SQLite file, open in one process. ``close`` writes the pending changes."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            JournalError: another process or user owns the file, or it cannot be created.
        """
        self._thread = ThreadPoolExecutor(1, "journal")
        self._pending: list[tuple[ObjectKey, Entry | None, int]] = []
        self._write_task: asyncio.Future[None] | None = None
        self._recorded = self._written = 0
        try:
            self._file = self._thread.submit(_open, path).result()
        except private.NotOurs as error:
            self._thread.shutdown()
            raise JournalError(f"{path}: {error.strerror}") from error
        except sqlite3.Error as error:
            self._thread.shutdown()
            is_locked = "locked" in str(error)
            raise JournalError(f"{path}: {'another process uses it' if is_locked else error}") from error
        if (found := self._counter("format")) != FORMAT:
            self.close()
            raise JournalError(f"{path}: its format is {found}, and this version reads {FORMAT}")

    @property
    def revision(self) -> int:
        """The latest revision in the file."""
        return self._counter("revision")

    def objects(self) -> Iterator[tuple[str, Json]]:
        """Yield every object with the name of its collection."""
        rows = self._query("SELECT collection, object FROM objects ORDER BY collection, namespace, name")
        return ((collection, orjson.loads(found)) for collection, found in rows)

    def record(self, collection: str, change: Change) -> None:
        entry = None if change.type == "DELETED" else change.entry
        self._pending.append(((collection, change.entry.key), entry, change.revision))
        self._recorded += 1

    async def flush(self) -> None:
        """Wait until all recorded changes are on disk.

        Raises:
            sqlite3.Error: the write failed; the changes stay queued, and the next call retries.
        """
        target = self._recorded
        while self._written < target:
            if self._write_task is None or self._write_task.done():
                self._write_task = asyncio.wrap_future(self._submit_batch())
            await asyncio.shield(self._write_task)

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._thread.submit(self._write, tuple(self._pending)).result()
        self._thread.submit(self._file.close).result()
        self._thread.shutdown()

    def _submit_batch(self) -> Future[None]:
        batch = tuple(self._pending)

        def write() -> None:
            self._write(batch)
            # Only the event loop appends; this thread deletes from the front.
            del self._pending[: len(batch)]
            self._written += len(batch)

        return self._thread.submit(write)

    def _write(self, batch: Sequence[tuple[ObjectKey, Entry | None, int]]) -> None:
        if not batch:
            return
        latest = {key: entry for key, entry, _ in batch}
        deleted = [_key(key) for key, entry in latest.items() if entry is None]
        stored = [
            (*_key(key), entry.bytes(entry.object["apiVersion"]))
            for key, entry in latest.items()
            if entry is not None
        ]
        with self._file as file:
            file.execute("BEGIN IMMEDIATE")
            file.executemany("DELETE FROM objects WHERE (collection, namespace, name) = (?, ?, ?)", deleted)
            file.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", stored)
            file.execute("UPDATE counters SET value = ? WHERE name = 'revision'", (batch[-1][2],))

    def _counter(self, name: str) -> int:
        ((value,),) = self._query("SELECT value FROM counters WHERE name = ?", name)
        return int(value)

    def _query(self, text: str, *values: str) -> list[tuple[Any, ...]]:
        return self._thread.submit(lambda: self._file.execute(text, values).fetchall()).result()


def _open(path: Path) -> sqlite3.Connection:
    try:
        private.file(path)  # It contains Secrets; SQLite creates its other files with the same mode.
    except private.NotOurs:
        raise
    except OSError:
        pass  # sqlite3.connect raises the better message.
    file = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        file.execute("PRAGMA locking_mode = EXCLUSIVE")
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = FULL")
        file.executescript(TABLES)
    except sqlite3.Error:
        file.close()
        raise
    return file


def _key(key: ObjectKey) -> tuple[str, str, str]:
    collection, (namespace, name) = key
    return collection, namespace, name
