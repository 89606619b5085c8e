"""Termination of containers: preStop hook, SIGTERM, SIGKILL, within one grace period.

Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container.go (killContainer) and
kuberuntime_termination_order.go.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TypeAlias

from rallypoint.local.node.containers.process import Process
from rallypoint.local.node.pods.container_state import Container
from rallypoint.local.node.pods.prober import Prober

MINIMUM_SECONDS = 2.0
"""The minimum time after SIGTERM when the hook or earlier containers have used up the grace period."""


class Grace:
    """A grace period. It can be shortened while a wait in it is pending."""

    def __init__(self, seconds: float) -> None:
        self._end = asyncio.get_running_loop().time() + seconds
        self._limits: set[asyncio.Timeout] = set()
        self.is_immediate = seconds <= 0

    @property
    def left_seconds(self) -> float:
        return max(self._end - asyncio.get_running_loop().time(), 0.0)

    def shorten(self, seconds: float) -> None:
        self._end = min(self._end, asyncio.get_running_loop().time() + seconds)
        self.is_immediate = self.is_immediate or seconds <= 0
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(self._end)

    def extend_to_minimum(self) -> None:
        """Extend the period to the minimum after SIGTERM, unless it is zero."""
        if not self.is_immediate:
            self._end = max(self._end, asyncio.get_running_loop().time() + MINIMUM_SECONDS)

    async def wait_for(self, work: Awaitable[object]) -> None:
        """Wait for ``work``; cancel it at the end of the period."""
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
    def __init__(self, container: Container, process: Process, prober: Prober) -> None:
        self.container = container
        """Its state when the run started."""
        self.process = process
        self.prober = prober
        self.ended = asyncio.Event()
        self.grace: Grace | None = None
        """Set once its termination has started."""


Hook: TypeAlias = Callable[[], Awaitable[object]]


async def terminate(run: Run, grace: Grace, hook: Hook | None = None, later: Sequence[Run] = ()) -> None:
    """Terminate a run; wait for the end of ``later`` before SIGTERM.

    A second call only shortens the grace period.
    """
    if run.grace is not None:
        run.grace.shorten(grace.left_seconds)
        await run.ended.wait()
        return
    run.grace = grace
    run.prober.stop()
    if not grace.is_immediate:
        await grace.wait_for(_first_of(run.ended.wait(), _prepare(hook, later)))
        grace.extend_to_minimum()
    if run.ended.is_set():
        return
    run.process.send(signal.SIGTERM)
    await grace.wait_for(run.ended.wait())
    if not run.ended.is_set():
        run.process.send(signal.SIGKILL)
        await run.ended.wait()


def predecessors(run: Run, runs: Sequence[Run]) -> list[Run]:
    """Return the runs that terminate before this one: a sidecar terminates after later containers."""
    if not run.container.is_sidecar:
        return []
    mains = [other for other in runs if not other.container.is_sidecar]
    return [*mains, *(other for other in runs[runs.index(run) + 1 :] if other.container.is_sidecar)]


async def _prepare(hook: Hook | None, later: Sequence[Run]) -> None:
    if hook is not None:
        await hook()
    for other in later:
        await other.ended.wait()


async def _first_of(*coroutines: Coroutine[object, object, object]) -> None:
    """Wait for the first; cancel the other."""
    tasks = [asyncio.ensure_future(work) for work in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
