"""A controller that is killed at one of its calls, as by ``kill -9``: nothing of it reaches the server any more.

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
from rallypoint.testing.harness import QUIET, TESTER, Stage

BESIDE_SECONDS = 0.01
"""Time for the calls that are under way beside the one that is cut before."""


class Moment(StrEnum):
    """When a call costs the caller its life."""

    BEFORE = "before"
    """The call does not take place; those that were sent beside it do."""
    AFTER = "after"
    """It has taken place, and nobody has heard of it."""


@dataclass(frozen=True, slots=True)
class Cut:
    """At the controller's ``number``-th call, counted from 1 over all its lives."""

    number: int
    moment: Moment


class Killer(Faults):
    """Faults, and the greatest of them: the door shuts at the cut, and whoever runs the controller is told."""

    def __init__(self, *cuts: Cut, rules: tuple[Rule, ...] = ()) -> None:
        super().__init__(rules, spared=TESTER)
        self.killed_at: list[Call] = []
        """The calls that were cut."""
        self.dead = asyncio.Event()
        self.reached = 0
        """The controller's calls so far."""
        self._cuts = set(cuts)
        self._numbers: dict[int, int] = {}

    def cut(self, cut: Cut) -> None:
        """One more."""
        self._cuts.add(cut)

    def forgive(self) -> None:
        """No more cuts."""
        self._cuts.clear()

    def kill(self) -> None:
        """From now on nothing comes through."""
        self.dead.set()

    def revive(self) -> None:
        """The next life may begin."""
        self.dead.clear()

    @override
    async def before(self, call: Call) -> web.Response | None:
        if call.user_agent == self.spared:
            return await super().before(call)
        self._refuse_the_dead()
        self.reached += 1
        self._numbers[id(call)] = self.reached
        if Cut(self.reached, Moment.BEFORE) in self._cuts:
            await asyncio.sleep(BESIDE_SECONDS)
            self._end(call)
        answer = await super().before(call)
        self._refuse_the_dead()
        return answer

    @override
    async def after(self, call: Call) -> None:
        if call.user_agent != self.spared:
            if Cut(self._numbers[id(call)], Moment.AFTER) in self._cuts:
                self._end(call)
            self._refuse_the_dead()
        await super().after(call)

    @override
    def passes(self, call: Call, frame: bytes) -> bool:
        if call.user_agent != self.spared:
            self._refuse_the_dead()
        return super().passes(call, frame)

    def _refuse_the_dead(self) -> None:
        if self.dead.is_set():
            raise Disconnect

    def _end(self, call: Call) -> None:
        self.killed_at.append(call)
        self.kill()
        raise Disconnect


@asynccontextmanager
async def undying(
    on: Stage,
    killer: Killer,
    settings: Settings = QUIET,
    *,
    between: Callable[[], Awaitable[None]] | None = None,
) -> AsyncGenerator[None]:
    """The controller on that stage, started anew whenever it is killed; ``between`` two lives something may be looked at.

    Raises:
        ExceptionGroup: it has ended by itself.
    """

    async def live() -> None:
        while True:
            life = asyncio.create_task(app.run(settings, on.connection))
            dying = asyncio.create_task(killer.dead.wait())
            try:
                await asyncio.wait([life, dying], return_when=asyncio.FIRST_COMPLETED)
                if life.done():
                    await life
            finally:
                # Whatever it still wants to write or to release, once it is dead, goes to a shut door.
                for task in (life, dying):
                    task.cancel()
                await asyncio.gather(life, dying, return_exceptions=True)
            if between:
                await between()
            killer.revive()

    async with asyncio.TaskGroup() as group:
        living = group.create_task(live())
        yield
        living.cancel()
