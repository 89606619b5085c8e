"""The concurrency limiter: the order of calls and the number of calls in flight."""

import asyncio
import contextlib
from collections.abc import Iterable

import looptime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kube import errors
from controller.kube.concurrency import EVENT_PROMOTION_SECONDS, ConcurrencyLimiter, PriorityLevel
from controller.kube.token_bucket import TokenBucket

TOO_MANY = errors.from_status(429, "TooManyRequests", "later")
FORBIDDEN = errors.from_status(403, "Forbidden", "no")


def now() -> float:
    return asyncio.get_running_loop().time()


class Calls:
    """Calls through one gate, each a second long, and the names of those that have passed."""

    def __init__(self, limiter: ConcurrencyLimiter) -> None:
        self.limiter = limiter
        self.passed: list[str] = []
        self.most = 0

    async def __call__(
        self,
        name: str = "",
        level: PriorityLevel = PriorityLevel.CHILD,
        group: str = "ns",
        error: Exception | None = None,
    ) -> None:
        with contextlib.suppress(*[type(error)] if error else []):
            async with self.limiter.turn(level, group):
                self.passed.append(name)
                self.most = max(self.most, self.limiter.in_flight)
                await asyncio.sleep(1)
                if error:
                    raise error


async def answered(limiter: ConcurrencyLimiter, *outcomes: Exception | None) -> None:
    """One call after the other, with these answers."""
    for outcome in outcomes:
        await Calls(limiter)(error=outcome)


async def test_a_single_namespace_can_use_the_whole_width() -> None:
    calls, started = Calls(ConcurrencyLimiter(4)), now()
    await asyncio.gather(*(calls() for _ in range(8)))

    assert (now() - started, calls.most) == (2, 4)


async def test_calls_start_by_priority_and_namespaces_alternate() -> None:
    calls = Calls(ConcurrencyLimiter(1))
    await asyncio.gather(
        calls("under way"),
        *(calls(f"event {number}", PriorityLevel.EVENT) for number in range(2)),
        *(calls(f"flood {number}", group="flood") for number in range(3)),
        calls("small", group="small"),
        calls("status", PriorityLevel.STATUS),
        calls("first", PriorityLevel.FIRST),
    )

    assert calls.passed[:3] == ["under way", "first", "status"]
    assert calls.passed[3:] == ["flood 0", "small", "flood 1", "flood 2", "event 0", "event 1"]


async def test_an_old_event_waits_like_a_child() -> None:
    """While children keep coming, an event goes after those that came within its first seconds."""
    calls = Calls(ConcurrencyLimiter(1))

    async def keep_coming() -> None:
        for second in range(20):
            coming.append(asyncio.create_task(calls(f"child {second}")))
            await asyncio.sleep(1)

    coming: list[asyncio.Task[None]] = []
    await asyncio.gather(
        calls("backlog"), calls("backlog"), calls("event", PriorityLevel.EVENT), keep_coming()
    )
    await asyncio.gather(*coming)

    at = calls.passed.index("event")
    assert calls.passed[at - 1] == f"child {EVENT_PROMOTION_SECONDS - 1:.0f}"


async def test_waiting_calls_are_counted_by_priority_level() -> None:
    calls = Calls(limiter := ConcurrencyLimiter(1))
    tasks = [
        asyncio.create_task(calls("", level))
        for level in (PriorityLevel.FIRST, PriorityLevel.EVENT, PriorityLevel.EVENT, PriorityLevel.STATUS)
    ]
    await asyncio.sleep(0.5)

    assert limiter.waiting() == {"event": 2, "child": 0, "status": 1, "first": 0}
    assert limiter.in_flight == 1
    assert not limiter.is_congested
    await asyncio.gather(*tasks)
    assert (sum(limiter.waiting().values()), limiter.in_flight) == (0, 0)


async def test_it_is_congested_while_four_times_as_many_calls_wait_as_may_run() -> None:
    calls = Calls(limiter := ConcurrencyLimiter(2))
    tasks = [asyncio.create_task(calls("", PriorityLevel.CHILD)) for _ in range(10)]
    await asyncio.sleep(0)
    assert limiter.is_congested

    await asyncio.gather(*tasks)

    assert not limiter.is_congested


@pytest.mark.parametrize(
    ("error", "width"),
    [
        pytest.param(TOO_MANY, 4, id="too many requests"),
        pytest.param(errors.from_status(503, "", "not ready"), 4, id="not ready"),
        pytest.param(errors.from_status(504, "Timeout", "late"), 4, id="a gateway timeout"),
        pytest.param(TimeoutError(), 4, id="no answer in time"),
        pytest.param(errors.from_status(500, "InternalError", "a webhook"), 8, id="an internal error"),
        pytest.param(FORBIDDEN, 8, id="forbidden"),
        pytest.param(ConnectionResetError(), 8, id="a connection that breaks"),
    ],
)
async def test_overload_errors_narrow_the_width(error: Exception, width: int) -> None:
    await answered(limiter := ConcurrencyLimiter(8), error)

    assert limiter.width == width


async def test_simultaneous_errors_halve_the_width_once() -> None:
    calls = Calls(limiter := ConcurrencyLimiter(8))
    await asyncio.gather(*(calls(error=TOO_MANY) for _ in range(8)))
    assert limiter.width == 4

    await asyncio.gather(*(calls(error=TOO_MANY) for _ in range(4)))
    assert limiter.width == 2


async def test_the_width_never_reaches_zero() -> None:
    await answered(limiter := ConcurrencyLimiter(8), *[TOO_MANY] * 10)
    assert limiter.width == 1

    started = now()
    await asyncio.gather(*(Calls(limiter)() for _ in range(3)))
    assert now() - started == 2, "one, which makes it wider, then two"


async def test_successful_responses_widen_it_step_by_step() -> None:
    """A full width of them for each step, refusals among them, up to what it was."""
    await answered(limiter := ConcurrencyLimiter(4), TOO_MANY, TOO_MANY)
    widths: list[int] = []
    for _ in range(10):
        await answered(limiter, None if len(widths) % 2 else FORBIDDEN)
        widths.append(limiter.width)

    assert widths == [2, 2, 3, 3, 3, 4, 4, 4, 4, 4]


async def test_responses_to_calls_before_the_narrowing_do_not_widen_it() -> None:
    limiter = ConcurrencyLimiter(4)
    calls = Calls(limiter)
    await asyncio.gather(calls(error=TOO_MANY), calls(), calls(), calls())

    assert limiter.width == 2


async def test_no_call_starts_while_the_width_is_exceeded() -> None:
    calls, started = Calls(limiter := ConcurrencyLimiter(4)), now()

    async def long() -> None:
        async with limiter.turn(PriorityLevel.CHILD, "ns"):
            await asyncio.sleep(10)

    await asyncio.gather(long(), long(), calls(error=TOO_MANY), calls(), calls("last"))

    assert calls.passed == ["", "", "last"]
    assert now() - started == 11


async def test_the_rate_limiter_serves_the_highest_priority_level_first() -> None:
    limiter, started = ConcurrencyLimiter(8, TokenBucket(1, burst=1)), now()
    passed: list[tuple[str, float]] = []

    async def call(name: str, level: PriorityLevel) -> None:
        async with limiter.turn(level, "ns"):
            passed.append((name, now() - started))

    await asyncio.gather(
        *(call(f"child {number}", PriorityLevel.CHILD) for number in range(3)),
        call("status", PriorityLevel.STATUS),
    )

    assert passed == [("child 0", 0), ("status", 1), ("child 1", 2), ("child 2", 3)]


async def cancelled(tasks: "Iterable[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_canceled_wait_leaves_no_gap() -> None:
    calls = Calls(limiter := ConcurrencyLimiter(1))
    tasks = [asyncio.create_task(calls(str(number))) for number in range(4)]
    await asyncio.sleep(0.5)
    await cancelled(tasks[1:3])
    await asyncio.gather(tasks[0], tasks[3])

    assert calls.passed == ["0", "3"]
    assert (limiter.in_flight, sum(limiter.waiting().values())) == (0, 0)


@pytest.mark.parametrize("before", [True, False], ids=["before its turn", "in its turn"])
async def test_a_wait_can_be_canceled_at_the_moment_of_its_turn(before: bool) -> None:
    limiter = ConcurrencyLimiter(1)
    order: list[str] = []

    async def call(name: str) -> None:
        async with limiter.turn(PriorityLevel.CHILD, "ns"):
            order.append(name)

    async with limiter.turn(PriorityLevel.CHILD, "ns"):
        second, third = (asyncio.create_task(call(name)) for name in ("second", "third"))
        await asyncio.sleep(0)
        if before:
            second.cancel()
    second.cancel()
    await asyncio.gather(second, third, return_exceptions=True)

    assert order == ["third"]
    assert limiter.in_flight == 0


OUTCOMES = st.sampled_from([None, FORBIDDEN, TOO_MANY, ConnectionResetError(), "cancel"])
CALLS = st.lists(st.tuples(st.sampled_from(PriorityLevel), st.sampled_from("abc"), OUTCOMES), max_size=40)


@given(widest=st.integers(1, 5), crowd=CALLS)
def test_every_call_runs_and_the_width_holds(
    widest: int, crowd: list[tuple[PriorityLevel, str, Exception | str | None]]
) -> None:
    async def play() -> None:
        limiter = ConcurrencyLimiter(widest)
        calls = Calls(limiter)
        tasks: list[asyncio.Task[None]] = []
        to_cancel: list[asyncio.Task[None]] = []
        for level, group, outcome in crowd:
            error = None if isinstance(outcome, str) else outcome
            task = asyncio.create_task(calls("", level, group, error))
            (to_cancel if outcome == "cancel" else tasks).append(task)
        await asyncio.sleep(0)
        await cancelled(to_cancel)
        async with asyncio.timeout(1000):
            await asyncio.gather(*tasks)

        assert calls.most <= widest
        assert 1 <= limiter.width <= widest
        assert (limiter.in_flight, sum(limiter.waiting().values())) == (0, 0)

    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(start=0)) as runner:
        runner.run(play())
