"""The controller in its in-cluster form, with each callback of its event loop timed.

    python -m bench.controlplane.callbacks FILE FOLDER [FLAG...]

At the end FILE holds the callbacks with the most CPU time in one call. That includes garbage collection, which has an entry
of its own, too. The loop is asyncio's, because uvloop's callbacks cannot be wrapped. Timing costs time: do not use other
figures of such a run.
"""

import asyncio
import gc
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import orjson

MAX_CALLBACKS = 10
"""Number of callbacks in the result, those with the longest calls."""


class LongestCallbacks:
    """The longest call of each callback, and the longest garbage collection of each generation."""

    def __init__(self) -> None:
        self._cpu_ms: dict[str, float] = {}
        self.calls = 0

    def record(self, name: str, cpu_ms: float) -> None:
        self.calls += 1
        if cpu_ms > self._cpu_ms.get(name, 0.0):
            self._cpu_ms[name] = cpu_ms

    def clear(self) -> None:
        self._cpu_ms.clear()

    def table(self) -> dict[str, float]:
        """Return CPU milliseconds of the longest call of the slowest ``MAX_CALLBACKS``, longest first."""
        return dict(sorted(self._cpu_ms.items(), key=lambda entry: entry[1], reverse=True)[:MAX_CALLBACKS])


def time_callbacks(longest: LongestCallbacks) -> None:
    """Time every callback of asyncio's loops from now on, and garbage collections during callbacks."""
    handles: Any = asyncio.Handle
    run = handles._run  # noqa: SLF001 - nothing else is between a loop and its callbacks
    running, collecting_since = False, 0.0

    def timed(handle: asyncio.Handle) -> None:
        nonlocal running
        # Before it runs: a finished task loses its coroutine.
        name, before, running = callback_name(handle), time.thread_time(), True
        try:
            run(handle)
        finally:
            longest.record(name, (time.thread_time() - before) * 1000)
            running = False

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal collecting_since
        if phase == "start":
            collecting_since = time.thread_time()
        elif running:
            seconds = time.thread_time() - collecting_since
            longest.record(f"garbage of generation {info['generation']}", seconds * 1000)

    handles._run = timed  # noqa: SLF001 - see above
    gc.callbacks.append(collected)
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # importing it fails, as where it is not installed


def launcher(file: Path) -> tuple[str, str]:
    """Return the ``launcher`` for ``in_cluster_service``: this module with its file."""
    return (__name__, str(file))


def read(file: Path) -> Any:
    """Return what ``main`` wrote: the number of calls and ``LongestCallbacks.table``."""
    return orjson.loads(file.read_bytes())


def callback_name(handle: Any) -> str:
    """Return the coroutine of a task's step, or the function."""
    callback = handle._callback  # noqa: SLF001 - it has no public name
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return str(getattr(owner.get_coro(), "__qualname__", owner))
    return str(getattr(callback, "__qualname__", callback))


def main(file: Path, arguments: list[str]) -> None:
    longest = LongestCallbacks()
    time_callbacks(longest)
    sys.argv = ["incluster", *arguments]
    try:
        runpy.run_module("rallypoint.testing.incluster", run_name="__main__")
    finally:
        file.write_bytes(orjson.dumps({"calls": longest.calls, "cpu_ms": longest.table()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
