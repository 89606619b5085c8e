"""Stacks of the running process, for a process that hangs or does something unexpected.

faulthandler writes the stacks of the threads, at once and as plain text, even if a callback blocks the event loop. The tasks of the loop
follow as log lines; equal stacks share a line.
"""

import asyncio
import faulthandler
import gc
import signal
import sys
import threading
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
_AWAITABLES = (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await"))
"""Prefix of the attributes of each type that has a frame, and the attribute that says what it waits for."""


def dump_on(number: signal.Signals, stream: TextIO) -> None:
    """Dump all stacks whenever the signal arrives. Call it in the event loop; ``stream`` must be a file."""
    asyncio.get_running_loop().add_signal_handler(number, log_tasks)
    faulthandler.register(number, file=stream, all_threads=True, chain=True)


def log_tasks() -> None:
    """Log the stacks of the tasks of the running loop."""
    for stack, names in _tasks(asyncio.get_running_loop()):
        log.warning("task stack", tasks=len(names), names=names[:NAMED], stack=list(stack))


def text(loop: asyncio.AbstractEventLoop) -> str:
    """Return the stacks of all threads and of the loop's tasks as lines, the outermost frame first.

    Any thread may call it, also while a callback blocks the loop. Meanwhile tasks may continue, so stacks can be from different moments.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - documented  # pyright: ignore[reportPrivateUsage]
    stacks = [(f"thread {names.get(ident, ident)}", tuple(_frames(frame))) for ident, frame in frames.items()]
    for stack, tasks in _tasks(loop):
        more = ", …" if len(tasks) > NAMED else ""
        stacks.append((f"tasks: {len(tasks)} ({', '.join(tasks[:NAMED])}{more})", stack))
    return "\n".join("\n    ".join((title, *stack)) + "\n" for title, stack in stacks)


def _tasks(loop: asyncio.AbstractEventLoop) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return each stack, and the names of the tasks that share it."""
    names_by_stack: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for task in asyncio.all_tasks(loop):
        names_by_stack[tuple(_stack(task))].append(task.get_name())
    return sorted((stack, sorted(names)) for stack, names in names_by_stack.items())


def _frames(frame: FrameType | None) -> list[str]:
    """Return the frames of a thread, the outermost first."""
    found: list[str] = []
    while frame is not None and len(found) < DEEPEST:
        found.append(_frame_text(frame))
        frame = frame.f_back
    return found[::-1]


def _stack(task: "asyncio.Task[Any]") -> Iterator[str]:
    """Yield the frames of a task, the outermost first.

    ``Task.get_stack`` has only the first frame of a task that waits.
    """
    waiting: Any = task.get_coro()
    for _ in range(DEEPEST):
        frame, inner = _frame(waiting)
        if frame is not None:
            yield _frame_text(frame)
        elif inner is None:
            return
        waiting = inner


def _frame(awaitable: Any) -> tuple[FrameType | None, Any]:
    """Return the frame of a coroutine or a generator, and what it waits for.

    Some awaitables only wrap one of these, such as those of ``async for`` and of aiohttp's requests. They have no frame.
    """
    for prefix, waits_for in _AWAITABLES:
        frame = getattr(awaitable, f"{prefix}_frame", None)
        if frame is not None:
            return frame, getattr(awaitable, waits_for)
    wrapped = (
        inner
        for inner in gc.get_referents(awaitable)
        for prefix, _ in _AWAITABLES
        if getattr(inner, f"{prefix}_frame", None) is not None
    )
    return None, next(wrapped, None)


def _frame_text(frame: FrameType) -> str:
    code: CodeType = frame.f_code
    return f"{frame.f_globals.get('__name__', code.co_filename)}:{frame.f_lineno} {code.co_qualname}"
