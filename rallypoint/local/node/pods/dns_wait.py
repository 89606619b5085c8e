"""Replaces the init container that waits until the master's name resolves.

training-operator adds to each worker a container that runs ``nslookup`` in a loop. Without cluster DNS it would wait
forever, so the node resolves the name itself.
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
POLL_SECONDS = 0.2
"""The interval of the node's own lookups."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The name that a wait container waits for."""

    name: str
    limit_seconds: float | None
    """The timeout; None for no timeout."""


def of(container: Mapping[str, Any]) -> Wait | None:
    """Return the wait of a container; None if it is no wait container."""
    text = " ".join([*(container.get("command") or ()), *(container.get("args") or ())])
    found = _LOOP.search(text)
    if found is None:
        return None
    tries = _TRIES.search(text)
    pause = _PAUSE.search(text)
    seconds = float(pause.group(1)) if pause else DEFAULT_PAUSE_SECONDS
    return Wait(found.group("name"), int(tries.group(1)) * seconds if tries else None)


class DNSWait:
    """The ``Process`` that replaces a wait container."""

    def __init__(self, wait: Wait, resolves: Callable[[str], bool], output: Callable[[bytes], None]) -> None:
        self._wait = wait
        self._resolves = resolves
        self._output = output
        self._stopped = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        try:
            async with asyncio.timeout(self._wait.limit_seconds):
                return await self._poll()
        except TimeoutError:
            self._output(f"{self._wait.name} does not resolve\n".encode())
            return 1

    async def _poll(self) -> int:
        has_reported = False
        while not self._resolves(self._wait.name):
            if not has_reported:
                self._output(f"waiting until {self._wait.name} resolves\n".encode())
                has_reported = True
            done, _ = await asyncio.wait([self._stopped], timeout=POLL_SECONDS)
            if done:
                return 128 + int(self._stopped.result())
        self._output(f"{self._wait.name} resolves\n".encode())
        return 0

    def send(self, number: signal.Signals) -> None:
        if not self._stopped.done():
            self._stopped.set_result(int(number))
