"""A controller that is killed at one of its calls, as by ``crash -9``: nothing of it reaches the server any more.

killer = Killer(Cut(12, Moment.BEFORE))
async with stage(faults=killer) as on, undying(on, killer): ...
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

from aiohttp import web
from typing_extensions import override

from controller import app
from controller.settings import Settings
from rallypoint.local.apiserver.serving.interceptor import Call, Disconnect
from rallypoint.testing.faults import Faults, Rule
from rallypoint.testing.harness import TEST_SETTINGS, TEST_USER_AGENT, Harness

CONCURRENT_CALLS_SECONDS = 0.01
"""Time for the calls that are under way beside the one that is cut before."""


class Moment(StrEnum):
    """When a call costs the caller its life."""

    BEFORE = "before"
    """The call does not take place; those that were sent beside it do."""
    AFTER = "after"
    """It has taken place, and nobody has heard of it."""


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """At the controller's ``number``-th call, counted from 1 over all its lives."""

    number: int
    moment: Moment


class CrashInjector(Faults):
    """Faults, and the greatest of them: the door shuts at the cut, and whoever runs the controller is told."""

    def __init__(self, *points: CrashPoint, rules: tuple[Rule, ...] = ()) -> None:
        super().__init__(rules, spared=TEST_USER_AGENT)
        self.crashed_calls: list[Call] = []
        """The calls that were cut."""
        self.crashed = asyncio.Event()
        self.call_count = 0
        """The controller's calls so far."""
        self._points = set(points)
        self._numbers: dict[int, int] = {}

    def add_point(self, point: CrashPoint) -> None:
        """One more."""
        self._points.add(point)

    def clear_points(self) -> None:
        """No more cuts."""
        self._points.clear()

    def crash(self) -> None:
        """From now on nothing comes through."""
        self.crashed.set()

    def reset(self) -> None:
        """The next life may begin."""
        self.crashed.clear()

    @override
    async def before(self, call: Call) -> web.Response | None:
        if call.user_agent == self.spared:
            return await super().before(call)
        self._refuse_after_crash()
        self.call_count += 1
        self._numbers[id(call)] = self.call_count
        if CrashPoint(self.call_count, Moment.BEFORE) in self._points:
            await asyncio.sleep(CONCURRENT_CALLS_SECONDS)
            self._crash(call)
        answer = await super().before(call)
        self._refuse_after_crash()
        return answer

    @override
    async def after(self, call: Call) -> None:
        if call.user_agent != self.spared:
            if CrashPoint(self._numbers[id(call)], Moment.AFTER) in self._points:
                self._crash(call)
            self._refuse_after_crash()
        await super().after(call)

    @override
    def passes(self, call: Call, frame: bytes) -> bool:
        if call.user_agent != self.spared:
            self._refuse_after_crash()
        return super().passes(call, frame)

    def _refuse_after_crash(self) -> None:
        if self.crashed.is_set():
            raise Disconnect

    def _crash(self, call: Call) -> None:
        self.crashed_calls.append(call)
        self.crash()
        raise Disconnect


@asynccontextmanager
async def restarting_controller(
    on: Harness,
    injector: CrashInjector,
    settings: Settings = TEST_SETTINGS,
    *,
    between: Callable[[], Awaitable[None]] | None = None,
) -> AsyncGenerator[None]:
    """The controller on that stage, started anew whenever it is killed; ``between`` two lives something may be looked at.

    Raises:
        ExceptionGroup: it has ended by itself.
    """

    async def run() -> None:
        while True:
            controller = asyncio.create_task(app.run(settings, on.connection))
            crash = asyncio.create_task(injector.crashed.wait())
            try:
                await asyncio.wait([controller, crash], return_when=asyncio.FIRST_COMPLETED)
                if controller.done():
                    await controller
            finally:
                # Whatever it still wants to write or to release, once it is dead, goes to a shut door.
                for task in (controller, crash):
                    task.cancel()
                await asyncio.gather(controller, crash, return_exceptions=True)
            if between:
                await between()
            injector.reset()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run())
        yield
        running.cancel()
