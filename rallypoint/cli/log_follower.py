"""Follows the logs of all pods of a job, also of pods and container runs that start later."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

import aiohttp
import structlog

from api.batch import BATCH_JOBS
from api.labels import JOB_NAME
from api.meta import PODS
from controller.kinds import ALL
from controller.kube.errors import ApiError, NotFound, ServerError, TooManyRequests
from controller.runtime.informer import Informer
from rallypoint.cli.cluster import Cluster, CommandError, Object, ServedResource
from rallypoint.diagnosis.objects import (
    all_container_statuses,
    is_condition_true,
    is_finished,
    is_pod_terminal,
    owners_of,
)
from rallypoint.local.manifest import Manifest, Row, decode

SETTLE_SECONDS = 3.0
"""After the job has finished, following ends once its pods have ended, or have been silent for this long."""
LONGEST_SETTLE_SECONDS = 30.0
"""Following ends this long after the job has finished, whatever its pods still write."""
REOPEN_SECONDS = 1.0
"""The wait before a stream that broke is opened again; doubled up to ``LONGEST_REOPEN_SECONDS`` while no line arrives."""
LONGEST_REOPEN_SECONDS = 10.0
MAX_LINE_BYTES = 1024 * 1024
"""Of a longer line, only what follows its last carriage return is shown so far; the rest is shown in parts."""

BAD_REQUEST = 400
"""The answer of a node that has no log of a container yet."""
_FOLLOW = {"follow": "true"}
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")

Write = Callable[[bytes], None]
"""Gets whole lines of one container."""


@dataclass(slots=True)
class JobLogFollower:
    """Streams the logs of the pods that ``owner`` owns, directly or through a batch Job, until it has finished.

    ``container_of`` returns the container to follow, None to leave out the pod; ``writer_of`` where its output goes. ``query`` is the query of
    the first stream of each pod that exists at the start; later pods and later runs of a container are shown from their start.
    """

    cluster: Cluster
    served: ServedResource
    owner: Object
    query: Mapping[str, str]
    container_of: Callable[[Manifest], str | None]
    writer_of: Callable[[Manifest, str], Write]
    timestamps: bool = False
    """Whether to write the time of each line."""
    settle_seconds: float = SETTLE_SECONDS
    pod_name: str = ""
    """Follow only pods of this name; empty for all."""
    _pods: dict[str, Manifest] = field(default_factory=dict)
    """The pods by UID."""
    _owners: set[str] = field(default_factory=set)
    """The UIDs of the owner and of its batch Jobs."""
    _old_pods: set[str] = field(default_factory=set)
    """The UIDs of the pods that existed at the start. Only the newest run of their containers is shown."""
    _is_finished: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _last_output: float = 0.0
    """Loop time."""

    async def run(self) -> None:
        """Follow as ``follow`` does, in a process whose only output is that of the writers."""
        with _quiet_informers():
            await self.follow()

    async def follow(self) -> None:
        """Follow until the owner has finished or is gone.

        Raises:
            ApiError: the server refused a log.
            CommandError: the server refuses to list the owner or its pods.
            aiohttp.ClientError, TimeoutError, OSError: the server does not answer.
        """
        name, uid = self.owner["metadata"]["name"], self.owner["metadata"]["uid"]
        self._owners.add(uid)
        namespace, client = self.cluster.namespace, self.cluster.client
        informers = [
            *(
                [Informer(client, BATCH_JOBS, decode, self._batch_job_changed, namespace=namespace)]
                if self.served.has_batch_jobs
                else []
            ),
            Informer(
                client, PODS, decode, self._pod_changed, namespace=namespace, label_selector=self._selector()
            ),
            Informer(
                client,
                self.served.resource,
                decode,
                self._owner_changed,
                namespace=namespace,
                field_selector=f"metadata.name={name}",
            ),
        ]
        owners = informers[-1].store
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(informer.run()) for informer in informers]
            for informer in informers:
                await informer.settled.wait()
                if informer.unserved.is_set():
                    await _raise_refusal(informer)
            # An owner that was deleted before the list causes no change.
            self._is_finished = self._is_finished or all(row.uid != uid for row in owners)
            followed: dict[str, asyncio.Task[None]] = {}
            self._old_pods.update(self._pods)
            while not self._is_finished:
                changed = self._changed
                self._follow_new_pods(tasks, followed)
                await changed.wait()
            self._follow_new_pods(tasks, followed)
            await self._settle(list(followed.values()))
            for task in (*running, *followed.values()):
                task.cancel()

    def _selector(self) -> str:
        """Return the label that all pods of a training job have; empty for other owners."""
        return f"{JOB_NAME}={self.owner['metadata']['name']}" if _is_training_job(self.served) else ""

    def _follow_new_pods(self, tasks: asyncio.TaskGroup, followed: dict[str, asyncio.Task[None]]) -> None:
        for uid, pod in list(self._pods.items()):
            is_selected = self.pod_name in ("", pod["metadata"]["name"])
            if uid not in followed and is_selected and self._owners & owners_of(pod):
                followed[uid] = tasks.create_task(self._follow_pod(uid))

    async def _settle(self, followed: list[asyncio.Task[None]]) -> None:
        """Wait until all tasks are done, or nothing has arrived for a while, but not for long."""
        time = asyncio.get_running_loop().time
        self._last_output = time()
        end = self._last_output + LONGEST_SETTLE_SECONDS
        pending = {task for task in followed if not task.done()}
        while pending and (remaining := min(self._last_output + self.settle_seconds, end) - time()) > 0:
            _, pending = await asyncio.wait(pending, timeout=remaining)

    async def _follow_pod(self, uid: str) -> None:
        """Stream each run of the pod's container as soon as it has started, again after a stream that broke.

        A log request names no run, and the pod's status may be older than the container: the times of the lines show what is already
        written. Of several runs that end between two statuses, the node has the logs of the last two.
        """
        pod = self._pods[uid]
        container = self.container_of(pod)
        if container is None:
            return
        is_old = uid in self._old_pods
        next_run = (newest_run(pod, container) or 0) if is_old else 0
        query = self.query if is_old else _FOLLOW
        lines, pause = NewLines(self.writer_of(pod, container), stamped=self.timestamps), REOPEN_SECONDS
        while pod := self._pods.get(uid, {}):
            run = newest_run(pod, container)
            if run is None or run < next_run:
                if is_pod_terminal(pod):
                    return
                await self._next_version(pod)
                continue
            before = lines.last
            if run > next_run:
                await self._stream(pod, container, {**query, "follow": "false", "previous": "true"}, lines)
                next_run, query = run, _FOLLOW
            is_answered = await self._stream(pod, container, query, lines)
            query = {**_FOLLOW, "sinceTime": lines.last.decode()} if lines.last else query
            query = {name: value for name, value in query.items() if name != "previous"}
            current = self._pods.get(uid, pod)
            if _has_ended(current, container, run) and (
                is_answered or (is_answered is None and is_pod_terminal(current))
            ):
                next_run, query = run + 1, _FOLLOW
                continue
            # The status is older than the end of the container, the node has no log of it, or the stream broke.
            pause = REOPEN_SECONDS if lines.last != before else min(pause * 2, LONGEST_REOPEN_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._next_version(pod)

    async def _next_version(self, pod: Manifest) -> None:
        """Wait until the pod has changed or is gone."""
        while self._pods.get(pod["metadata"]["uid"]) is pod:
            await self._changed.wait()

    async def _stream(
        self, pod: Manifest, container: str, query: Mapping[str, str], lines: "NewLines"
    ) -> bool | None:
        """Write the new lines of one run; return whether the node sent its log to the end, None if it has no log of it."""
        path = PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"], "log")
        lines.restart()
        try:
            async with self.cluster.client.stream(
                path, {**query, "container": container, "timestamps": "true"}, accept="*/*", endless=True
            ) as stream:
                async for chunk in stream.iter_any():
                    self._last_output = asyncio.get_running_loop().time()
                    lines.add(chunk)
        except ApiError as error:
            if isinstance(error, NotFound) or error.code == BAD_REQUEST:
                return None
            if not isinstance(error, (ServerError, TooManyRequests)):
                raise
            return False
        except (aiohttp.ClientError, TimeoutError):
            return False
        lines.end()
        return True

    def _pod_changed(self, before: Row | None, after: Row | None) -> None:
        if before is not None:
            self._pods.pop(before.uid, None)
        if after is not None:
            self._pods[after.uid] = after.manifest
        self._wake()

    def _batch_job_changed(self, before: Row | None, after: Row | None) -> None:
        if after is not None and self._owners & owners_of(after.manifest):
            self._owners.add(after.uid)
            self._wake()

    def _owner_changed(self, before: Row | None, after: Row | None) -> None:
        is_same = after is not None and after.uid == self.owner["metadata"]["uid"]
        if after is None or not is_same or has_finished(after.manifest):
            self._is_finished = True
        self._wake()

    def _wake(self) -> None:
        """Wake the waiting tasks: each waits for the event that was current when it read the state."""
        self._changed.set()
        self._changed = asyncio.Event()


class NewLines:
    """Splits the log of a container with timestamps into lines, and passes on those that no earlier stream had.

    Times of one node have one format and sort as text. Several lines can have the same time.
    """

    def __init__(self, write: Write, *, stamped: bool) -> None:
        self.last = b""
        """The time of the newest line."""
        self._write = write
        self._stamped = stamped
        self._rest = bytearray()
        self._lines_at_last = 0
        self._after = b""
        self._repeated = 0
        """How many lines with the time ``_after`` this stream can repeat."""

    def restart(self) -> None:
        """Expect another stream, which may repeat lines. A line of the last one that broke off is read again."""
        self._rest.clear()
        self._after, self._repeated = self.last, self._lines_at_last

    def add(self, data: bytes) -> None:
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            lines = (bytes(self._rest) + head).split(b"\n")
            self._rest = bytearray(tail)
            self._write(b"".join(self._shown(line) + b"\n" for line in lines if self._is_new(line)))
        else:
            self._rest += data
        if len(self._rest) > MAX_LINE_BYTES:
            line = bytes(self._rest)
            self._rest.clear()
            if self._is_new(line):
                self._write(self._shown(line).rpartition(b"\r")[2] + b"\n")

    def end(self) -> None:
        """Pass on the last line if it has no end."""
        if self._rest:
            self.add(b"\n")

    def _is_new(self, line: bytes) -> bool:
        time = _time_of(line)
        if time and time < self._after:
            return False
        if time and time == self._after and self._repeated:
            self._repeated -= 1
            return False
        if time > self.last:
            self.last, self._lines_at_last = time, 0
        self._lines_at_last += time == self.last
        return True

    def _shown(self, line: bytes) -> bytes:
        time = b"" if self._stamped else _time_of(line)
        return line[len(time) + 1 :] if time else line


def _time_of(line: bytes) -> bytes:
    """Return the timestamp before the first space; empty if there is none, as in a message of the kubelet."""
    time, _, _ = line.partition(b" ")
    return time if _TIME.fullmatch(time) else b""


@contextmanager
def _quiet_informers() -> Generator[None]:
    """Log nothing: the retries of an informer are no output of a command."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


async def _raise_refusal(informer: Informer[Row]) -> NoReturn:
    """Raises:
    CommandError: the reason why the server does not list the resource.
    aiohttp.ClientError, TimeoutError: the server does not answer.
    """
    why = "the server refuses it"
    try:
        await informer.source.probe()
    except ApiError as error:
        why = error.message
    raise CommandError(f"cannot watch {informer.resource.plural}: {why}")


def owns_pods(served: ServedResource) -> bool:
    """Return whether objects of this kind create pods and finish."""
    return _is_training_job(served) or served.resource.kind == BATCH_JOBS.kind


def _is_training_job(served: ServedResource) -> bool:
    return served.resource.kind in {kind.resource.kind for kind in ALL}


def has_finished(owner: Manifest) -> bool:
    """Return whether a training job or a batch Job has finished."""
    return is_finished(owner) or is_condition_true(owner, "Complete")


def newest_run(pod: Manifest, container: str) -> int | None:
    """Return the number of the newest run of the container that has started, from 0; None if none has."""
    status = _container_status(pod, container)
    states = {*(status.get("state") or {}), *(status.get("lastState") or {})}
    return int(status.get("restartCount") or 0) if states & {"running", "terminated"} else None


def _has_ended(pod: Manifest, container: str, run: int) -> bool:
    """Return whether the pod's status shows that this run of the container has ended."""
    is_running = "running" in (_container_status(pod, container).get("state") or {})
    return not is_running or (newest_run(pod, container) or 0) > run


def _container_status(pod: Manifest, container: str) -> Manifest:
    return next((status for status in all_container_statuses(pod) if status["name"] == container), {})
