"""Stacks of the running process, for a process that hangs or does something unexpected.

faulthandler writes the stacks of the threads, at once and as plain text, even if a callback blocks the event loop. The tasks of the loop
follow as log lines; equal stacks share a line.
"""

import asyncio
import faulthandler
import signal
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, TextIO

import structlog

log = structlog.get_logger()

NAMED = 5
"""How many tasks of a line are named."""
DEEPEST = 100
"""Maximum number of frames of a stack."""


def dump_on(number: signal.Signals, stream: TextIO) -> None:
    """Dump all stacks whenever the signal arrives. Call it in the event loop; ``stream`` must be a file."""
    asyncio.get_running_loop().add_signal_handler(number, log_tasks)
    faulthandler.register(number, file=stream, all_threads=True, chain=True)


def log_tasks() -> None:
    """Log the stacks of the tasks of the running loop."""
    names_by_stack: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for task in asyncio.all_tasks():
        names_by_stack[tuple(_stack(task))].append(task.get_name())
    for stack, names in sorted(names_by_stack.items()):
        log.warning("task stack", tasks=len(names), names=sorted(names)[:NAMED], stack=list(stack))


def _stack(task: "asyncio.Task[Any]") -> Iterator[str]:
    """Yield the frames of a task, the outermost first, up to an asynchronous generator, whose frames Python does not show.

    ``Task.get_stack`` has only the first frame of a task that waits.
    """
    waiting: Any = task.get_coro()
    for _ in range(DEEPEST):
        frame, waiting = _frame(waiting)
        if frame is None:
            return
        yield _described(frame)


def _frame(awaitable: Any) -> tuple[FrameType | None, Any]:
    """Return the frame of a coroutine or a generator, and what it waits for."""
    for prefix, waits_for in (("cr", "cr_await"), ("gi", "gi_yieldfrom")):
        frame = getattr(awaitable, f"{prefix}_frame", None)
        if frame is not None:
            return frame, getattr(awaitable, waits_for)
    return None, None


def _described(frame: FrameType) -> str:
    code: CodeType = frame.f_code
    return f"{frame.f_globals.get('__name__', code.co_filename)}:{frame.f_lineno} {code.co_qualname}"
