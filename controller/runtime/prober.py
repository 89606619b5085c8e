"""Probe TCP servers by the first bytes that they send, for a limited time.

A target may be unreachable from this process. That says nothing about the server, so the caller must then use another signal.
"""

import asyncio
import contextlib
from collections.abc import Callable, Container
from dataclasses import dataclass
from enum import Enum, auto

import structlog

from controller.kube.bounded_dict import BoundedDict

TRY_SECONDS = 2.0
"""Timeout of one connection and its first bytes."""
PAUSE_SECONDS = 0.5
LONGEST_SECONDS = 10.0
"""How long to retry a server that accepts connections but sends no or other bytes."""
VAIN_TRIES = 2
"""A target counts as unreachable after this many attempts without any response."""
WIDTH = 64
"""Concurrent probes."""
REMEMBERED = 100_000

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """The addresses to probe, and how an answer begins. The result is stored under ``name``."""

    name: str
    address: str
    ports: tuple[int, ...]
    greeting: bytes


class _Sign(Enum):
    GREETING = auto()
    REFUSED = auto()
    SILENCE = auto()


class TCPProber:
    """Runs probes while ``run`` runs. ``answered`` contains the targets that need no probe: they have answered, or the probe gave up."""

    def __init__(self) -> None:
        self._finished = BoundedDict[str, None](REMEMBERED)
        self._under_way: set[str] = set()
        self._waiting: asyncio.Queue[tuple[ProbeTarget, Callable[[], None]]] = asyncio.Queue()
        self._free = asyncio.Semaphore(WIDTH)

    @property
    def answered(self) -> Container[str]:
        return self._finished

    def probe(self, target: ProbeTarget, then: Callable[[], None]) -> None:
        """Probe a target unless a probe of it runs; call ``then`` when the probe is finished."""
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
            log.info(
                "SSH probe got no banner, falling back to pod readiness",
                address=target.address,
                ports=target.ports,
            )
        self._finished[target.name] = None
        then()


async def until_answered(target: ProbeTarget) -> bool:
    """Return whether a server at one of the ports sent the expected bytes in time."""
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
