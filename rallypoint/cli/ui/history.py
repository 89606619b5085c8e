"""The last document of each job that ended in a local cluster, kept when the job itself is deleted."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson
import structlog

from controller.kube.errors import NotFound
from rallypoint.cli.ui.job_list import Document, JobList, Key
from rallypoint.diagnosis.objects import FINISHED
from rallypoint.local import private
from rallypoint.local.log_archive import LogArchive

MAX_JOBS = 1000
"""Of more jobs, the oldest records are deleted."""
LATER_SECONDS = 3.0
"""After this time the job's pods and events have ended too, and the record is written again."""
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


@dataclass(frozen=True, slots=True)
class History:
    """A folder with one file per job, named by its UID."""

    folder: Path

    @classmethod
    def beside(cls, archive: LogArchive) -> "History":
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
        temporary.replace(file)
        for old in self._files()[MAX_JOBS:]:
            old.unlink(missing_ok=True)

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
        return sorted(self.folder.glob("*.json"), key=lambda file: -file.stat().st_mtime)


async def record(history: History, jobs: JobList, read: Callable[[Key], Awaitable[Document]]) -> None:
    """Record each job that ends until canceled: at once, since it may be deleted, and again when its pods have ended too."""
    rows: dict[str, Document] = {}
    async with asyncio.TaskGroup() as tasks:
        async for change in jobs.changes():
            for row in (*change.get("all", ()), *change.get("changed", ())):
                rows[row["id"]] = row
                if row["state"] in FINISHED and not history.has(row["uid"]):
                    await _record(history, read, row)
                    tasks.create_task(_record_later(history, read, row))
            for id_ in change.get("gone", ()):
                row = rows.pop(id_, None)
                if row and not history.has(row["uid"]):
                    _write(history, {**row, "message": "deleted before it had finished"})


async def _record_later(history: History, read: Callable[[Key], Awaitable[Document]], row: Document) -> None:
    await asyncio.sleep(LATER_SECONDS)
    await _record(history, read, row)


async def _record(history: History, read: Callable[[Key], Awaitable[Document]], row: Document) -> None:
    """Write what can be read of the job now; its row if that is nothing and there is no record yet. Never fails."""
    document = row
    try:
        found = await read((row["kind"], row["namespace"], row["name"]))
        if found["uid"] == row["uid"]:
            document = found
    except NotFound:
        pass
    except Exception:
        log.exception("job not read for the history", job=row["id"])
    if document is not row or not history.has(row["uid"]):
        _write(history, document)


def _write(history: History, document: Document) -> None:
    try:
        history.write(document)
    except OSError as error:
        log.warning("job not recorded in the history", job=document["id"], error=str(error))
