"""Workers take keys from a queue, one pass at a time per key, and turn each outcome into what the queue does next.

This is the one place where a failed pass is logged and counted; no failure of a pass ends a worker.

Source: controller-runtime, pkg/internal/controller/controller.go.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import aiohttp
import structlog

from controller.kube.errors import ApiError, Conflict
from controller.runtime.queue import Closed, Queue

K = TypeVar("K")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a pass ended. 0 seconds means: again at once.

    A ``failure`` is logged and counted, but holds nothing up: the pass has seen to when it is tried again.
    """

    requeue_after_seconds: float | None = None
    failure: Exception | None = None


class Result(StrEnum):
    """The values of the metric label ``result``."""

    SUCCESS = "success"
    REQUEUE_AFTER = "requeue_after"
    ERROR = "error"


class Observer(Protocol):
    """What is told of each pass; times in seconds."""

    def started(self, waited: float) -> None: ...
    def ended(self, result: Result, took: float) -> None: ...
    def panicked(self) -> None: ...


class Unwatched:
    """An observer that does not look."""

    def started(self, waited: float) -> None: ...
    def ended(self, result: Result, took: float) -> None: ...
    def panicked(self) -> None: ...


class Workers(Generic[K]):
    """``count`` workers on one queue."""

    def __init__(
        self,
        queue: Queue[K],
        work: Callable[[K], Awaitable[Outcome]],
        *,
        count: int,
        name: str,
        observer: Observer | None = None,
    ) -> None:
        self._queue = queue
        self._work = work
        self._count = count
        self._observer = observer or Unwatched()
        self._log = log.bind(controller=name)

    async def run(self) -> None:
        """Until cancelled or until the queue is closed and every pass under way is over."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._count):
                group.create_task(self._run_one())

    async def _run_one(self) -> None:
        while True:
            try:
                key, waited = await self._queue.get()
            except Closed:
                return
            self._observer.started(waited)
            started = asyncio.get_running_loop().time()
            result = Result.ERROR
            try:
                result = await self._pass(key)
            finally:
                self._observer.ended(result, asyncio.get_running_loop().time() - started)
                self._queue.done(key)

    async def _pass(self, key: K) -> Result:
        try:
            outcome = await self._work(key)
        except Conflict as error:
            pause = self._queue.add_failed(key)
            self._log.info(
                "pass overtaken, again soon", key=str(key), error=error.message, pause_seconds=pause
            )
            return Result.ERROR
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            pause = self._queue.add_failed(key)
            self._log.warning(
                "pass failed", key=str(key), error=str(error) or repr(error), pause_seconds=pause
            )
            return Result.ERROR
        except Exception:  # noqa: BLE001 - a defect met by one key must not stop the others
            pause = self._queue.add_failed(key)
            self._observer.panicked()
            self._log.exception("pass broke", key=str(key), pause_seconds=pause)
            return Result.ERROR
        self._queue.forget(key)
        due = outcome.requeue_after_seconds
        if due is not None:
            self._queue.add_after(key, due)
        if outcome.failure is not None:
            text = str(outcome.failure) or repr(outcome.failure)
            self._log.warning("pass failed", key=str(key), error=text, pause_seconds=due)
            return Result.ERROR
        return Result.SUCCESS if due is None else Result.REQUEUE_AFTER
