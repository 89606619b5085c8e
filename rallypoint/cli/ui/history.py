"""The last document of each job that ended in a local cluster, kept when the job itself is deleted."""

import asyncio
import itertools
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import structlog

from api.messages import first_of
from controller.kube.errors import NotFound
from controller.runtime import clock
from rallypoint.cli.ui.job_list import Document, JobList, Key
from rallypoint.cli.why import SHOWN_NAMES
from rallypoint.diagnosis.objects import FINISHED, Object
from rallypoint.local import private
from rallypoint.local.log_archive import LogArchive

MAX_JOBS = 1000
"""Of more jobs, the oldest records are deleted, a tenth of this number at a time."""
DELETED = "Deleted"
"""The state of a job that was deleted before it had finished."""
WORKERS = 4
"""Jobs that are read and written at the same time."""
LATER_SECONDS = 3.0
"""After this time the job's pods and events have ended too, and the record is written again."""
_NO_PROBLEM = "The job was deleted before it had finished. The objects of the cluster showed no problem."
_UID = re.compile(r"[0-9A-Za-z-]{1,64}\Z")
_ROW = (
    "id",
    "kind",
    "namespace",
    "name",
    "uid",
    "state",
    "since",
    "created",
    "ended",
    "replicas",
    "requests",
    "queue",
    "message",
)

log = structlog.get_logger()


@dataclass(slots=True)
class History:
    """A folder with one file per job, named by its UID."""

    folder: Path
    _count: int | None = None
    """The number of files, at least; None before the first write."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """Guards ``_count``: records are written in threads."""

    @classmethod
    def of_archive(cls, archive: LogArchive) -> "History":
        """Return the history of the local cluster with these logs."""
        return cls(archive.folder.parent / "jobs")

    def write(self, document: Document) -> None:
        """Write the document of a job, readable by the user only.

        Raises:
            OSError: the folder is not writable.
        """
        private.folder(self.folder)
        file = self._file(str(document["uid"]))
        temporary = file.with_suffix(".new")
        private.file(temporary).write_bytes(orjson.dumps(document))
        with self._lock:
            self._count = len(self._files()) if self._count is None else self._count
            self._count += not file.exists()
            temporary.replace(file)
            if self._count > MAX_JOBS + MAX_JOBS // 10:
                for old in self._files()[MAX_JOBS:]:
                    old.unlink(missing_ok=True)
                self._count = MAX_JOBS

    def has(self, uid: str) -> bool:
        return self._file(uid).exists()

    def read(self, uid: str) -> Document | None:
        """Return the document of a job; None if there is none."""
        if not _UID.match(uid):
            return None
        with suppress(OSError, orjson.JSONDecodeError):
            found: Document = orjson.loads(self._file(uid).read_bytes())
            return found
        return None

    def rows(self) -> list[Document]:
        """Return the rows of the jobs, the last one to end first."""
        found = [self.read(file.stem) for file in self._files()]
        return [{name: document.get(name) for name in _ROW} for document in found if document]

    def _file(self, uid: str) -> Path:
        return self.folder / f"{uid}.json"

    def _files(self) -> list[Path]:
        """Return the files, the newest first."""
        times: dict[Path, float] = {}
        for file in self.folder.glob("*.json"):
            with suppress(FileNotFoundError):
                times[file] = file.stat().st_mtime
        return sorted(times, key=lambda file: -times[file])


Reader = Callable[[Key, Object | None], Awaitable[Document]]
"""Reads the document of a job that exists, or what is left of one that has been deleted."""


@dataclass(slots=True)
class Recorder:
    """Records each job that ends: at once, since it may be deleted, and again when its pods have ended too."""

    history: History
    jobs: JobList
    read: Reader
    _queue: "asyncio.PriorityQueue[tuple[bool, int, Document]]" = field(default_factory=asyncio.PriorityQueue)
    """Whether it is the second time, a number for the order, and the row of the job."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _recorded: set[str] = field(default_factory=set)
    """UIDs of jobs that exist and whose record is written or in the queue."""
    _deleted: dict[str, Object] = field(default_factory=dict)
    """By UID: jobs that no longer exist and are in the queue."""

    async def run(self) -> None:
        """Record until canceled."""
        rows: dict[str, Document] = {}
        manifests: dict[str, Object] = {}
        async with self.jobs.event_watches.open(self.jobs.namespace), asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work())
            async with aclosing(self.jobs.changes()) as changes:
                async for change in changes:
                    for row in (*change.get("all", ()), *change.get("changed", ())):
                        before = rows.get(row["id"])
                        rows[row["id"]] = row
                        if before and before["uid"] != row["uid"]:
                            self._record_lost_job(before, manifests.pop(before["uid"], None))
                        manifest = self.jobs.manifests.get(_key(row))
                        if manifest and manifest["metadata"]["uid"] == row["uid"]:
                            manifests[row["uid"]] = manifest
                        if row["state"] in FINISHED:
                            self._add(row)
                    for id_ in change.get("gone", ()):
                        if row := rows.pop(id_, None):
                            self._record_lost_job(row, manifests.pop(row["uid"], None))

    def _add(self, row: Document) -> None:
        """Record a job unless it is recorded."""
        uid = row["uid"]
        if uid not in self._recorded and not self.history.has(uid):
            self._recorded.add(uid)
            self._queue.put_nowait((False, next(self._numbers), row))

    def _record_lost_job(self, row: Document, manifest: Object | None) -> None:
        """Record a job that no longer exists unless it is recorded."""
        if manifest and not self.history.has(row["uid"]):
            self._deleted[row["uid"]] = manifest
        self._add(row if row["state"] in FINISHED else _deleted_row(row))
        self._recorded.discard(row["uid"])

    async def _work(self) -> None:
        while True:
            is_again, number, row = await self._queue.get()
            await self._record(row)
            if is_again:
                self._deleted.pop(row["uid"], None)
            else:
                asyncio.get_running_loop().call_later(
                    LATER_SECONDS, self._queue.put_nowait, (True, number, row)
                )

    async def _record(self, row: Document) -> None:
        """Write what can be read of the job now; its row if that is nothing and there is no record yet. Never fails."""
        document = row
        try:
            found = await self.read(_key(row), self._deleted.get(row["uid"]))
            if found["uid"] == row["uid"]:
                document = _deleted_document(found, row) if row["state"] == DELETED else found
        except NotFound:
            pass
        except Exception:
            log.exception("job not read for the history", job=row["id"])
        if document is not row or not self.history.has(row["uid"]):
            try:
                await asyncio.to_thread(self.history.write, document)
            except OSError as error:
                log.warning("job not recorded in the history", job=row["id"], error=str(error))


def _key(row: Document) -> Key:
    return row["kind"], row["namespace"], row["name"]


def _deleted_row(row: Document) -> Document:
    """Return the row of a job that has been deleted before it had finished. ``waited_for`` is what the list said of it."""
    now = clock.now()
    waited_for = row["message"] if row["waits"] or row["state"] == "Waiting" else ""
    return {
        **row,
        "state": DELETED,
        "since": now,
        "ended": now,
        "replicas": {**row["replicas"], "active": 0},
        "waits": False,
        "waited_for": waited_for,
        "message": _deletion_message(waited_for),
    }


def _deletion_message(why: str) -> str:
    return ": ".join(filter(None, ("deleted before it had finished", why)))


def _deleted_document(found: Document, row: Document) -> Document:
    """Return what could be read of a deleted job with the state of ``row``. Its timeline ends when it was deleted."""
    document: Document = orjson.loads(orjson.dumps({**found, **row}))
    why = document["why"]
    why["state"] = DELETED
    if row["waited_for"] and not any(cause["blocks"] for cause in why["causes"]):
        cause = {"about": [], "text": row["waited_for"], "since": None, "blocks": True, "quote": ""}
        why["causes"].insert(0, {**cause, "nextStep": ""})
    blocking = [cause for cause in why["causes"] if cause["blocks"]]
    why["blocked"], why["summary"] = bool(blocking), "" if blocking else _NO_PROBLEM
    for cause in blocking[:1]:
        about = first_of(cause["about"], SHOWN_NAMES)
        waited_for = ": ".join(filter(None, (about, cause["text"], cause["quote"])))
        document["message"] = _deletion_message(waited_for)
    # What pods did when they were stopped is no part of the job's life. The times are of one format, in UTC.
    timeline, ended = why["timeline"], document["ended"]
    timeline["spans"] = [span for span in timeline["spans"] if span["start"] < ended]
    timeline["restarts"] = [restart for restart in timeline["restarts"] if restart["at"] < ended]
    for span in timeline["spans"][-1:]:
        span["end"] = ended
    return document


async def record(history: History, jobs: JobList, read: Reader) -> None:
    """Record each job that ends until canceled."""
    await Recorder(history, jobs, read).run()
