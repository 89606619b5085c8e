"""Workers take keys from a queue, one pass at a time per key, and turn each outcome into what the queue does next.

This is the one place where a failed pass is logged and counted; no failure of a pass ends a worker.

Source: controller-runtime, pkg/internal/controller/controller.go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar, TypeVarTuple

import aiohttp
import structlog

from controller.kube.errors import ApiError, Conflict, NotLeading
from controller.runtime.queue import Closed, Queue

K = TypeVar("K", bound=Hashable)
Ts = TypeVarTuple("Ts")

LONGEST_RECONCILE_SECONDS = 600.0
"""A pass that takes longer hangs: each of its calls ends by itself well before. It is cut off, counted and tried again.

Writes that are cut off may have been done. The next pass meets them as it meets those whose answer was lost.
Differs: controller-runtime sets no such limit by default.
"""
NOT_LEADING_SECONDS = 1.0
"""When a pass that was not allowed to write is tried again; usually the queue is closed by then."""

log = structlog.get_logger()


class Terminal(Exception):
    """Trying again would not help, only a change of the object; whoever raises it has said so in a condition."""


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """How a pass ended. 0 seconds means: again at once.

    A ``failure`` is logged and counted, but holds nothing up: the pass has seen to when it is tried again, if it is.
    """

    requeue_after_seconds: float | None = None
    failure: Exception | None = None


class Result(StrEnum):
    """The values of the metric label ``result``."""

    SUCCESS = "success"
    REQUEUE_AFTER = "requeue_after"
    ERROR = "error"


class Observer(Protocol):
    """What is told of each pass; times in seconds. The last three come before ``ended`` with an error."""

    def started(self, waited: float) -> None: ...
    def ended(self, result: Result, took: float) -> None: ...
    def failed_for_good(self) -> None: ...
    def panicked(self) -> None: ...
    def timed_out(self) -> None: ...


class NullObserver:
    """An observer that does not look."""

    def started(self, waited: float) -> None: ...
    def ended(self, result: Result, took: float) -> None: ...
    def failed_for_good(self) -> None: ...
    def panicked(self) -> None: ...
    def timed_out(self) -> None: ...


class Workers(Generic[K]):
    """``count`` workers on one queue."""

    def __init__(
        self,
        queue: Queue[K],
        work: Callable[[K], Awaitable[ReconcileResult]],
        *,
        count: int,
        name: str,
        observer: Observer | None = None,
        longest_seconds: float = LONGEST_RECONCILE_SECONDS,
    ) -> None:
        self._queue = queue
        self._work = work
        self._count = count
        self._observer = observer or NullObserver()
        self._longest_seconds = longest_seconds
        self._log = log.bind(controller=name)

    async def run(self) -> None:
        """Until cancelled or until the queue is closed and every pass under way is over."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._count):
                group.create_task(self._run_worker())

    async def _run_worker(self) -> None:
        while True:
            try:
                key, waited = await self._queue.get()
            except Closed:
                return
            structlog.contextvars.clear_contextvars()  # what the last pass has bound to its lines of the log
            self._notify(self._observer.started, waited)
            started = asyncio.get_running_loop().time()
            result = Result.ERROR
            try:
                result = await self._reconcile(key)
            finally:
                self._notify(self._observer.ended, result, asyncio.get_running_loop().time() - started)
                self._queue.done(key)

    async def _reconcile(self, key: K) -> Result:
        """One pass, whatever comes of it: only a cancellation of the worker itself gets through."""
        limit = asyncio.timeout(self._longest_seconds)
        try:
            async with limit:
                outcome = await self._work(key)
            return self._settle(key, outcome)
        except NotLeading:
            self._log.debug("reconcile may not write", key=str(key))
            return self._settle(key, ReconcileResult(NOT_LEADING_SECONDS))
        except Terminal as error:
            return self._settle(key, ReconcileResult(failure=error))
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            self._failed(
                key, error, is_late=False
            )  # something else was cancelled, and the pass waited for it
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - a defect met by one key must not stop the others
            self._failed(key, error, is_late=limit.expired())
        return Result.ERROR

    def _settle(self, key: K, outcome: ReconcileResult) -> Result:
        """The pass came to its end."""
        self._queue.forget(key)
        due = outcome.requeue_after_seconds
        if due is not None:
            self._queue.add_after(key, due)
        if outcome.failure is None:
            return Result.SUCCESS if due is None else Result.REQUEUE_AFTER
        text = str(outcome.failure) or repr(outcome.failure)
        self._log.warning("reconcile failed", key=str(key), error=text, pause_seconds=due)
        if isinstance(outcome.failure, Terminal):
            self._notify(self._observer.failed_for_good)
        return Result.ERROR

    def _failed(self, key: K, error: BaseException, *, is_late: bool) -> None:
        """The pass was broken off; again after the key's back-off."""
        pause = self._queue.add_failed(key)
        bound = self._log.bind(key=str(key), pause_seconds=pause)
        if is_late:
            self._notify(self._observer.timed_out)
            bound.error("reconcile took too long", longest_seconds=self._longest_seconds)
        elif isinstance(error, Conflict):
            bound.info("reconcile outdated, requeued", error=error.message)
        elif isinstance(error, ApiError | aiohttp.ClientError | TimeoutError | OSError):
            bound.warning("reconcile failed", error=str(error) or repr(error))
        else:
            self._notify(self._observer.panicked)
            bound.error("reconcile panicked", exc_info=error)

    def _notify(self, what: Callable[[*Ts], None], *args: *Ts) -> None:
        try:
            what(*args)
        except Exception:  # noqa: BLE001 - who only looks on must not stop the work
            self._log.exception("observer broke")


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
