"""The init container that waits for the master's name, answered by the node.

training-operator puts into each worker a container that runs ``nslookup`` in a loop until the master's name resolves.
A machine without cluster DNS (and mostly without nslookup) would never say yes; the node knows the answer itself.
"""

import asyncio
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_LOOP = re.compile(r"\b(?:for|while|until)\b.*?\bnslookup\s+(?P<name>[A-Za-z0-9.\-]+)", re.DOTALL)
_TRIES = re.compile(r"\bseq\s+(?:1\s+)?(\d+)")
_PAUSE = re.compile(r"\bsleep\s+(\d+(?:\.\d+)?)")
DEFAULT_PAUSE_SECONDS = 2.0
LOOK_SECONDS = 0.2
"""How often the node looks; it need not wait as long as a container that asks a DNS server."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a wait container waits for."""

    name: str
    limit_seconds: float | None
    """When it gives up; None is never."""


def of(container: Mapping[str, Any]) -> Wait | None:
    """What ``container`` waits for; None when it is not a wait container."""
    text = " ".join([*(container.get("command") or ()), *(container.get("args") or ())])
    found = _LOOP.search(text)
    if found is None:
        return None
    tries = _TRIES.search(text)
    pause = _PAUSE.search(text)
    seconds = float(pause.group(1)) if pause else DEFAULT_PAUSE_SECONDS
    return Wait(found.group("name"), int(tries.group(1)) * seconds if tries else None)


class NameWait:
    """Runs in the place of a wait container; a ``Process``."""

    def __init__(self, wait: Wait, resolves: Callable[[str], bool], output: Callable[[bytes], None]) -> None:
        self._wait = wait
        self._resolves = resolves
        self._output = output
        self._stopped = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        try:
            async with asyncio.timeout(self._wait.limit_seconds):
                return await self._look()
        except TimeoutError:
            self._output(f"{self._wait.name} does not resolve\n".encode())
            return 1

    async def _look(self) -> int:
        told = False
        while not self._resolves(self._wait.name):
            if not told:
                self._output(f"waiting until {self._wait.name} resolves\n".encode())
                told = True
            done, _ = await asyncio.wait([self._stopped], timeout=LOOK_SECONDS)
            if done:
                return 128 + int(self._stopped.result())
        self._output(f"{self._wait.name} resolves\n".encode())
        return 0

    def send(self, number: signal.Signals) -> None:
        if not self._stopped.done():
            self._stopped.set_result(int(number))
