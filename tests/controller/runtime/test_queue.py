"""The work queue: which key a worker gets, and when."""

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from typing_extensions import override

from controller.runtime import queue as module
from controller.runtime.backoff import PerKey
from controller.runtime.queue import COSTLY_SECONDS, LARGEST_SHARE, OLDEST_EVERY, Closed, Priority, Queue
from tests.support import fake_time


def now() -> float:
    return asyncio.get_running_loop().time()


async def drained(queue: Queue[str]) -> list[str]:
    return [(await queue.get())[0] for _ in range(len(queue))]


def by_first_letter(backoff: PerKey[str] | None = None) -> Queue[str]:
    return Queue(backoff, group=lambda key: key[0])


async def test_keys_are_returned_in_the_order_they_were_added() -> None:
    queue = Queue[str]()
    for key in ("b", "a", "c", "a"):
        queue.add(key)

    assert await drained(queue) == ["b", "a", "c"]
    assert (len(queue), queue.adds) == (0, 3)


async def test_changes_go_first_and_the_backlog_of_a_restart_last() -> None:
    queue = Queue[str]()
    queue.add("old", priority=Priority.BACKLOG)
    queue.add("new")
    queue.add("pods changed", priority=Priority.HIGH)

    assert await drained(queue) == ["pods changed", "new", "old"]


async def test_the_highest_of_several_priorities_counts() -> None:
    queue = Queue[str]()
    for key in ("a", "b", "c"):
        queue.add(key, priority=Priority.BACKLOG)
    queue.add("b")
    queue.add("c", priority=Priority.HIGH)
    queue.add("c", priority=Priority.BACKLOG)

    assert await drained(queue) == ["c", "b", "a"]


async def test_a_key_added_during_its_reconcile_keeps_the_highest_priority() -> None:
    queue = Queue[str]()
    queue.add("a")
    await queue.get()
    for priority in (Priority.BACKLOG, Priority.HIGH, Priority.NORMAL):
        queue.add("a", priority=priority)
    queue.add("b")
    queue.done("a")

    assert await drained(queue) == ["a", "b"]


async def test_a_priority_does_not_outlive_its_reconcile() -> None:
    queue = Queue[str]()
    queue.add("a", priority=Priority.HIGH)
    await queue.get()
    queue.done("a")
    queue.add("b")
    queue.add("a")

    assert await drained(queue) == ["b", "a"]


async def test_groups_alternate() -> None:
    queue = by_first_letter()
    for key in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.add(key)

    assert await drained(queue) == ["a1", "b1", "c1", "a2", "b2", "a3"]


@pytest.mark.parametrize("priority", [Priority.NORMAL, Priority.HIGH])
async def test_higher_priorities_do_not_starve_a_key(priority: Priority) -> None:
    queue, order = Queue[str](), list[str]()
    for key in ("old 1", "old 2"):
        queue.add(key, priority=Priority.BACKLOG)
    for number in range(2 * OLDEST_EVERY):
        queue.add(f"new {number}", priority=priority)
        order.append((await queue.get())[0])

    assert [order.index(key) for key in ("old 1", "old 2")] == [OLDEST_EVERY - 1, 2 * OLDEST_EVERY - 1]


async def test_a_key_that_is_added_again_has_no_history() -> None:
    queue = Queue[str](PerKey(first_seconds=1))
    queue.add_after("delayed", 1)
    queue.add_failed("failed")
    queue.add("backlog", priority=Priority.BACKLOG)
    await asyncio.sleep(2)
    queue.add("news", priority=Priority.HIGH)

    assert await drained(queue) == ["news", "delayed", "failed", "backlog"]


async def test_an_expired_delay_raises_a_key_of_the_backlog() -> None:
    queue = Queue[str]()
    queue.add_after("b", 1)
    for key in ("a", "b"):
        queue.add(key, priority=Priority.BACKLOG)
    await asyncio.sleep(2)

    assert await drained(queue) == ["b", "a"]


async def test_a_returned_key_has_no_pending_delay() -> None:
    queue = Queue[str]()
    queue.add_after("a", 1)
    queue.add("a", priority=Priority.BACKLOG)
    await queue.get()
    queue.done("a")
    await asyncio.sleep(10)

    assert len(queue) == 0


async def test_a_key_added_during_its_reconcile_is_returned_again_afterwards() -> None:
    queue = Queue[str]()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")

    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1


async def test_get_returns_the_waiting_time_of_a_key() -> None:
    queue = Queue[str]()
    queue.add("a")
    await asyncio.sleep(3)
    queue.add("a")

    assert await queue.get() == ("a", 3)


async def test_running_reconciles_are_timed() -> None:
    queue = Queue[str]()
    for key in ("a", "b"):
        queue.add(key)
        await queue.get()
        await asyncio.sleep(2)

    assert queue.working_seconds() == [4, 2]
    queue.done("a")
    queue.done("b")
    assert queue.working_seconds() == []


@pytest.mark.parametrize(
    ("delays", "at"),
    [
        pytest.param((5,), 5, id="one delay"),
        pytest.param((5, 9), 5, id="a later one changes nothing"),
        pytest.param((9, 5), 5, id="an earlier one replaces it"),
        pytest.param((9, 0), 0, id="no delay"),
        pytest.param((9, -1), 0, id="a delay in the past is none"),
    ],
)
async def test_the_earliest_delay_wins(delays: tuple[float, ...], at: float) -> None:
    queue, started = Queue[str](), now()
    for seconds in delays:
        queue.add_after("a", seconds)
    await queue.get()

    assert now() - started == at
    queue.done("a")
    await asyncio.sleep(60)
    assert len(queue) == 0


async def test_an_add_without_delay_replaces_a_delay() -> None:
    queue, started = Queue[str](), now()
    queue.add_after("a", 100)
    queue.add("a")
    await queue.get()
    queue.done("a")
    await asyncio.sleep(200)

    assert (now() - started, len(queue)) == (200, 0)


async def test_failures_of_a_key_double_its_pause_until_it_succeeds() -> None:
    queue = Queue[str](PerKey(first_seconds=1, longest_seconds=5))
    queue.add("a")
    pauses = []
    for _ in range(5):
        await queue.get()
        pauses.append(queue.add_failed("a"))
        queue.done("a")
    await queue.get()
    queue.discard("a")
    pauses.append(queue.add_failed("a"))

    assert pauses == [1, 2, 4, 5, 5, 1]
    assert queue.retries == 6


@pytest.mark.parametrize(
    ("moment", "urgent", "expected"),
    [
        pytest.param("afterwards", False, 8, id="a plain add waits for the back-off"),
        pytest.param("afterwards", True, 0, id="an urgent add ends it"),
        pytest.param("meanwhile", False, 8, id="a plain add during the failing reconcile waits as well"),
        pytest.param("meanwhile", True, 0, id="an urgent add during the failing reconcile is not delayed"),
    ],
)
async def test_failures_back_off_until_urgent_adds(moment: str, urgent: bool, expected: float) -> None:
    queue, started = Queue[str](PerKey(first_seconds=8)), now()
    queue.add("a")
    await queue.get()
    if moment == "meanwhile":
        queue.add("a", urgent=urgent)
    queue.add_failed("a")
    queue.done("a")
    if moment == "afterwards":
        queue.add("a", urgent=urgent)
    queue.add_after("a", 1)
    await queue.get()

    assert now() - started == expected


async def test_urgency_does_not_outlive_its_reconcile() -> None:
    queue, started = Queue[str](PerKey(first_seconds=8)), now()
    queue.add("a")
    for urgent in (True, False):
        await queue.get()
        queue.add("a", urgent=urgent)
        queue.add_failed("a")
        queue.done("a")
    await queue.get()

    assert now() - started == 16


async def test_a_canceled_get_hands_its_wake_up_to_the_next() -> None:
    queue = Queue[str]()
    takers = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    takers[0].cancel()

    assert await takers[1] == ("a", 0)
    assert takers[0].cancelled()


async def test_a_closed_queue_returns_nothing() -> None:
    queue = Queue[str](PerKey(first_seconds=1))
    waiting = asyncio.create_task(Queue[str]().get())
    for key in ("worked on", "ready"):
        queue.add(key)
    await queue.get()
    queue.add("worked on")
    queue.add_after("delayed", 1)
    queue.close()
    queue.add("late")
    queue.add_after("later", 1)
    queue.add_failed("worked on")
    queue.done("worked on")
    await asyncio.sleep(10)

    assert len(queue) == 0
    with pytest.raises(Closed):
        await queue.get()
    waiting.cancel()


async def test_closing_ends_backoffs() -> None:
    queue = Queue[str](PerKey(first_seconds=1))
    queue.add("a")
    await queue.get()
    queue.add_failed("a")
    queue.done("a")
    queue.close()
    queue.open()
    queue.add("a")

    assert len(queue) == 1


async def test_a_key_is_processed_until_it_is_done() -> None:
    queue = Queue[str]()
    queue.add("a")
    assert not queue.is_processing("a")

    await queue.get()

    assert queue.is_processing("a")
    queue.done("a")
    assert not queue.is_processing("a")


async def test_closing_wakes_all_waiting_gets() -> None:
    queue = Queue[str]()
    takers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()

    assert [type(result) for result in await asyncio.gather(*takers, return_exceptions=True)] == [Closed] * 3


KEYS = st.sampled_from(["a1", "a2", "b1"])
LEVELS = st.sampled_from(Priority)
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.5])


class QueueMachine(RuleBasedStateMachine):
    """Any order of calls, against a model of what each key is owed."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = fake_time.new_event_loop()
        self.queue = self.run(self.make())
        self.ready: dict[str, Priority] = {}
        self.again: dict[str, Priority] = {}
        """Keys in work that need another reconcile afterwards."""
        self.hurried: set[str] = set()
        self.working: set[str] = set()
        self.timers: dict[str, float] = {}
        self.barred: set[str] = set()
        self.since: dict[str, float] = {}
        """Loop time since when it is ready."""
        self.taken = 0
        self.closed = False

    async def make(self) -> Queue[str]:
        return by_first_letter(PerKey(first_seconds=1, longest_seconds=4))

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def call(self, method: Any, *args: Any, **options: Any) -> Any:
        async def inside() -> Any:
            return method(*args, **options)

        return self.run(inside())

    def owe(self, key: str, priority: Priority, at: float | None = None) -> None:
        if key in self.working:
            self.again[key] = max(priority, self.again.get(key, priority))
            return
        self.since.setdefault(key, self.loop.time() if at is None else at)
        self.ready[key] = max(priority, self.ready.get(key, priority))

    def settle(self, key: str) -> None:
        self.timers.pop(key, None)
        self.barred.discard(key)

    @rule(key=KEYS, urgent=st.booleans(), priority=LEVELS)
    def add(self, key: str, urgent: bool, priority: Priority) -> None:
        self.call(self.queue.add, key, urgent=urgent, priority=priority)
        if self.closed or (key in self.barred and not urgent):
            return
        if urgent:
            self.settle(key)
            self.hurried |= {key} & self.working
        self.owe(key, priority)

    @rule(key=KEYS, seconds=SECONDS)
    def add_after(self, key: str, seconds: float) -> None:
        self.call(self.queue.add_after, key, seconds)
        if self.closed or key in self.barred:
            return
        if seconds == 0:
            self.owe(key, Priority.NORMAL)
        else:
            at = self.loop.time() + seconds
            self.timers[key] = min(self.timers.get(key, at), at)

    @precondition(lambda self: self.ready)
    @rule()
    def take(self) -> None:
        key, _ = self.run(self.queue.get())
        assert key not in self.working, "never in two workers"
        assert key in self.ready, "never without a pending reconcile"
        self.taken += 1
        if self.taken % OLDEST_EVERY == 0:
            assert self.since[key] == min(self.since.values()), "the oldest has its turn"
        else:
            assert self.ready[key] == max(self.ready.values()), "the highest level goes first"
        self.settle(key)
        del self.ready[key], self.since[key]
        self.working.add(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), failed=st.booleans())
    def finish(self, data: st.DataObject, failed: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        if failed:
            pause = self.call(self.queue.add_failed, key)
            if not self.closed and key not in self.hurried:
                self.again.pop(key, None)
                self.timers[key] = self.loop.time() + pause
                self.barred.add(key)
        else:
            self.call(self.queue.discard, key)
        self.finished(key)

    def finished(self, key: str) -> None:
        self.call(self.queue.done, key)
        self.working.discard(key)
        self.hurried.discard(key)
        if key in self.again:
            self.owe(key, self.again.pop(key))

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        until = self.loop.time() + seconds
        self.run(asyncio.sleep(seconds + 1e-4))
        for key, at in list(self.timers.items()):
            if at <= until:
                self.settle(key)
                self.owe(key, Priority.NORMAL, at)

    @precondition(lambda self: not self.closed)
    @rule(chance=st.integers(0, 3))
    def close(self, chance: int) -> None:
        if chance:
            return  # seldom: nothing much happens afterwards
        self.call(self.queue.close)
        self.closed = True
        for owed in (self.ready, self.again, self.timers, self.since, self.barred):
            owed.clear()

    @invariant()
    def pending_keys_equal_the_model(self) -> None:
        priorities = {key: priority for key, (priority, _) in self.queue._ready._positions.items()}
        assert priorities == self.ready
        assert len(self.queue) == len(self.ready), "no key twice"
        assert self.queue._delayed.keys() == self.timers.keys()

    @override
    def teardown(self) -> None:
        """Nothing is lost: in the end every key that needs a reconcile can be taken, and no other key."""
        for key in sorted(self.working):
            self.finished(key)
        self.run(asyncio.sleep(1000))
        owed = self.ready.keys() | self.timers.keys()
        taken = set(self.run(drained(self.queue)))
        self.loop.close()
        assert taken == owed


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


async def test_changes_soon_after_a_reconcile_are_batched() -> None:
    """The first reconcile starts at once, then one starts in each interval; an explicit request does not wait."""
    queue, loop = Queue[str](spacing_seconds=1.0), asyncio.get_running_loop()
    started: list[float] = []

    async def work() -> None:
        while True:
            key, _ = await queue.get()
            started.append(loop.time())
            queue.done(key)

    begin, task = loop.time(), asyncio.create_task(work())
    for _ in range(25):
        queue.add("a", priority=Priority.HIGH)
        await asyncio.sleep(0.1)
    assert [round(at - begin, 1) for at in started] == [0, 1, 2]

    await asyncio.sleep(5)
    started.clear()
    queue.add("a", priority=Priority.HIGH)
    await asyncio.sleep(0.1)
    queue.add("a", priority=Priority.HIGH)
    queue.add("a")
    await asyncio.sleep(0)
    assert len(started) == 2
    task.cancel()


async def test_changes_during_a_reconcile_wait_for_the_interval_to_end() -> None:
    queue, loop = Queue[str](spacing_seconds=1.0), asyncio.get_running_loop()
    queue.add("a")
    key, _ = await queue.get()
    begin = loop.time()
    queue.add(key, priority=Priority.HIGH)
    queue.done(key)
    key, _ = await queue.get()
    assert loop.time() - begin == pytest.approx(1)

    queue.add(key, priority=Priority.HIGH)
    await asyncio.sleep(3)
    queue.done(key)
    await asyncio.sleep(0)
    assert len(queue) == 1, "a longer reconcile has waited enough"


@pytest.mark.parametrize(
    ("busy_seconds", "wait_seconds"),
    [
        pytest.param(0.2, 2.0, id="a costly one"),
        pytest.param(COSTLY_SECONDS, COSTLY_SECONDS / LARGEST_SHARE, id="one that just counts as costly"),
        pytest.param(COSTLY_SECONDS * 0.9, 0.01, id="a cheap one"),
    ],
)
async def test_changes_wait_in_proportion_to_the_cost_of_the_last_reconcile(
    busy_seconds: float, wait_seconds: float
) -> None:
    queue, loop = Queue[str](spacing_seconds=0.01), asyncio.get_running_loop()
    queue.add("a")
    await queue.get()
    queue.done("a", busy_seconds)
    begin = loop.time()
    queue.add("a", priority=Priority.HIGH)
    await queue.get()

    assert loop.time() - begin == pytest.approx(wait_seconds)


@pytest.mark.parametrize("is_added_meanwhile", [True, False])
async def test_a_costly_key_does_not_delay_others_nor_its_own_requests(is_added_meanwhile: bool) -> None:
    """Only changes of children wait; so a changed spec, or the rest of what one reconcile began, is not late."""
    queue, loop = Queue[str](), asyncio.get_running_loop()
    queue.add("large")
    await queue.get()
    if is_added_meanwhile:
        queue.add("large", priority=Priority.HIGH)
    queue.done("large", 10.0)
    begin = loop.time()
    queue.add("large", priority=Priority.HIGH)
    queue.add("quiet", priority=Priority.HIGH)
    assert await queue.get() == ("quiet", 0)

    queue.add("large")
    assert (await queue.get())[0] == "large"
    assert loop.time() == begin
    queue.done("large")
    queue.add("large", priority=Priority.HIGH)
    await queue.get()
    assert loop.time() - begin == pytest.approx(10.0 / LARGEST_SHARE), "the cheap one ends no spacing"


async def test_start_times_without_a_waiting_key_are_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPACINGS_REMEMBERED", 10)
    queue = Queue[str](spacing_seconds=1.0)
    for number in range(25):
        queue.add(str(number))
        key, _ = await queue.get()
        queue.done(key)
        await asyncio.sleep(0.5)

    assert len(queue._spaced_until) <= 10
