"""Termination of containers: hooks, TERM, KILL and the order of sidecars, on loop time."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from rallypoint.local.node.pods import termination
from rallypoint.local.node.pods.container_state import Container
from rallypoint.local.node.pods.prober import Prober
from rallypoint.local.node.pods.termination import Grace, Run


class Attended:
    """Notes that the run is no longer to be looked after."""

    def __init__(self) -> None:
        self.left = False

    def stop(self) -> None:
        self.left = True


class Pretended:
    """A process that ends ``takes`` seconds after TERM, and at once when killed."""

    def __init__(self, takes: float) -> None:
        self.signals: list[tuple[str, float]] = []
        self.ended = asyncio.Event()
        self._takes = takes

    async def wait(self) -> int:
        raise AssertionError("nobody waits for it here")

    def send(self, number: signal.Signals) -> None:
        loop = asyncio.get_running_loop()
        self.signals.append((number.name, round(loop.time(), 3)))
        loop.call_later(0 if number == signal.SIGKILL else self._takes, self.ended.set)


def run(name: str = "main", takes: float = 0.0, **spec: Any) -> Run:
    process = Pretended(takes)
    container = Container(name, spec, is_init="restartPolicy" in spec)
    made = Run(container, process, cast("Prober", Attended()))
    made.ended = process.ended
    return made


def signals(made: Run) -> list[tuple[str, float]]:
    return cast("Pretended", made.process).signals


def sleeping(seconds: float, log: list[str] | None = None) -> Callable[[], Awaitable[None]]:
    async def hook() -> None:
        await asyncio.sleep(seconds)
        (log if log is not None else []).append("done")

    return hook


@pytest.mark.parametrize(
    ("grace", "takes", "hook", "expected"),
    [
        pytest.param(30, 1, None, [("SIGTERM", 0)], id="it handles SIGTERM"),
        pytest.param(5, 100, None, [("SIGTERM", 0), ("SIGKILL", 5)], id="it ignores SIGTERM"),
        pytest.param(30, 1, 10, [("SIGTERM", 10)], id="a hook runs first"),
        pytest.param(30, 100, 10, [("SIGTERM", 10), ("SIGKILL", 30)], id="a hook uses up the grace period"),
        pytest.param(5, 100, 90, [("SIGTERM", 5), ("SIGKILL", 7)], id="two seconds remain after a long hook"),
        pytest.param(0, 100, 90, [("SIGTERM", 0), ("SIGKILL", 0)], id="no grace period"),
    ],
)
async def test_a_container_gets_sigterm_and_then_sigkill(
    grace: float, takes: float, hook: float | None, expected: list[tuple[str, float]]
) -> None:
    made = run(takes=takes)
    await termination.terminate(made, Grace(grace), None if hook is None else sleeping(hook))

    assert signals(made) == expected
    assert cast("Any", made.prober).left


async def test_the_grace_period_can_be_shortened_during_the_hook() -> None:
    made, log = run(takes=100), list[str]()
    grace = Grace(60)
    asyncio.get_running_loop().call_later(10, grace.shorten, 5)
    await termination.terminate(made, grace, sleeping(50, log))

    assert (signals(made), log) == ([("SIGTERM", 15), ("SIGKILL", 17)], [])


async def test_a_grace_period_of_zero_kills_at_once() -> None:
    made = run(takes=100)
    grace = Grace(60)
    asyncio.get_running_loop().call_later(10, grace.shorten, 0)
    await termination.terminate(made, grace, sleeping(50))

    assert signals(made) == [("SIGTERM", 10), ("SIGKILL", 10)]


async def test_a_process_that_ends_during_its_hook_gets_no_signal() -> None:
    made, log = run(), list[str]()
    asyncio.get_running_loop().call_later(3, made.ended.set)
    await termination.terminate(made, Grace(60), sleeping(50, log))

    assert (signals(made), log, asyncio.get_running_loop().time()) == ([], [], 3)


async def test_a_second_termination_only_shortens_the_grace_period() -> None:
    made = run(takes=100)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(termination.terminate(made, Grace(60)))
        await asyncio.sleep(1)
        tasks.create_task(termination.terminate(made, Grace(10), sleeping(1)))

    assert signals(made) == [("SIGTERM", 0), ("SIGKILL", 11)]


async def test_a_failed_hook_is_reported() -> None:
    async def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await termination.terminate(run(), Grace(60), broken)


async def test_sidecars_end_after_the_others_in_reverse_order() -> None:
    first, second = (run(name, takes=1, restartPolicy="Always") for name in ("first", "second"))
    runs = [first, second, run("a", takes=2), run("b", takes=5)]
    async with asyncio.TaskGroup() as tasks:
        for made in runs:
            tasks.create_task(
                termination.terminate(made, Grace(30), sleeping(1), termination.predecessors(made, runs))
            )

    assert [signals(made) for made in runs] == [[("SIGTERM", at)] for at in (7, 6, 1, 1)]


async def test_sidecars_do_not_outlive_the_grace() -> None:
    side, main = run("side", takes=100, restartPolicy="Always"), run(takes=100)
    runs = [side, main]
    async with asyncio.TaskGroup() as tasks:
        for made in runs:
            tasks.create_task(
                termination.terminate(made, Grace(30), None, termination.predecessors(made, runs))
            )

    assert signals(main) == [("SIGTERM", 0), ("SIGKILL", 30)]
    assert signals(side) == [("SIGTERM", 30), ("SIGKILL", 32)]
