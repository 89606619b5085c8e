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
    REFUSAL = auto()
    SILENCE = auto()


class TCPProber:
    """Asks while ``run`` runs. ``answered`` holds whom it need not ask any more: they have answered, or will not."""

    def __init__(self) -> None:
        self._asked = BoundedDict[str, None](REMEMBERED)
        self._under_way: set[str] = set()
        self._waiting: asyncio.Queue[tuple[ProbeTarget, Callable[[], None]]] = asyncio.Queue()
        self._free = asyncio.Semaphore(WIDTH)

    @property
    def answered(self) -> Container[str]:
        return self._asked

    def probe(self, door: ProbeTarget, then: Callable[[], None]) -> None:
        """Ask, unless that is being done; ``then`` is called when it is over."""
        if door.name not in self._under_way and door.name not in self._asked:
            self._under_way.add(door.name)
            self._waiting.put_nowait((door, then))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                door, then = await self._waiting.get()
                await self._free.acquire()
                group.create_task(self._one(door, then))

    async def _one(self, door: ProbeTarget, then: Callable[[], None]) -> None:
        try:
            answers = await until_answered(door)
        finally:
            self._free.release()
            self._under_way.discard(door.name)
        if not answers:
            log.info("no greeting, readiness has to do", address=door.address, ports=door.ports)
        self._asked[door.name] = None
        then()


async def until_answered(door: ProbeTarget) -> bool:
    """Whether somebody has greeted at one of the ports in time."""
    loop = asyncio.get_running_loop()
    until, vain = loop.time() + LONGEST_SECONDS, 0
    while loop.time() < until:
        signs = await asyncio.gather(*(_sign(door, port) for port in door.ports))
        if _Sign.GREETING in signs:
            return True
        vain += _Sign.REFUSAL not in signs
        if vain == VAIN_TRIES:
            return False
        await asyncio.sleep(PAUSE_SECONDS)
    return False


async def _sign(door: ProbeTarget, port: int) -> _Sign:
    try:
        async with asyncio.timeout(TRY_SECONDS):
            reader, writer = await asyncio.open_connection(door.address, port)
            try:
                said = await reader.readexactly(len(door.greeting))
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (ConnectionError, asyncio.IncompleteReadError):
        return _Sign.REFUSAL
    except (OSError, TimeoutError):
        return _Sign.SILENCE
    return _Sign.GREETING if said == door.greeting else _Sign.REFUSAL
