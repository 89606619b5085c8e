"""Follow submitted jobs to their end: what informers and the node's logs say, put on a screen."""

import asyncio
import contextlib
from collections.abc import Iterable

from api.meta import PODS, Resource
from controller.kube.client import Client
from controller.runtime.informer import Informer
from rallypoint.local.lines import Lines
from rallypoint.local.manifest import Manifest, Row, decode
from rallypoint.local.node.pods import dns_wait
from rallypoint.local.node.streams.logs import Logs
from rallypoint.local.progress import News, Progress, short_name
from rallypoint.local.screen import Screen

REFRESH_SECONDS = 0.25
SETTLE_SECONDS = 3.0
"""How long the pods of jobs that have succeeded may go on to end by themselves before they are stopped."""


class Follow:
    """Shows ``progress`` on ``screen`` and keeps it true."""

    def __init__(self, progress: Progress, screen: Screen) -> None:
        self._progress = progress
        self._screen = screen
        self._lines = Lines(self._line)
        self._changed = asyncio.Event()
        self._pods: Informer[Row] | None = None

    def listen(self, logs: Logs) -> None:
        """Show what containers write from now on."""
        logs.listen(self._lines.take)

    async def watch(self, client: Client, resources: Iterable[Resource]) -> None:
        """Take in the changes of jobs and pods, until cancelled."""
        self._pods = Informer(client, PODS, decode, self._pod_changed)
        async with asyncio.TaskGroup() as tasks:
            for resource in dict.fromkeys(resources):
                tasks.create_task(Informer(client, resource, decode, self._job_changed).run())
            tasks.create_task(self._pods.run())

    def submitted(self, kind: str, created: Manifest) -> None:
        """A job has been created. Its pods may have been seen before we knew that it is ours."""
        self._progress.add(kind, created)
        for row in self._pods.store if self._pods is not None else ():
            self._pod_changed(None, row)

    async def until_finished(self, stop: asyncio.Event) -> None:
        """Wait until all jobs are finished and their pods have had a moment to end, or until ``stop``."""
        while not (self._progress.finished or stop.is_set()):
            await self._next()
        loop = asyncio.get_running_loop()
        latest = loop.time() + (SETTLE_SECONDS if self._progress.succeeded else 0.0)
        while not (self._progress.quiet or stop.is_set()) and loop.time() < latest:
            await self._next()

    async def _next(self) -> None:
        """Wait for a change or for the next redraw, then draw."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_SECONDS):
                await self._changed.wait()
        self._changed.clear()
        self._screen.refresh()

    def _job_changed(self, before: Row | None, after: Row | None) -> None:
        self._note(self._progress.see_job(before, after))

    def _pod_changed(self, before: Row | None, after: Row | None) -> None:
        self._note(self._progress.see_pod(before, after))

    def _note(self, news: list[News]) -> None:
        for one in news:
            self._screen.note(one.text, in_table=one.in_table)
        self._changed.set()

    def _line(self, pod: Manifest, container: str, line: str) -> None:
        job = self._progress.job_of(pod)
        if job is None:
            return
        spec = pod["spec"]
        init = next((one for one in spec.get("initContainers") or () if one["name"] == container), None)
        if init is not None and dns_wait.of(init) is not None:
            return  # The node's own words; the table says that the replica waits.
        prefix = self._progress.prefix(job, short_name(job, pod))
        alone = init is None and len(spec["containers"]) == 1
        self._screen.output(prefix if alone else f"{prefix}/{container}", line)
