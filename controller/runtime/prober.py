"""Whether a server answers at an address, by the first bytes that it says: asked for a while, and not for ever.

Where the network does not lead there nobody can be asked. That is no answer, and whoever waits has to go by something else.
"""

import asyncio
import contextlib
from collections.abc import Callable, Container
from dataclasses import dataclass
from enum import Enum, auto

import structlog

from controller.runtime.bounded_dict import BoundedDict

TRY_SECONDS = 2.0
"""For one connection and its first bytes."""
PAUSE_SECONDS = 0.5
LONGEST_SECONDS = 10.0
"""How long somebody is asked who is there and does not answer as he should."""
VAIN_TRIES = 2
"""After so many without any sign, nobody can be asked there."""
WIDTH = 64
"""Addresses asked at once."""
REMEMBERED = 100_000

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """Where to ask, and how an answer begins; ``name`` is what the answer is remembered under."""

    name: str
    address: str
    ports: tuple[int, ...]
    greeting: bytes


class _Sign(Enum):
    GREETING = auto()
    REFUSED = auto()
    SILENCE = auto()


class TCPProber:
    """Asks while ``run`` runs. ``answered`` holds whom it need not ask any more: they have answered, or will not."""

    def __init__(self) -> None:
        self._finished = BoundedDict[str, None](REMEMBERED)
        self._under_way: set[str] = set()
        self._waiting: asyncio.Queue[tuple[ProbeTarget, Callable[[], None]]] = asyncio.Queue()
        self._free = asyncio.Semaphore(WIDTH)

    @property
    def answered(self) -> Container[str]:
        return self._finished

    def probe(self, target: ProbeTarget, then: Callable[[], None]) -> None:
        """Ask, unless that is being done; ``then`` is called when it is over."""
        if target.name not in self._under_way and target.name not in self._finished:
            self._under_way.add(target.name)
            self._waiting.put_nowait((target, then))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                target, then = await self._waiting.get()
                await self._free.acquire()
                group.create_task(self._probe(target, then))

    async def _probe(self, target: ProbeTarget, then: Callable[[], None]) -> None:
        try:
            answers = await until_answered(target)
        finally:
            self._free.release()
            self._under_way.discard(target.name)
        if not answers:
            log.info("no greeting, readiness has to do", address=target.address, ports=target.ports)
        self._finished[target.name] = None
        then()


async def until_answered(target: ProbeTarget) -> bool:
    """Whether somebody has greeted at one of the ports in time."""
    loop = asyncio.get_running_loop()
    until, vain = loop.time() + LONGEST_SECONDS, 0
    while loop.time() < until:
        signs = await asyncio.gather(*(_sign(target, port) for port in target.ports))
        if _Sign.GREETING in signs:
            return True
        vain += _Sign.REFUSED not in signs
        if vain == VAIN_TRIES:
            return False
        await asyncio.sleep(PAUSE_SECONDS)
    return False


async def _sign(target: ProbeTarget, port: int) -> _Sign:
    try:
        async with asyncio.timeout(TRY_SECONDS):
            reader, writer = await asyncio.open_connection(target.address, port)
            try:
                said = await reader.readexactly(len(target.greeting))
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (ConnectionError, asyncio.IncompleteReadError):
        return _Sign.REFUSED
    except (OSError, TimeoutError):
        return _Sign.SILENCE
    return _Sign.GREETING if said == target.greeting else _Sign.REFUSED
