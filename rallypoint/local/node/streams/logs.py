"""Container logs: one file per pod, container and run, with the time of each chunk. Files are read while they grow."""

import asyncio
import bisect
import contextlib
import io
from array import array
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import structlog

from api.labels import JOB_NAME
from api.pod_problems import NO_STATE, read_status, reason_and_message, unscheduled
from rallypoint.local import private
from rallypoint.local.log_archive import DELETED_FILE, POD_FILE, record, record_of_deleted

_logger = structlog.get_logger()

CHUNK_BYTES = 64 * 1024
COARSE_SECONDS = 0.01
"""Chunks that arrive within this time share one timestamp."""

Listener: TypeAlias = Callable[[Mapping[str, Any], str, bytes], None]
"""Called with the pod, the container and each chunk of output; the chunk is empty at the end of a run."""
LossListener: TypeAlias = Callable[[Mapping[str, Any], str, str], None]
"""Called with the pod, the container and the reason when the file of a run loses output, once per run."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The requested part of a log, as in PodLogOptions."""

    follow: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


class NoLog(Exception):
    """There is no such log. The text is the kubelet's, except for pods that no node has or that the node refused."""


class Log:
    """The output of one run of a container. With ``ended``, another process wrote it.

    The times of the chunks, before them when the run ``started``, are in ``RUN.times`` beside ``RUN.log``, from when the run has ended. If its process was killed before, they are
    lost: all of the run gets the modification time of the file.
    """

    def __init__(self, path: Path, *, ended: bool = False, started: datetime | None = None) -> None:
        self.path = path
        self.closed = ended
        self.has_times = True
        self.is_incomplete = False
        """Whether a write failed, so that the file lacks output."""
        self._discarded = False
        self._grown = asyncio.Event()
        self._offsets, self._times = array("Q"), array("d")
        if not ended:
            private.folder(path.parent)
            self._file = private.file(path).open("wb", buffering=0)
            self._size = 0
            if started is not None:
                self._offsets, self._times = array("Q", [0]), array("d", [started.timestamp()])
            self._times_path.unlink(missing_ok=True)
            return
        found = path.stat()
        self._size = found.st_size
        self.has_times = self._read_times()
        if not self.has_times:
            self._offsets, self._times = array("Q", [0]), array("d", [found.st_mtime])

    def write(self, data: bytes, now: datetime) -> None:
        """Append a chunk. What arrives after the log was closed, as that of a pod that was deleted by force, is lost.

        Raises:
            OSError: the disk is full, or fails. The chunk, or the end of it, is lost.
        """
        if self.closed:
            return
        try:
            self._append(data, now)
        except OSError:
            self.is_incomplete = True
            raise
        finally:
            self._wake()

    def _append(self, data: bytes, now: datetime) -> None:
        timestamp = now.timestamp()
        if not self._times or timestamp - self._times[-1] > COARSE_SECONDS:
            self._offsets.append(self._size)
            self._times.append(timestamp)
        rest = memoryview(data)
        while rest:  # An unbuffered file may take a part.
            written = self._file.write(rest)
            self._size += written
            rest = rest[written:]

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._file.close()
            with contextlib.suppress(OSError):
                private.file(self._times_path).write_bytes(self._offsets.tobytes() + self._times.tobytes())
            self._wake()

    def discard(self) -> None:
        """Close the log and delete its file."""
        self.close()
        self._discarded = True
        for path in (self.path, self._times_path):
            path.unlink(missing_ok=True)

    @property
    def _times_path(self) -> Path:
        return self.path.with_suffix(".times")

    def _read_times(self) -> bool:
        """Read the offsets and the times of the chunks; return whether the file has them."""
        with contextlib.suppress(OSError, ValueError):
            data = self._times_path.read_bytes()
            self._offsets.frombytes(data[: len(data) // 2])
            self._times.frombytes(data[len(data) // 2 :])
            return len(self._offsets) == len(self._times) and (len(self._times) > 0 or self._size == 0)
        return False

    def tail(self, lines: int, size_bytes: int) -> bytes:
        """Return the last ``lines`` lines, at most ``size_bytes`` bytes."""
        with self.path.open("rb") as file:
            file.seek(max(self._last_lines(lines), self._size - size_bytes))
            return file.read()

    def timed_tail(self, lines: int, size_bytes: int) -> list[tuple[datetime, bytes]]:
        """Return the lines of ``tail``, each with its time."""
        offset = max(self._last_lines(lines), self._size - size_bytes)
        found: list[tuple[datetime, bytes]] = []
        with self.path.open("rb") as file:
            file.seek(offset)
            for line in io.BytesIO(file.read(self._size - offset)):
                found.append((self._time_at(offset), line))
                offset += len(line)
        return found

    async def read(self, selection: Selection) -> AsyncIterator[bytes]:
        """Yield the selected part; with ``follow`` until the container ends."""
        remaining = selection.limit_bytes
        async for chunk in self._chunks(selection):
            if remaining is not None:
                chunk, remaining = chunk[:remaining], remaining - len(chunk)
            yield chunk
            if remaining is not None and remaining <= 0:
                return

    async def _chunks(self, selection: Selection) -> AsyncIterator[bytes]:
        if self._discarded:
            return
        offset, at_line_start = self._start(selection), True
        with self.path.open("rb") as file:
            while True:
                grown, closed = self._grown, self.closed
                file.seek(offset)
                while data := self._next(
                    file.read(CHUNK_BYTES), whole_lines=selection.timestamps and not closed
                ):
                    yield (
                        self._stamped(data, offset, at_line_start=at_line_start)
                        if selection.timestamps
                        else data
                    )
                    at_line_start = data.endswith(b"\n")
                    offset += len(data)
                    file.seek(offset)
                if closed or not selection.follow:
                    return
                await grown.wait()

    @staticmethod
    def _next(data: bytes, *, whole_lines: bool) -> bytes:
        """Return the part of ``data`` to send now. Of a growing log, lines with timestamps are sent whole."""
        if not whole_lines:
            return data
        end = data.rfind(b"\n") + 1
        return data[:end] if end or len(data) < CHUNK_BYTES else data

    def _stamped(self, data: bytes, offset: int, *, at_line_start: bool) -> bytes:
        pieces: list[bytes] = []
        for line in io.BytesIO(data):
            if at_line_start:
                pieces.append(self._time_at(offset).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode())
            pieces.append(line)
            offset, at_line_start = offset + len(line), True
        return b"".join(pieces)

    def _time_at(self, offset: int) -> datetime:
        index = max(bisect.bisect_right(self._offsets, offset) - 1, 0)
        return datetime.fromtimestamp(self._times[index], UTC)

    def _start(self, selection: Selection) -> int:
        start = 0
        if selection.since is not None:
            index = bisect.bisect_left(self._times, selection.since.timestamp())
            start = self._line_start(self._offsets[index]) if index < len(self._offsets) else self._size
        if selection.tail_lines is not None:
            start = max(start, self._last_lines(selection.tail_lines))
        return start

    def _last_lines(self, lines: int) -> int:
        """Return the offset of the last ``lines`` lines."""
        if lines <= 0:
            return self._size
        with self.path.open("rb") as file:
            end = position = self._size
            while position > 0:
                step = min(CHUNK_BYTES, position)
                position -= step
                file.seek(position)
                block = file.read(step)
                at = len(block)
                while (at := block.rfind(b"\n", 0, at)) >= 0:
                    if position + at + 1 == end:
                        continue  # the end of the last line
                    lines -= 1
                    if not lines:
                        return position + at + 1
        return 0

    def _line_start(self, offset: int) -> int:
        """Return the offset of the line that contains ``offset``."""
        with self.path.open("rb") as file:
            while offset > 0:
                step = min(CHUNK_BYTES, offset)
                file.seek(offset - step)
                end = file.read(step).rfind(b"\n")
                if end >= 0:
                    return offset - step + end + 1
                offset -= step
        return offset

    def _wake(self) -> None:
        """Wake the followers: each waits for the event that was current at its last read."""
        self._grown.set()
        self._grown = asyncio.Event()


class Logs:
    """The logs of all pods of a node, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = private.folder(folder)
        self._runs: dict[tuple[str, str, str], list[Log]] = defaultdict(list)
        self._listeners: list[Listener] = []
        self._loss_listeners: list[LossListener] = []

    def listen(self, listener: Listener, on_loss: LossListener) -> None:
        """Call ``listener`` with all output from now on, also with what the files lose, and ``on_loss`` when one begins to lose output."""
        self._listeners.append(listener)
        self._loss_listeners.append(on_loss)

    def open(
        self, pod: Mapping[str, Any], container: str, attempt: int, started: datetime | None = None
    ) -> Log:
        self._record(pod)
        log = Log(self.path(pod, container, attempt), started=started)
        self._runs[_key(pod, container)].append(log)
        return log

    def path(self, pod: Mapping[str, Any], container: str, attempt: int) -> Path:
        return self._folder(pod) / container / f"{attempt}.log"

    def _folder(self, pod: Mapping[str, Any]) -> Path:
        meta = pod["metadata"]
        return self.folder / f"{meta['namespace']}_{meta['name']}_{meta['uid']}"

    def _record(self, pod: Mapping[str, Any]) -> None:
        """Write whose pod it is, once."""
        folder = private.folder(self._folder(pod))
        if not (folder / POD_FILE).exists():
            _write(folder / POD_FILE, record(pod))

    def write(self, pod: Mapping[str, Any], container: str, log: Log, data: bytes, now: datetime) -> None:
        """Append a chunk to the log of a run and call the listeners, also if the disk is full."""
        was_incomplete = log.is_incomplete
        try:
            log.write(data, now)
        except OSError as error:
            if not was_incomplete:
                self._report_loss(pod, container, error)
        for listener in self._listeners:
            listener(pod, container, data)

    def _report_loss(self, pod: Mapping[str, Any], container: str, error: OSError) -> None:
        why = error.strerror or str(error)
        _logger.error(
            "container log is incomplete", pod=pod["metadata"]["name"], container=container, error=why
        )
        for listener in self._loss_listeners:
            listener(pod, container, why)

    def close(self, pod: Mapping[str, Any], container: str, log: Log) -> None:
        """Close the log of a run and call the listeners with an empty chunk."""
        log.close()
        for listener in self._listeners:
            listener(pod, container, b"")

    def discard_run(self, pod: Mapping[str, Any], container: str, log: Log) -> None:
        """Discard the log of a run that did not start, so that the log before it is the latest one."""
        self._runs[_key(pod, container)].remove(log)
        log.discard()

    def of(self, pod: Mapping[str, Any], container: str, *, previous: bool = False) -> Log:
        """Return the log of a container's latest or previous run.

        Raises:
            NoLog: there is no such run.
        """
        runs = self._runs.get(_key(pod, container), [])
        if len(runs) < 2:
            runs = self._with_earlier_runs(pod, container, runs)
        name = pod["metadata"]["name"]
        if previous and len(runs) < 2:
            raise NoLog(f'previous terminated container "{container}" in pod "{name}" not found')
        if not runs:
            raise NoLog(_why_no_run(pod, container))
        return runs[-2 if previous else -1]

    def _with_earlier_runs(self, pod: Mapping[str, Any], container: str, runs: list[Log]) -> list[Log]:
        """Return the runs, preceded by those that an earlier process of this node recorded."""
        known = {log.path for log in runs}
        files = self.path(pod, container, 0).parent.glob("*.log")
        remaining = sorted((file for file in files if file not in known), key=lambda file: int(file.stem))
        return [*(Log(private.file(file), ended=True) for file in remaining), *runs]

    def discard(self, pod: Mapping[str, Any]) -> None:
        """Close the logs of a pod. The files stay."""
        uid = pod["metadata"]["uid"]
        for key in [key for key in self._runs if key[0] == uid]:
            for log in self._runs.pop(key):
                log.close()

    def record_deletion(self, pod: Mapping[str, Any]) -> None:
        """Write the last status of a pod that has been deleted, of a job's pod also if it never had a log. A full disk costs only that."""
        is_of_job = JOB_NAME in (pod["metadata"].get("labels") or {})
        if is_of_job or self._folder(pod).exists():
            with contextlib.suppress(OSError):
                self._record(pod)
                _write(self._folder(pod) / DELETED_FILE, record_of_deleted(pod))


def _write(path: Path, content: bytes) -> None:
    """Write a file and rename it, so that no reader finds a part of it. The suffix hides it from the readers of runs and pods."""
    written = private.file(path.with_name(f"{path.name}.new"))
    written.write_bytes(content)
    written.replace(path)


def _why_no_run(pod: Mapping[str, Any], container: str) -> str:
    """Return why no run of the container has started.

    Source: Kubernetes, pkg/kubelet/kubelet_pods.go, validateContainerLogStatus. Differs: for a pod without a node, kube-apiserver returns
    an empty log, and the kubelet does not say why it refused a pod.
    """
    status, about = read_status(pod), f'container "{container}" in pod "{pod["metadata"]["name"]}"'
    if scheduled := unscheduled(status):
        return f"{about} is waiting to start: {reason_and_message(scheduled)}"
    if status.phase in ("Succeeded", "Failed"):
        return ": ".join(filter(None, (f"{about} is not available", reason_and_message(status))))
    statuses = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    states = (found.state or NO_STATE for found in statuses if found.name == container)
    waiting = next(states, NO_STATE).waiting
    return f"{about} is waiting to start: {(waiting and waiting.reason) or 'ContainerCreating'}"


def _key(pod: Mapping[str, Any], container: str) -> tuple[str, str, str]:
    meta = pod["metadata"]
    return meta["uid"], meta["name"], container
