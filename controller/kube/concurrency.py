"""Limits the concurrent requests to the API server and orders the waiting ones.

A call occupies the limiter while its request runs; a call that the server told to retry later waits outside. Calls have priority levels,
and within a level namespaces alternate: a single namespace can use the whole width, and a flood of calls delays only its own namespace.

The width follows the server's load. An overload (429, 503, 504, no answer in time) halves it, once for all calls that ran
at that time. It grows by one after as many successful answers as the width.
"""

import asyncio
from collections.abc import Mapping
from enum import IntEnum
from types import TracebackType

from controller.kube import errors
from controller.kube.fair_queue import FairQueue
from controller.kube.token_bucket import TokenBucket
from controller.settings import IN_FLIGHT

CONGESTED = 4
"""How many times as many calls wait as may run while the limiter is congested."""
EVENT_PROMOTION_SECONDS = 10.0
"""How long an event waits behind other calls; then it has the priority of a child, so that it is sent eventually."""


class PriorityLevel(IntEnum):
    """The purpose of a call; higher levels go first."""

    EVENT = 0
    CHILD = 1
    STATUS = 2
    FIRST = 3
    """Reads that a caller waits for, and calls that must not wait."""


class ConcurrencyLimiter:
    """Admits concurrent calls up to a width that follows the server's load."""

    def __init__(self, widest: int = IN_FLIGHT, rate_limiter: TokenBucket | None = None) -> None:
        self._widest = widest
        self._rate_limiter = rate_limiter
        self._lines = FairQueue[asyncio.Future[None]]()
        self._waiting = dict.fromkeys(PriorityLevel, 0)
        self._next_token: asyncio.TimerHandle | None = None
        self._round = 0
        """The number of reductions so far. Answers to calls of an earlier round do not change the current width."""
        self._good = 0
        self.width = widest
        """The maximum number of concurrent calls."""
        self.in_flight = 0
        """Running calls."""

    @property
    def is_congested(self) -> bool:
        """Whether many calls wait, as in a burst of jobs; a single job causes no more than twice as many as may run."""
        return len(self._lines) >= CONGESTED * self._widest

    def waiting(self) -> Mapping[str, int]:
        """Waiting calls by the name of their priority level."""
        return {level.name.lower(): count for level, count in self._waiting.items()}

    def turn(self, level: PriorityLevel, group: str) -> "_Turn":
        """A context manager that waits for admission. An error that leaves the block may reduce the width."""
        return _Turn(self, level, group)

    async def enter(self, level: PriorityLevel, group: str) -> int:
        """Wait for admission, and return the round for ``leave``."""
        if len(self._lines) or not self._admit():
            await self._turn(level, group)
        return self._round

    def leave(self, round_: int, error: BaseException | None) -> None:
        """Record that the call ended, without an error or with this one."""
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
            # The call may have been admitted at the same moment; the next waiting call then takes its place.
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
        """Admit waiting calls up to the width."""
        while len(self._lines) and self._admit():
            turn = self._lines.pop()
            if turn.cancelled():  # canceled, but its task has not run yet
                self.in_flight -= 1
            else:
                turn.set_result(None)

    def _admit(self) -> bool:
        """Count one more call as running if the limits allow it, and return whether they do."""
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
    """A class, because each request uses it: a generator-based context manager takes twice as long."""

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
