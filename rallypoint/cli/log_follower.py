"""Follows the logs of all pods of a job, also of pods and container runs that start later."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from api.batch import BATCH_JOBS
from api.meta import PODS
from controller.kube.errors import ApiError, NotFound
from controller.runtime.informer import Informer
from rallypoint.cli.cluster import Cluster, Object, ServedResource
from rallypoint.diagnosis.objects import is_condition_true, is_finished, is_pod_terminal, owners_of
from rallypoint.local.manifest import Manifest, Row, decode

SETTLE_SECONDS = 3.0
"""After the job has finished, following ends once its pods have ended, or have been silent for this long."""

BAD_REQUEST = 400
"""The answer of a node that has no log of a container yet."""
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")

Write = Callable[[bytes], None]
"""Gets whole lines of one container."""


@dataclass(slots=True)
class JobLogFollower:
    """Streams the logs of the pods that ``owner`` owns, directly or through a batch Job, until it has finished.

    ``container_of`` returns the container to follow, ``writer_of`` where its output goes. ``query`` is the query of the first stream of each
    container; later runs of a container are shown from their start.
    """

    cluster: Cluster
    served: ServedResource
    owner: Object
    query: Mapping[str, str]
    container_of: Callable[[Manifest], str]
    writer_of: Callable[[Manifest, str], Write]
    timestamps: bool = False
    """Whether to write the time of each line."""
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
        """Follow until the owner has finished or is gone.

        Raises:
            ApiError: the server refused a log.
            aiohttp.ClientError, TimeoutError, OSError: the server does not answer.
        """
        with _quiet_informers():
            await self._run()

    async def _run(self) -> None:
        name, uid = self.owner["metadata"]["name"], self.owner["metadata"]["uid"]
        self._owners.add(uid)
        namespace, client = self.cluster.namespace, self.cluster.client
        informers = [
            *(
                [Informer(client, BATCH_JOBS, decode, self._batch_job_changed, namespace=namespace)]
                if self.served.has_batch_jobs
                else []
            ),
            Informer(client, PODS, decode, self._pod_changed, namespace=namespace),
            Informer(
                client,
                self.served.resource,
                decode,
                self._owner_changed,
                namespace=namespace,
                field_selector=f"metadata.name={name}",
            ),
        ]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(informer.run()) for informer in informers]
            for informer in informers:
                await informer.settled.wait()
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

    def _follow_new_pods(self, tasks: asyncio.TaskGroup, followed: dict[str, asyncio.Task[None]]) -> None:
        for uid, pod in list(self._pods.items()):
            if uid not in followed and self._owners & owners_of(pod):
                followed[uid] = tasks.create_task(self._follow_pod(uid))

    async def _settle(self, followed: list[asyncio.Task[None]]) -> None:
        """Wait until all tasks are done, or nothing has arrived for a while."""
        time = asyncio.get_running_loop().time
        self._last_output = time()
        pending = {task for task in followed if not task.done()}
        while pending and (remaining := self._last_output + SETTLE_SECONDS - time()) > 0:
            _, pending = await asyncio.wait(pending, timeout=remaining)

    async def _follow_pod(self, uid: str) -> None:
        """Stream each run of the pod's container as soon as it has started.

        A log request names no run, and the pod's status may be older than the container: the times of the lines show what is already
        written. Of several runs that end between two statuses, the node has the logs of the last two.
        """
        pod = self._pods[uid]
        container = self.container_of(pod)
        next_run = (newest_run(pod, container) or 0) if uid in self._old_pods else 0
        query, written_until = self.query, b""
        while pod := self._pods.get(uid, {}):
            changed = self._changed
            run = newest_run(pod, container)
            if run is not None and run >= next_run:
                if run > next_run:
                    earlier = {**query, "follow": "false", "previous": "true"}
                    written_until = (
                        await self._stream(pod, container, earlier, written_until) or written_until
                    )
                last = await self._stream(pod, container, query, written_until)
                if last is None:
                    await changed.wait()
                    continue
                next_run, query, written_until = run + 1, {"follow": "true"}, last
            elif is_pod_terminal(pod):
                return
            else:
                await changed.wait()

    async def _stream(
        self, pod: Manifest, container: str, query: Mapping[str, str], written_until: bytes
    ) -> bytes | None:
        """Write the lines of one run that are newer than ``written_until`` and return the time of the last one.

        Return None if the node has no log of it yet, or no longer.
        """
        lines = _NewLines(self.writer_of(pod, container), written_until, stamped=self.timestamps)
        path = PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"], "log")
        try:
            async with self.cluster.client.stream(
                path, {**query, "container": container, "timestamps": "true"}, accept="*/*", endless=True
            ) as stream:
                async for chunk in stream.iter_any():
                    self._last_output = asyncio.get_running_loop().time()
                    lines.add(chunk)
        except ApiError as error:
            if not isinstance(error, NotFound) and error.code != BAD_REQUEST:
                raise
            return None
        finally:
            lines.end()
        return lines.last

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


class _NewLines:
    """Splits a log with timestamps into lines, and passes on those that are newer than ``after``."""

    def __init__(self, write: Write, after: bytes, *, stamped: bool) -> None:
        self.last = after
        """The time of the newest line. Times of one node have one format and sort as text."""
        self._write = write
        self._after = after
        self._stamped = stamped
        self._rest = b""

    def add(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._write(b"".join(self._shown(line) + b"\n" for line in lines if self._is_new(line)))

    def end(self) -> None:
        """Pass on the last line if it has no end."""
        if self._rest:
            self.add(b"\n")

    def _is_new(self, line: bytes) -> bool:
        time = _time_of(line)
        self.last = max(self.last, time)
        return not time or time > self._after

    def _shown(self, line: bytes) -> bytes:
        time = b"" if self._stamped else _time_of(line)
        return line[len(time) + 1 :] if time else line


def _time_of(line: bytes) -> bytes:
    """Return the timestamp before the first space; empty if there is none, as in a message of the kubelet."""
    time, _, _ = line.partition(b" ")
    return time if _TIME.fullmatch(time) else b""


@contextmanager
def _quiet_informers() -> Iterator[None]:
    """Log nothing: the retries of an informer are no output of a command."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


def has_finished(owner: Manifest) -> bool:
    """Return whether a training job or a batch Job has finished."""
    return is_finished(owner) or is_condition_true(owner, "Complete")


def newest_run(pod: Manifest, container: str) -> int | None:
    """Return the number of the newest run of the container that has started, from 0; None if none has."""
    status = pod.get("status") or {}
    for entry in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        if entry["name"] == container:
            states = {*(entry.get("state") or {}), *(entry.get("lastState") or {})}
            return int(entry.get("restartCount") or 0) if states & {"running", "terminated"} else None
    return None
