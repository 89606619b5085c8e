"""How what runs in containers is brought to its end: preStop hooks, TERM, KILL, within a time that they share.

Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container.go (killContainer) and
kuberuntime_termination_order.go.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TypeAlias

from rallypoint.local.node.containers.process import Process
from rallypoint.local.node.pods.attending import Attendant
from rallypoint.local.node.pods.containers import Container

SHORTEST_SECONDS = 2.0
"""What a process has after TERM at least, when its hook, or the others before it, have used up the time."""


class Grace:
    """The time that is left to end. It can be made shorter while somebody waits in it."""

    def __init__(self, seconds: float) -> None:
        self._end = asyncio.get_running_loop().time() + seconds
        self._limits: set[asyncio.Timeout] = set()
        self.is_none = seconds <= 0

    @property
    def left_seconds(self) -> float:
        return max(self._end - asyncio.get_running_loop().time(), 0.0)

    def shorten(self, seconds: float) -> None:
        self._end = min(self._end, asyncio.get_running_loop().time() + seconds)
        self.is_none = self.is_none or seconds <= 0
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(self._end)

    def leave_shortest(self) -> None:
        """Have as much left as there must be after TERM, unless there is to be none at all."""
        if not self.is_none:
            self._end = max(self._end, asyncio.get_running_loop().time() + SHORTEST_SECONDS)

    async def spend(self, work: Awaitable[object]) -> None:
        """Wait for ``work``, which is cancelled when the time is over."""
        limit = asyncio.timeout_at(self._end)
        try:
            async with limit:
                self._limits.add(limit)
                await work
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._limits.discard(limit)


class Run:
    """One process in a container, from its start until nothing of it runs."""

    def __init__(self, container: Container, process: Process, attendant: Attendant) -> None:
        self.container = container
        """As it was when the run began."""
        self.process = process
        self.attendant = attendant
        self.ended = asyncio.Event()
        self.grace: Grace | None = None
        """Set once it has been asked to end."""


Hook: TypeAlias = Callable[[], Awaitable[object]]


async def end(run: Run, grace: Grace, hook: Hook | None = None, later: Sequence[Run] = ()) -> None:
    """End a run, whatever it takes; ``later`` must have ended before it is sent TERM.

    Asked again, it is only given less time.
    """
    if run.grace is not None:
        run.grace.shorten(grace.left_seconds)
        await run.ended.wait()
        return
    run.grace = grace
    run.attendant.leave()
    if not grace.is_none:
        await grace.spend(_either(run.ended.wait(), _prepare(hook, later)))
        grace.leave_shortest()
    if run.ended.is_set():
        return
    run.process.send(signal.SIGTERM)
    await grace.spend(run.ended.wait())
    if not run.ended.is_set():
        run.process.send(signal.SIGKILL)
        await run.ended.wait()


def before(run: Run, runs: Sequence[Run]) -> list[Run]:
    """Which of ``runs``, in the order of the manifest, end before this one: a sidecar outlives what came after it."""
    if not run.container.is_sidecar:
        return []
    mains = [other for other in runs if not other.container.is_sidecar]
    return [*mains, *(other for other in runs[runs.index(run) + 1 :] if other.container.is_sidecar)]


async def _prepare(hook: Hook | None, later: Sequence[Run]) -> None:
    if hook is not None:
        await hook()
    for other in later:
        await other.ended.wait()


async def _either(*works: Coroutine[object, object, object]) -> None:
    """Wait for the first; the other is cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
