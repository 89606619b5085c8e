"""Workers take keys from a queue, one reconcile at a time per key, and schedule the next reconcile from the result.

Only this module logs and counts failed reconciles. No failure ends a worker.

Source: controller-runtime, pkg/internal/controller/controller.go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar, TypeVarTuple

import aiohttp
import structlog

from controller.kube.errors import ApiError, Conflict, NotLeading, describe
from controller.kube.failure_log import FailureLog
from controller.runtime import clock
from controller.runtime.cost import Cost
from controller.runtime.queue import Closed, Queue

K = TypeVar("K", bound=Hashable)
Ts = TypeVarTuple("Ts")

LONGEST_RECONCILE_SECONDS = 600.0
"""A longer reconcile hangs, because each of its calls has a shorter timeout. It is canceled, counted and retried.

Canceled writes may have taken effect. The next reconcile handles them like writes whose response was lost.
Differs: controller-runtime sets no such limit by default.
"""
NOT_LEADING_SECONDS = 1.0
"""When to retry a reconcile that was not allowed to write; usually the queue is closed by then."""

log = structlog.get_logger()


class Terminal(Exception):
    """A retry would not help, only a change of the object. The reconcile has reported the error in a condition."""


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """The result of a reconcile. 0 seconds means: immediately.

    A ``failure`` is logged and counted, but causes no retry: ``requeue_after_seconds`` decides about that.
    """

    requeue_after_seconds: float | None = None
    failure: Exception | None = None


class Result(StrEnum):
    """The values of the metric label ``result``."""

    SUCCESS = "success"
    REQUEUE_AFTER = "requeue_after"
    ERROR = "error"


class Observer(Protocol):
    """Receives each reconcile, with times in seconds. The last three are called before ``ended`` with an error."""

    def started(self, waited: float) -> None: ...
    def ended(self, result: Result, took: float) -> None: ...
    def failed_for_good(self) -> None: ...
    def panicked(self) -> None: ...
    def timed_out(self) -> None: ...


class NullObserver:
    """An observer that ignores all calls."""

    def started(self, waited: float) -> None: ...
    def ended(self, result: Result, took: float) -> None: ...
    def failed_for_good(self) -> None: ...
    def panicked(self) -> None: ...
    def timed_out(self) -> None: ...


class Workers(Generic[K]):
    """A number of workers that share one queue."""

    def __init__(
        self,
        queue: Queue[K],
        work: Callable[[K], Awaitable[ReconcileResult]],
        *,
        count: int,
        name: str,
        observer: Observer | None = None,
        longest_seconds: float = LONGEST_RECONCILE_SECONDS,
        cpu_time: Callable[[], float] = clock.cpu_time,
    ) -> None:
        """``cpu_time`` is the clock by which the cost of reconciles is measured."""
        self._queue = queue
        self._work = work
        self._count = count
        self._observer = observer or NullObserver()
        self._longest_seconds = longest_seconds
        self._cpu_time = cpu_time
        self._log = log.bind(controller=name)
        self._failures = FailureLog[K]()

    async def run(self) -> None:
        """Run until canceled, or until the queue is closed and all running reconciles are finished."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._count):
                group.create_task(self._run_worker())

    async def _run_worker(self) -> None:
        while True:
            try:
                key, waited = await self._queue.get()
            except Closed:
                return
            structlog.contextvars.clear_contextvars()  # fields that the last reconcile bound to its log lines
            self._notify(self._observer.started, waited)
            started = asyncio.get_running_loop().time()
            result, cost = Result.ERROR, Cost(self._cpu_time)
            try:
                result = await self._reconcile(key, cost)
            finally:
                self._notify(self._observer.ended, result, asyncio.get_running_loop().time() - started)
                self._queue.done(key, cost.busy_seconds)

    async def _reconcile(self, key: K, cost: Cost) -> Result:
        """Run one reconcile and handle every outcome; only the cancellation of the worker itself propagates."""
        limit = asyncio.timeout(self._longest_seconds)
        try:
            async with limit:
                outcome = await cost.measured(self._work(key))
            return self._settle(key, outcome)
        except NotLeading:
            self._log.debug("reconcile not allowed to write", key=str(key))
            return self._settle(key, ReconcileResult(NOT_LEADING_SECONDS))
        except Terminal as error:
            return self._settle(key, ReconcileResult(failure=error))
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            self._failed(key, error, is_late=False)  # another task was canceled, and the reconcile awaited it
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - an unexpected exception of one key must not stop the others
            self._failed(key, error, is_late=limit.expired())
        return Result.ERROR

    def _settle(self, key: K, outcome: ReconcileResult) -> Result:
        """Handle a reconcile that returned."""
        self._queue.discard(key)
        due = outcome.requeue_after_seconds
        if due is not None:
            self._queue.add_after(key, due)
        if outcome.failure is None:
            self._failures.discard(key)
            return Result.SUCCESS if due is None else Result.REQUEUE_AFTER
        self._log_failure(self._log.warning, "reconcile failed", key, describe(outcome.failure), due)
        if isinstance(outcome.failure, Terminal):
            self._notify(self._observer.failed_for_good)
        return Result.ERROR

    def _failed(self, key: K, error: BaseException, *, is_late: bool) -> None:
        """Handle a reconcile that raised; retry after the key's back-off."""
        pause = self._queue.add_failed(key)
        if is_late:
            self._notify(self._observer.timed_out)
            limit = {"longest_seconds": self._longest_seconds}
            self._log_failure(self._log.error, "reconcile took too long", key, "canceled", pause, **limit)
        elif isinstance(error, Conflict):
            self._log_failure(self._log.info, "reconcile outdated, requeued", key, error.message, pause)
        elif isinstance(error, ApiError | aiohttp.ClientError | TimeoutError | OSError):
            text = describe(error)
            self._log_failure(self._log.warning, "reconcile failed", key, text, pause)
        else:
            self._notify(self._observer.panicked)
            text = repr(error)
            self._log_failure(self._log.error, "reconcile panicked", key, text, pause, exc_info=error)

    def _log_failure(
        self,
        write: Callable[..., object],
        line: str,
        key: K,
        text: str,
        pause_seconds: float | None,
        **fields: object,
    ) -> None:
        """Log a failure, once for each step of its back-off."""
        repeats = self._failures.record_fields(key, f"{line} {text}", pause_seconds)
        if repeats is not None:
            write(line, key=str(key), error=text, pause_seconds=pause_seconds, **fields, **repeats)

    def _notify(self, what: Callable[[*Ts], None], *args: *Ts) -> None:
        try:
            what(*args)
        except Exception:  # noqa: BLE001 - an observer must not stop the workers
            self._log.exception("observer raised an exception")


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
