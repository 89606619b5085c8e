"""Follows submitted jobs to their end and shows their changes and logs on a screen."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from api.meta import PODS, Resource
from controller.kube.client import Client
from controller.runtime.informer import Informer
from rallypoint.local.manifest import Manifest, Row, decode
from rallypoint.local.node.pods import dns_wait
from rallypoint.local.node.streams.logs import Logs
from rallypoint.local.progress import Change, Progress, short_name
from rallypoint.local.screen import Screen

REFRESH_SECONDS = 0.25
SETTLE_SECONDS = 3.0
"""The time for pods of succeeded jobs to end by themselves before they are stopped."""
MAX_LINE_BYTES = 64 * 1024
"""Longer lines are emitted in parts, so that a progress bar without a line end is shown."""


class Lines:
    """Splits the output of containers into lines. ``emit`` gets the pod, the container and a line without its end."""

    def __init__(self, emit: Callable[[Manifest, str, str], None]) -> None:
        self._emit = emit
        self._partial_lines: dict[tuple[str, str], bytes] = {}

    def add(self, pod: Manifest, container: str, data: bytes) -> None:
        """Add output; empty ``data`` ends the last line."""
        key = pod["metadata"]["uid"], container
        *lines, rest = (self._partial_lines.pop(key, b"") + data).split(b"\n")
        if rest and (not data or len(rest) > MAX_LINE_BYTES):
            lines.append(rest)
        elif rest:
            self._partial_lines[key] = rest
        for line in lines:
            # A terminal shows only what follows the last carriage return.
            self._emit(pod, container, line.decode(errors="replace").rstrip("\r").rpartition("\r")[2])


class Follow:
    """Updates ``progress`` and shows it on ``screen`` until ``stop``. Later changes are those of the stop itself, and are ignored."""

    def __init__(self, progress: Progress, screen: Screen, stop: asyncio.Event) -> None:
        self._progress = progress
        self._screen = screen
        self._stop = stop
        self._lines = Lines(self._show_line)
        self._changed = asyncio.Event()
        self._pods: Informer[Row] | None = None

    def listen(self, logs: Logs) -> None:
        """Show the output of containers from now on."""
        logs.listen(self._lines.add, self._note_loss)

    async def watch(self, client: Client, resources: Iterable[Resource]) -> None:
        """Apply the changes of jobs and pods until canceled."""
        self._pods = Informer(client, PODS, decode, self._pod_changed)
        async with asyncio.TaskGroup() as tasks:
            for resource in dict.fromkeys(resources):
                tasks.create_task(Informer(client, resource, decode, self._job_changed).run())
            tasks.create_task(self._pods.run())

    def submitted(self, kind: str, created: Manifest) -> None:
        """Add a created job. The informer may have reported its pods before."""
        self._progress.add(kind, created)
        for row in self._pods.store if self._pods is not None else ():
            self._pod_changed(None, row)

    async def until_finished(self) -> None:
        """Wait until all jobs are finished and their pods have had time to end, or until ``stop``."""
        while not (self._progress.finished or self._stop.is_set()):
            await self._next()
        loop = asyncio.get_running_loop()
        latest = loop.time() + (SETTLE_SECONDS if self._progress.succeeded else 0.0)
        while not (self._progress.all_pods_ended or self._stop.is_set()) and loop.time() < latest:
            await self._next()

    async def _next(self) -> None:
        """Wait for a change or for the next redraw, then draw."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_SECONDS):
                await self._changed.wait()
        self._changed.clear()
        self._screen.refresh()

    def _job_changed(self, before: Row | None, after: Row | None) -> None:
        if not self._stop.is_set():
            self._note(self._progress.update_job(before, after))

    def _pod_changed(self, before: Row | None, after: Row | None) -> None:
        if not self._stop.is_set():
            self._note(self._progress.update_pod(before, after))

    def _note(self, changes: list[Change]) -> None:
        for change in changes:
            self._screen.note(change.text, in_table=change.in_table)
        self._changed.set()

    def _note_loss(self, pod: Manifest, container: str, why: str) -> None:
        if prefix := self._prefix(pod, container):
            self._screen.note(f"{prefix}: the log is incomplete: {why}")

    def _show_line(self, pod: Manifest, container: str, line: str) -> None:
        if prefix := self._prefix(pod, container):
            self._screen.output(prefix, line)

    def _prefix(self, pod: Manifest, container: str) -> str:
        """Return the name of a container before its output; empty if its output is not shown."""
        job = self._progress.job_of(pod)
        if job is None:
            return ""
        spec = pod["spec"]
        init = next((entry for entry in spec.get("initContainers") or () if entry["name"] == container), None)
        if init is not None and dns_wait.of(init) is not None:
            return ""  # The node's own output; the table shows that the replica waits.
        prefix = self._progress.prefix(job, short_name(job, pod))
        alone = init is None and len(spec["containers"]) == 1
        return prefix if alone else f"{prefix}/{container}"
