"""The logs of a job for the page: of all its pods or of one, followed live; of a deleted pod from the archive of local mode."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from api.times import parse_time
from controller.kube.errors import ApiError
from rallypoint.cli.cluster import Cluster, CommandError, Object, ServedResource
from rallypoint.cli.log_follower import JobLogFollower, Write
from rallypoint.cli.log_lines import clean_line
from rallypoint.cli.ui.job_list import Key
from rallypoint.cli.ui.job_page import container_names
from rallypoint.diagnosis.objects import desired_pods
from rallypoint.local.log_archive import ArchivedPod, LogArchive, pods_of_job
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.streams.logs import Log

TAIL_LINES = 1000
"""Lines of one pod that are shown from its past; of all pods together, ``TAIL_LINES_OF_EACH`` each."""
TAIL_LINES_OF_EACH = 200
TAIL_BYTES = 4 * 1024 * 1024
"""Of the file of a deleted pod's log."""
MAX_UNSENT_LINES = 5000
"""A browser that reads slower than pods write misses the oldest lines."""
GATHER_SECONDS = 0.1
FIRST_SECONDS = 1.0
"""After this time, the first lines are sent even if there are none."""
FIRST_GATHER_SECONDS = 0.5
"""At the start, the lines of all pods within this time are put in the order of their times."""
_EPOCH = datetime.fromtimestamp(0, UTC)
LONGEST_LINE = 4000
"""Characters; the rest is cut off."""

Line = tuple[str, str]
"""The name of the pod, and the text."""


class _Unsent:
    """Lines on their way to the browser."""

    def __init__(self) -> None:
        self._lines: deque[tuple[datetime, Line]] = deque()
        self._dropped = 0
        self.changed = asyncio.Event()

    def writer(self, pod: Manifest, container: str) -> Write:
        """Return a writer of lines with their times."""
        name, last = str(pod["metadata"]["name"]), _EPOCH

        def write(data: bytes) -> None:
            nonlocal last
            for line in data.split(b"\n")[:-1]:
                time, _, text = line.partition(b" ")
                at = _timestamp(time)
                last = at or last
                self.add((name, clean(text if at else line)), last)

        return write

    def add(self, line: Line, at: datetime) -> None:
        self._lines.append((at, line))
        if len(self._lines) > MAX_UNSENT_LINES:
            self._lines.popleft()
            self._dropped += 1
        self.changed.set()

    def take(self) -> list[Line]:
        """Return the lines since the last call in the order of their times, after a line that says how many are missing."""
        lines = [line for _, line in sorted(self._lines, key=lambda found: found[0])]
        if self._dropped:
            lines.insert(0, ("", f"… {self._dropped} lines are left out"))
        self._lines.clear()
        self._dropped = 0
        self.changed.clear()
        return lines


def clean(line: bytes) -> str:
    """Return the line as a terminal would show it: without control sequences, the last state of one that is overwritten."""
    return clean_line(line.decode(errors="replace"), LONGEST_LINE)


async def follow_logs(
    cluster: Cluster, served: ServedResource, job: Object, pod_name: str, container: str
) -> AsyncGenerator[list[Line]]:
    """Yield lines of the job's pods as they are written, until the job has finished. Empty names stand for all pods, and for the default container.

    The first list may be empty: it tells that the logs are followed.
    """
    unsent = _Unsent()
    lines_of_each = min(TAIL_LINES_OF_EACH, MAX_UNSENT_LINES // max(desired_pods(job), 1))

    def container_of(pod: Manifest) -> str:
        names = container_names(pod)
        return container if container in names else names[0]

    follower = JobLogFollower(
        cluster,
        served,
        job,
        {"follow": "true", "tailLines": str(TAIL_LINES if pod_name else lines_of_each)},
        container_of=container_of,
        writer_of=unsent.writer,
        timestamps=True,
        pod_name=pod_name,
    )
    task = asyncio.create_task(_follow(follower, unsent))
    task.add_done_callback(lambda _: unsent.changed.set())
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await unsent.changed.wait()
        await asyncio.sleep(FIRST_GATHER_SECONDS if not pod_name else GATHER_SECONDS)
        yield unsent.take()
        while not task.done():
            await unsent.changed.wait()
            await asyncio.sleep(GATHER_SECONDS)
            if lines := unsent.take():
                yield lines
        if lines := unsent.take():
            yield lines
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _follow(follower: JobLogFollower, unsent: _Unsent) -> None:
    """Follow; an error becomes the last line."""
    try:
        await follower.follow()
    except* (ApiError, CommandError, aiohttp.ClientError, OSError) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        unsent.add(("", f"… the log cannot be read: {clean(str(error).encode())}"), datetime.now(UTC))


def _timestamp(word: bytes) -> datetime | None:
    """Return the time with which a kubelet begins a line; None if the word is none, as in a message of the kubelet."""
    try:
        return parse_time(word.decode())
    except ValueError:
        return None


def archived_lines(
    archive: LogArchive, key: Key, uid: str, container: str, run: int | None = None
) -> list[Line]:
    """Return the last lines of a run of a container, by default of the newest one, of a pod that a job of this key owned.

    An unknown container stands for the default one: no part of the file's path comes from the request.
    """
    kind, namespace, name = key
    pod = next((pod for pod in archive.pods(namespace) if pod.uid == uid), None)
    if pod is None or not pods_of_job([pod], kind, name):
        return []
    runs = _runs(pod, container)
    chosen = runs[-1:] if run is None else runs[run : run + 1]
    return [(pod.name, text) for _, text in _timed_lines(chosen, TAIL_LINES)]


def archived_lines_of_job(archive: LogArchive, key: Key, uid: str) -> list[Line]:
    """Return the last lines of all pods of a deleted job, in the order of their times: of the default container, all its runs."""
    kind, namespace, name = key
    job = {"metadata": {"uid": uid, "creationTimestamp": ""}}
    pods = pods_of_job(archive.pods(namespace), kind, name, job)
    return merged_lines([(pod, _runs(pod, "")) for pod in pods])


def earlier_lines(archive: LogArchive, job: Object, existing: Collection[str]) -> list[Line]:
    """Return the last lines of the earlier starts of a job: of its deleted pods, and of all but the newest run of the ``existing`` pods."""
    metadata = job["metadata"]
    pods = archive.pods_of_job(metadata["namespace"], job["kind"], metadata["name"], dict(job))
    return merged_lines(
        [(pod, _runs(pod, "")[:-1] if pod.uid in existing else _runs(pod, "")) for pod in pods]
    )


def merged_lines(runs: Sequence[tuple[ArchivedPod, Sequence[Path]]]) -> list[Line]:
    """Return the last lines of these runs in the order of their times, at most ``MAX_UNSENT_LINES``."""
    lines = [
        (at, pod.name, text) for pod, files in runs for at, text in _timed_lines(files, TAIL_LINES_OF_EACH)
    ]
    lines.sort(key=lambda line: line[0])
    return [(pod, text) for _, pod, text in lines[-MAX_UNSENT_LINES:]]


def _runs(pod: ArchivedPod, container: str) -> list[Path]:
    """Return the log files of a container; an unknown one stands for the default one."""
    names = container_names(pod.manifest)
    return pod.runs(container if container in names else names[0]) if names else []


def _timed_lines(runs: Iterable[Path], count: int) -> Iterator[tuple[datetime, str]]:
    """Yield the last ``count`` lines of each run, of at most ``TAIL_BYTES``; none of a file that cannot be read."""
    for file in runs:
        with suppress(OSError):
            for at, line in Log(file, ended=True).timed_tail(count, TAIL_BYTES):
                yield at, clean(line.rstrip(b"\n"))
