"""Crashes of the controller at chosen API calls, as by ``kill -9``: after one, no call of it reaches the server.

injector = CrashInjector(CrashPoint(12, Moment.BEFORE))
async with start_harness(faults=injector) as harness, restarting_controller(harness, injector): ...
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

import pytest
from aiohttp import web
from typing_extensions import override

from controller import app
from controller.settings import Settings
from rallypoint.local.apiserver.serving.interceptor import Call, Disconnect
from tests.support.faults import Faults, Rule
from tests.support.harness import TEST_SETTINGS, TEST_USER_AGENT, Harness

CONCURRENT_CALLS_SECONDS = 0.01
"""Time for calls that run beside the one before which the controller crashes."""


def crash_every(short: int, full: int) -> pytest.MarkDecorator:
    """Give a test that runs once for each call at which the controller crashes the distance ``every`` between these calls.

    Args:
        short: in ``make test``.
        full: in ``make test-full``.
    """
    return pytest.mark.parametrize("every", [short, pytest.param(full, marks=pytest.mark.full)])


class Moment(StrEnum):
    """Whether the caller crashes before or after the server handles the call."""

    BEFORE = "before"
    """The server does not handle the call. It does handle those sent beside it."""
    AFTER = "after"
    """The server has handled the call; the caller gets no answer."""


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The controller's ``number``-th call, counted from 1 over all its processes."""

    number: int
    moment: Moment


class CrashInjector(Faults):
    """Faults that include crashes. At a crash point it refuses all further calls and sets ``crashed``."""

    def __init__(self, *points: CrashPoint, rules: tuple[Rule, ...] = ()) -> None:
        super().__init__(rules, spared=TEST_USER_AGENT)
        self.crashed_calls: list[Call] = []
        """The calls at which the controller crashed."""
        self.crashed = asyncio.Event()
        self.call_count = 0
        """The number of the controller's calls so far."""
        self._points = set(points)
        self._numbers: dict[int, int] = {}

    def add_point(self, point: CrashPoint) -> None:
        """Add a crash point."""
        self._points.add(point)

    def clear_points(self) -> None:
        """Remove all crash points."""
        self._points.clear()

    def crash(self) -> None:
        """Refuse all calls of the controller from now on."""
        self.crashed.set()

    def reset(self) -> None:
        """Accept the calls of a new controller."""
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
    async def passes(self, call: Call, frame: bytes) -> bool:
        if call.user_agent != self.spared:
            self._refuse_after_crash()
        return await super().passes(call, frame)

    def _refuse_after_crash(self) -> None:
        if self.crashed.is_set():
            raise Disconnect

    def _crash(self, call: Call) -> None:
        self.crashed_calls.append(call)
        self.crash()
        raise Disconnect


@asynccontextmanager
async def restarting_controller(
    harness: Harness,
    injector: CrashInjector,
    settings: Settings = TEST_SETTINGS,
    *,
    between: Callable[[], Awaitable[None]] | None = None,
) -> AsyncGenerator[None]:
    """Run the controller on that harness and start it again after each crash, once ``between`` has run.

    Raises:
        ExceptionGroup: it ended without a crash.
    """

    async def run() -> None:
        while True:
            controller = asyncio.create_task(app.run(settings, harness.connection))
            crash = asyncio.create_task(injector.crashed.wait())
            try:
                await asyncio.wait([controller, crash], return_when=asyncio.FIRST_COMPLETED)
                if controller.done():
                    await controller
            finally:
                # The injector refuses what the crashed controller still tries to write or to release.
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
