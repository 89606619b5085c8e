"""Workers: from the queue to a reconcile, and from its result back to the queue."""

import asyncio
import errno
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from structlog.contextvars import bind_contextvars, merge_contextvars
from structlog.testing import capture_logs
from typing_extensions import override

from controller.kube import errors
from controller.runtime.backoff import PerKey
from controller.runtime.queue import Queue
from controller.runtime.workers import NOT_LEADING_SECONDS, ReconcileResult, Result, Terminal, Workers


class Observer:
    def __init__(self) -> None:
        self.waited: list[float] = []
        self.ended_with: list[tuple[Result, float]] = []
        self.panics = 0
        self.final = 0
        self.late = 0

    def started(self, waited: float) -> None:
        self.waited.append(waited)

    def ended(self, result: Result, took: float) -> None:
        self.ended_with.append((result, took))

    def failed_for_good(self) -> None:
        self.final += 1

    def panicked(self) -> None:
        self.panics += 1

    def timed_out(self) -> None:
        self.late += 1


@asynccontextmanager
async def working(
    work: Callable[[str], Awaitable[ReconcileResult]], count: int = 1, observer: Observer | None = None
) -> AsyncIterator[tuple[Queue[str], Observer]]:
    queue, observer = Queue[str](PerKey(first_seconds=10)), observer or Observer()
    workers = Workers(queue, work, count=count, name="test", observer=observer, longest_seconds=60)
    task = asyncio.create_task(workers.run())
    try:
        yield queue, observer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def failing(
    *outcomes: BaseException | ReconcileResult,
) -> tuple[Callable[[str], Awaitable[ReconcileResult]], list[float]]:
    """Return a work function with these results in turn, and the loop times of its reconciles."""
    coming, times = iter(outcomes), list[float]()

    async def work(key: str) -> ReconcileResult:
        times.append(asyncio.get_running_loop().time())
        outcome = next(coming, ReconcileResult())
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return work, times


def gaps(times: list[float]) -> list[float]:
    return [round(after - before, 6) for before, after in pairwise(times)]


async def test_a_requeued_key_is_reconciled_in_time() -> None:
    work, times = failing(ReconcileResult(30), ReconcileResult(0), ReconcileResult())
    async with working(work) as (queue, observer):
        queue.add("a")
        await asyncio.sleep(100)

    assert gaps(times) == [30, 0]
    assert [result for result, _ in observer.ended_with] == ["requeue_after", "requeue_after", "success"]


@pytest.mark.parametrize(
    ("error", "level", "panics"),
    [
        pytest.param(errors.ServerError(500, "InternalError", "no"), "warning", 0, id="the server failed"),
        pytest.param(errors.Forbidden(403, "Forbidden", "quota"), "warning", 0, id="it is forbidden"),
        pytest.param(
            errors.Conflict(409, "Conflict", "changed"), "info", 0, id="a conflict is logged at info"
        ),
        pytest.param(aiohttp.ServerDisconnectedError(), "warning", 0, id="the connection broke"),
        pytest.param(TimeoutError(), "warning", 0, id="no answer in time"),
        pytest.param(OSError("no route"), "warning", 0, id="no network"),
        pytest.param(KeyError("defect"), "error", 1, id="a defect of ours"),
        pytest.param(RecursionError("too deep"), "error", 1, id="a defect without an end"),
        pytest.param(ExceptionGroup("many", [OSError()]), "error", 1, id="an unexpected group of errors"),
        pytest.param(BaseExceptionGroup("any", [GeneratorExit()]), "error", 1, id="a group of anything"),
        pytest.param(asyncio.CancelledError(), "error", 1, id="something that it waited for was cancelled"),
    ],
)
async def test_a_failed_reconcile_is_logged_counted_and_retried(
    error: BaseException, level: str, panics: int
) -> None:
    work, times = failing(error, error, ReconcileResult())
    with capture_logs() as logs:
        async with working(work) as (queue, observer):
            queue.add("a")
            await asyncio.sleep(100)

    assert gaps(times) == [10, 20]
    assert [result for result, _ in observer.ended_with] == ["error", "error", "success"]
    assert observer.panics == 2 * panics
    assert [(line["log_level"], line["key"], line["controller"]) for line in logs] == [
        (level, "a", "test")
    ] * 2


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(Terminal("no such role"), id="raised"),
        pytest.param(ReconcileResult(failure=Terminal("no such role")), id="as the outcome"),
    ],
)
async def test_a_permanent_failure_is_counted_and_not_retried(
    outcome: Terminal | ReconcileResult,
) -> None:
    work, times = failing(OSError(), outcome, OSError())
    with capture_logs() as logs:
        async with working(work) as (queue, observer):
            queue.add("a")
            await asyncio.sleep(1000)
            assert (len(times), observer.final, observer.panics) == (2, 1, 0)
            queue.add("a")
            await asyncio.sleep(100)

    assert gaps(times) == [10, 990, 10], (
        "a change starts the next reconcile, and its failure counts as the first"
    )
    assert [result for result, _ in observer.ended_with] == ["error", "error", "error", "success"]
    assert [line["error"] for line in logs] == ["OSError", "no such role", "OSError"]


async def test_a_reported_connection_error_is_logged_without_python_objects() -> None:
    context = ssl.create_default_context()
    key = ConnectionKey(
        "10.0.0.1", 443, is_ssl=True, ssl=context, proxy=None, proxy_auth=None, proxy_headers_hash=None
    )
    refused = aiohttp.ClientConnectorError(key, ConnectionRefusedError(errno.ECONNREFUSED, "refused"))
    work, _ = failing(ReconcileResult(failure=refused))
    with capture_logs() as logs:
        async with working(work) as (queue, _):
            queue.add("a")
            await asyncio.sleep(1)

    assert [line["error"] for line in logs] == ["cannot connect to 10.0.0.1:443: Connection refused"]


async def test_a_reconcile_without_a_permit_is_no_failure() -> None:
    work, times = failing(OSError(), errors.NotLeading(), errors.NotLeading(), OSError())
    with capture_logs() as logs:
        async with working(work) as (queue, observer):
            queue.add("a")
            await asyncio.sleep(100)

    assert gaps(times) == [10, NOT_LEADING_SECONDS, NOT_LEADING_SECONDS, 10]
    results = [result for result, _ in observer.ended_with]
    assert results == ["error", "requeue_after", "requeue_after", "error", "success"]
    assert [line["log_level"] for line in logs] == ["warning", "debug", "debug", "warning"]


async def test_a_hanging_reconcile_is_canceled_and_retried() -> None:
    times = list[float]()

    async def work(key: str) -> ReconcileResult:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            await asyncio.get_running_loop().create_future()
        return ReconcileResult()

    with capture_logs() as logs:
        async with working(work) as (queue, observer):
            queue.add("a")
            await asyncio.sleep(100)

    assert gaps(times) == [70], "the limit and the back-off"
    assert [result for result, _ in observer.ended_with] == ["error", "success"]
    assert (observer.late, observer.panics) == (1, 0)
    assert [(line["log_level"], line["longest_seconds"]) for line in logs] == [("error", 60)]


async def test_a_timeout_of_a_call_is_not_a_timeout_of_the_reconcile() -> None:
    work, _ = failing(TimeoutError())
    async with working(work) as (queue, observer):
        queue.add("a")
        await asyncio.sleep(1)

    assert observer.late == 0


class Broken(Observer):
    """An observer whose methods all fail."""

    @override
    def started(self, waited: float) -> None:
        super().started(waited)
        raise KeyError("started")

    @override
    def ended(self, result: Result, took: float) -> None:
        super().ended(result, took)
        raise KeyError("ended")

    @override
    def panicked(self) -> None:
        super().panicked()
        raise KeyError("panicked")


async def test_a_failing_observer_stops_nothing() -> None:
    work, times = failing(ValueError("defect"), ReconcileResult())
    with capture_logs() as logs:
        async with working(work, observer=Broken()) as (queue, observer):
            queue.add("a")
            await asyncio.sleep(100)

    assert gaps(times) == [10]
    assert [result for result, _ in observer.ended_with] == ["error", "success"]
    events = [line["event"] for line in logs]
    assert events.count("observer raised an exception") == 5
    assert events.count("reconcile panicked") == 1


async def test_context_variables_of_a_reconcile_do_not_leak_into_the_next() -> None:
    async def work(key: str) -> ReconcileResult:
        if key == "a":
            bind_contextvars(uid="of a")
        raise OSError

    with capture_logs([merge_contextvars]) as logs:
        async with working(work) as (queue, _):
            queue.add("a")
            queue.add("b")
            await asyncio.sleep(5)

    assert [(line["key"], line.get("uid")) for line in logs] == [("a", "of a"), ("b", None)]


async def test_a_canceled_worker_ends() -> None:
    ended = list[str]()

    async def work(key: str) -> ReconcileResult:
        try:
            await asyncio.sleep(50)
        finally:
            ended.append(key)
        return ReconcileResult()

    async with working(work) as (queue, observer):
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(1)

    assert ended == ["a"]
    assert (len(observer.ended_with), observer.panics, len(queue)) == (1, 0, 1)


async def test_a_success_resets_the_failures() -> None:
    work, times = failing(OSError(), OSError(), ReconcileResult(1), OSError(), ReconcileResult())
    async with working(work) as (queue, _):
        queue.add("a")
        await asyncio.sleep(200)

    assert gaps(times) == [10, 20, 1, 10]


async def test_a_failure_after_a_success_is_logged_at_once() -> None:
    refused = ReconcileResult(1, TimeoutError("no answer"))
    work, times = failing(
        ReconcileResult(100, TimeoutError("no answer")), refused, ReconcileResult(1), refused
    )
    async with working(work) as (queue, _):
        with capture_logs() as logs:
            queue.add("a")
            for seconds in (1, 1):
                await asyncio.sleep(seconds)
                queue.add("a")
            await asyncio.sleep(5)

    assert len(times) == 5
    assert [line.get("repeats", 0) for line in logs if line["event"] == "reconcile failed"] == [0, 0]


async def test_a_key_is_in_a_single_worker_and_others_continue() -> None:
    running: list[str] = []
    most: dict[str, int] = {}

    async def work(key: str) -> ReconcileResult:
        running.append(key)
        most[key] = max(most.get(key, 0), running.count(key))
        await asyncio.sleep(5)
        running.remove(key)
        return ReconcileResult()

    async with working(work, count=4) as (queue, observer):
        for moment in range(20):
            queue.add("busy")
            queue.add(f"other {moment}")
            await asyncio.sleep(1)
        await asyncio.sleep(60)

    assert max(most.values()) == 1
    assert len(most) == 21
    assert all(took == pytest.approx(5) for _, took in observer.ended_with)


async def test_a_slow_job_does_not_delay_the_others() -> None:
    done: list[str] = []

    async def work(key: str) -> ReconcileResult:
        await asyncio.sleep(1000 if key == "slow" else 1)
        done.append(key)
        return ReconcileResult()

    async with working(work, count=2) as (queue, observer):
        for key in ("slow", "a", "b", "c"):
            queue.add(key)
        await asyncio.sleep(4)

    assert done == ["a", "b", "c"]
    assert observer.waited == pytest.approx([0, 0, 1, 2])


async def test_workers_end_after_their_reconcile_when_the_queue_closes() -> None:
    done: list[str] = []

    async def work(key: str) -> ReconcileResult:
        await asyncio.sleep(10)
        done.append(key)
        return ReconcileResult(1)

    queue = Queue[str]()
    task = asyncio.create_task(Workers(queue, work, count=2, name="test").run())
    for key in ("a", "b", "c"):
        queue.add(key)
    await asyncio.sleep(1)
    queue.close()
    await task

    assert done == ["a", "b"]
