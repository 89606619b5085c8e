"""The controller in its in-cluster form, with a clock on each callback of its event loop.

    python -m bench.controlplane.callbacks FILE FOLDER [FLAG...]

FILE is written at the end: the callbacks that took most CPU time at once, garbage collection during them included, which is listed for
itself as well. The loop is asyncio's own, as uvloop's callbacks cannot be wrapped. Reading a clock twice for each callback costs time: other figures of such a run are not used.
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
"""Names of callbacks, those with the longest single calls."""


class LongestCallbacks:
    """The longest call of each callback, and the longest garbage collection in any, by what it is."""

    def __init__(self) -> None:
        self._cpu_ms: dict[str, float] = {}
        self.calls = 0

    def record(self, name: str, cpu_ms: float) -> None:
        self.calls += 1
        if cpu_ms > self._cpu_ms.get(name, 0.0):
            self._cpu_ms[name] = cpu_ms

    def table(self) -> dict[str, float]:
        """CPU milliseconds of the longest call of the slowest ``MAX_CALLBACKS``, the longest first."""
        return dict(sorted(self._cpu_ms.items(), key=lambda entry: entry[1], reverse=True)[:MAX_CALLBACKS])


def time_callbacks(longest: LongestCallbacks) -> None:
    """Have every callback of asyncio's loops timed from now on, and the garbage collections during callbacks."""
    handles: Any = asyncio.Handle
    run = handles._run  # noqa: SLF001 - nothing else is between a loop and its callbacks
    running, collecting_since = False, 0.0

    def timed(handle: asyncio.Handle) -> None:
        nonlocal running
        # Named before it runs: a task that has ended forgets its coroutine.
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
    """For ``in_cluster_service``; ``main`` of this module."""
    return (__name__, str(file))


def read(file: Path) -> Any:
    """What ``main`` has written: how many calls there were, and ``LongestCallbacks.table``."""
    return orjson.loads(file.read_bytes())


def callback_name(handle: Any) -> str:
    """The coroutine of a task's step, or the function."""
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
