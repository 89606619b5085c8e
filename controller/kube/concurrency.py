"""Whose call goes to the API server next, and how many are under way at once.

A call occupies the limiter for as long as its request lasts; one that the server has told to come back later waits outside. What a call
is for says which goes first, and namespaces take turns: one alone has the whole width, and a flood from one delays only itself.

The width follows what the server bears. Too much (429, 503, 504, no answer in time) halves it, once for all calls that were under way
together, as they all tell of the same moment. A full width of good answers makes it one wider again.
"""

import asyncio
from collections.abc import Mapping
from enum import IntEnum
from types import TracebackType

from controller.kube import errors
from controller.kube.fair_queue import FairQueue
from controller.kube.token_bucket import TokenBucket

WIDEST = 32
EVENT_PROMOTION_SECONDS = 10.0
"""How long an event lets others go first; then it waits like the creation of a child, so that it comes at last."""


class PriorityLevel(IntEnum):
    """What a call is for; higher goes first."""

    EVENT = 0
    CHILD = 1
    STATUS = 2
    FIRST = 3
    """Reads, which somebody has stopped for, and whatever must not wait."""


class ConcurrencyLimiter:
    """Lets calls through, as many at once as the server bears."""

    def __init__(self, widest: int = WIDEST, rate_limiter: TokenBucket | None = None) -> None:
        self._widest = widest
        self._rate_limiter = rate_limiter
        self._lines = FairQueue[asyncio.Future[None]]()
        self._waiting = dict.fromkeys(PriorityLevel, 0)
        self._next_token: asyncio.TimerHandle | None = None
        self._round = 0
        """Goes up with each narrowing. Answers to calls of an earlier round say nothing of the width that is now."""
        self._good = 0
        self.width = widest
        """Calls that may be under way at once."""
        self.in_flight = 0
        """Calls that are under way."""

    def waiting(self) -> Mapping[str, int]:
        """Calls by the name of the priority level that they wait in."""
        return {level.name.lower(): count for level, count in self._waiting.items()}

    def turn(self, level: PriorityLevel, group: str) -> "_Turn":
        """Waits for its turn on entering. The error that leaves the block tells how the server bears the width."""
        return _Turn(self, level, group)

    async def enter(self, level: PriorityLevel, group: str) -> int:
        """Wait for the turn. The round, which ``leave`` wants back."""
        if len(self._lines) or not self._admit():
            await self._turn(level, group)
        return self._round

    def leave(self, round_: int, error: BaseException | None) -> None:
        """The call is over: without an error, or with this one."""
        self.in_flight -= 1
        if round_ == self._round:
            self._learn(error)
        self._serve()

    async def _turn(self, level: PriorityLevel, group: str) -> None:
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._lines.push(turn, level=level, group=group)
        self._waiting[level] += 1
        promotion = (
            loop.call_later(EVENT_PROMOTION_SECONDS, self._promote, turn)
            if level is PriorityLevel.EVENT
            else None
        )
        try:
            await turn
        except asyncio.CancelledError:
            # It may have been let through at the same moment; then its place goes to the next one.
            if not self._lines.discard(turn) and not turn.cancelled():
                self.in_flight -= 1
                self._serve()
            raise
        finally:
            self._waiting[level] -= 1
            if promotion:
                promotion.cancel()

    def _promote(self, turn: "asyncio.Future[None]") -> None:
        if turn in self._lines:
            self._lines.raise_to(turn, PriorityLevel.CHILD)

    def _serve(self) -> None:
        """Let through whoever may go now."""
        while len(self._lines) and self._admit():
            turn = self._lines.pop()
            if turn.cancelled():  # its task has not come to know of it yet
                self.in_flight -= 1
            else:
                turn.set_result(None)

    def _admit(self) -> bool:
        """Whether one more may go now; it counts as under way then."""
        if self.in_flight >= self.width:
            return False
        if self._rate_limiter and not self._has_token(self._rate_limiter):
            return False
        self.in_flight += 1
        return True

    def _has_token(self, limiter: TokenBucket) -> bool:
        loop = asyncio.get_running_loop()
        wait = limiter.take(loop.time())
        if wait and not self._next_token:
            self._next_token = loop.call_later(wait, self._token_due)
        return not wait

    def _token_due(self) -> None:
        self._next_token = None
        self._serve()

    def _learn(self, error: BaseException | None) -> None:
        if _is_too_much(error):
            self.width = max(self.width // 2, 1)
            self._round += 1
            self._good = 0
        elif error is None or isinstance(error, errors.ApiError):
            self._good += 1
            if self._good >= self.width:
                self.width = min(self.width + 1, self._widest)
                self._good = 0


class _Turn:
    """A class, as each request pays for it: a generator's context manager takes twice as long."""

    __slots__ = ("_group", "_level", "_limiter", "_round")

    def __init__(self, limiter: ConcurrencyLimiter, level: PriorityLevel, group: str) -> None:
        self._limiter = limiter
        self._level = level
        self._group = group

    async def __aenter__(self) -> None:
        self._round = await self._limiter.enter(self._level, self._group)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limiter.leave(self._round, error)


_TOO_MUCH = frozenset({429, 503, 504})


def _is_too_much(error: BaseException | None) -> bool:
    if isinstance(error, errors.ApiError):
        return error.code in _TOO_MUCH
    return isinstance(error, TimeoutError)
