"""Observes the progress of running jobs in the background, one task per job.

While a job is well, one pod is read every tenth of the deadline: that whose progress was seen last. Only when it is silent are the others
read. What a monitor knows is lost with its process. Then, and whenever pods of the job change, the clock begins again.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from zlib import crc32

import aiohttp
import structlog

from controller.domain import Hang
from controller.kube import errors
from controller.kube.client import Client
from controller.kube.remote_command import CommandError
from controller.policy.hangs import JobProgress, ObservedJob, RunningPod
from controller.reconcile.progress.sources import Source, Unread, source_for
from controller.reconcile.progress.stacks import StackCollector

READS_PER_DEADLINE: Final = 10
SHORTEST_INTERVAL_SECONDS: Final = 1.0
COMMANDS_AT_ONCE: Final = 16
"""How many commands that report progress run at once, of all jobs."""
_FAILURES: Final = (Unread, CommandError, errors.ApiError, aiohttp.ClientError, TimeoutError, OSError)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ProgressState:
    """What is known about a job: the hang of its present pods, and why its progress cannot be read, empty if it can."""

    hang: Hang | None = None
    unread: str = ""


_UNKNOWN: Final = ProgressState()


class ProgressMonitor:
    """Observes jobs while ``run`` runs."""

    def __init__(self, client: Client, now: Callable[[], datetime]) -> None:
        """``client`` is one of its own: reads from slow nodes must not slow down the reconciler's calls. ``now`` is the server's time."""
        self._client = client
        self._now = now
        self._collector = StackCollector(client)
        self._commands = asyncio.Semaphore(COMMANDS_AT_ONCE)
        self._jobs: dict[str, _Observation] = {}
        """By the UIDs of the jobs."""
        self._starting: asyncio.Queue[_Observation] = asyncio.Queue()

    def observe(self, uid: str, job: ObservedJob | None, then: Callable[[], None]) -> ProgressState:
        """Observe a job, or no longer if it is None, and return what is known. ``then`` is called when that changes."""
        current = self._jobs.get(uid)
        if current is not None and current.job == job:
            return current.state
        self.discard(uid)
        if job is not None:
            started = self._jobs[uid] = _Observation(
                job,
                source_for(self._client, job.progress, self._commands),
                self._collector,
                then,
                self._now,
                phase=crc32(uid.encode()) / 2**32,
            )
            self._starting.put_nowait(started)
        return _UNKNOWN

    def discard(self, uid: str) -> None:
        """Observe a job no longer."""
        if current := self._jobs.pop(uid, None):
            current.stop()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                started = await self._starting.get()
                if not started.is_stopped:
                    started.task = group.create_task(started.run())


class _Observation:
    """The task of one job."""

    def __init__(
        self,
        job: ObservedJob,
        source: Source,
        collector: StackCollector,
        then: Callable[[], None],
        now: Callable[[], datetime],
        *,
        phase: float,
    ) -> None:
        """``phase``, from 0 to 1, spreads the reads of jobs that begin together, as when the operator starts."""
        self.job = job
        self.state = _UNKNOWN
        self.is_stopped = False
        self.task: asyncio.Task[None] | None = None
        self._source = source
        self._collector = collector
        self._then = then
        self._now = now
        self._phase = phase
        self._interval = max(job.deadline_seconds / READS_PER_DEADLINE, SHORTEST_INTERVAL_SECONDS)
        self._blind_since: float | None = None
        """Since when no poll could read all that it needed; None if the last one could."""
        self._error: Exception | None = None
        """Why the last failed read failed."""

    def stop(self) -> None:
        self.is_stopped = True
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        if self.job.not_before is not None:
            await asyncio.sleep((self.job.not_before - self._now()).total_seconds())
        progress = JobProgress(self.job, asyncio.get_running_loop().time())
        pause = self._interval * self._phase
        try:
            needed = self.job.pods
            while True:
                await asyncio.sleep(pause)
                await self._poll(progress, needed)
                needed = self.job.pods if self.job.progress.every_pod else (progress.newest,)
                pause = self._interval
        except Exception as error:
            log.exception(
                "progress of a job is not observed", namespace=self.job.namespace, job=self.job.name
            )
            self._publish(ProgressState(unread=f"internal error: {error!r}"))

    async def _poll(self, progress: JobProgress, needed: tuple[RunningPod, ...]) -> None:
        """Read the pods that are needed, then the others if these have made no progress."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        results = await self._read(progress, needed)
        if not any(results) and len(needed) < len(self.job.pods):
            results += await self._read(progress, [pod for pod in self.job.pods if pod not in needed])
        is_blind = None in results
        self._blind_since = (began if self._blind_since is None else self._blind_since) if is_blind else None
        if not progress.is_hung:
            is_reported = self._blind_since is not None and (
                isinstance(self._error, errors.Forbidden)
                or loop.time() - self._blind_since >= self.job.deadline_seconds
            )
            self._publish(ProgressState(unread=_text(self._error) if is_reported else ""))
        elif self.state.hang is None:
            stacks, note = await self._collector.collect(self.job, progress.silent())
            self._publish(ProgressState(progress.hang(stacks, note)))
            if self.job.progress.stack_signal:
                await self._skip_stacks(progress)

    async def _read(self, progress: JobProgress, pods: Iterable[RunningPod]) -> list[bool | None]:
        """Read pods, and return for each whether it has made progress; None if that is unknown."""
        return await asyncio.gather(*(self._read_one(progress, pod) for pod in pods))

    async def _read_one(self, progress: JobProgress, pod: RunningPod) -> bool | None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            reading = await self._source.read(self.job.namespace, pod)
        except _FAILURES as error:
            self._error = error
            return None
        return progress.pods[pod.uid].record(reading, began, loop.time())

    async def _skip_stacks(self, progress: JobProgress) -> None:
        """Read past the stacks that the signal has written into the logs: they are no progress."""
        before = {uid: pod.progressed_at for uid, pod in progress.pods.items()}
        await self._read(progress, self.job.pods)
        for uid, progressed_at in before.items():
            progress.pods[uid].progressed_at = progressed_at

    def _publish(self, state: ProgressState) -> None:
        if state != self.state:
            self.state = state
            self._then()


def _text(error: Exception | None) -> str:
    return errors.describe(error) if error is not None else ""
