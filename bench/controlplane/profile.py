"""Profile of the controller: py-spy, of the extra ``testing``, samples its stacks during a run."""

import asyncio
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

RATE_HZ = 250
MAX_FUNCTIONS = 25
"""Number of functions in a summary."""
MAX_INCLUSIVE_SHARE = 0.95
"""A function on the stack more often than this is the loop or its caller, and is left out."""
WAITING = ("epoll_pwait", "epoll_wait")
"""Kernel calls of a process that waits for work or for a core; they do not count."""
IDLE = "_worker (concurrent/futures/thread.py"
"""Where a thread of the pool waits for work."""


class ProfilerUnavailable(Exception):
    """py-spy is not installed, or may not trace another process."""


@dataclass
class Profile:
    """Shares of the CPU time in percent."""

    samples: int = 0
    parts: dict[str, float] = field(default_factory=dict[str, float])
    """By package of the innermost Python function (ours: by folder), including the C and kernel code that it calls."""
    own: dict[str, float] = field(default_factory=dict[str, float])
    """By function of any language, without its callees."""
    inclusive: dict[str, float] = field(default_factory=dict[str, float])
    """By Python function, with its callees."""


def py_spy_path() -> str:
    """Return py-spy's path, from PATH or beside the interpreter. Raises ProfilerUnavailable if there is none."""
    found = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if found is None:
        raise ProfilerUnavailable(
            "--profile needs py-spy; in a checkout: pip install ./deploy/operator '.[testing]'"
        )
    return found


@asynccontextmanager
async def profile_process(pid: int, folder: Path) -> AsyncGenerator[Profile]:
    """Profile a process; the yielded profile is filled at the end.

    Raises:
        ProfilerUnavailable: py-spy ended without output.
    """
    stacks, profile = folder / f"stacks-{pid}.txt", Profile()
    arguments = ("record", "--native", "--function", "--rate", str(RATE_HZ), "--format", "raw")
    target = ("--output", str(stacks), "--pid", str(pid))
    devnull = asyncio.subprocess.DEVNULL
    profiler = await asyncio.create_subprocess_exec(
        py_spy_path(), *arguments, *target, stdout=asyncio.subprocess.PIPE, stderr=devnull
    )
    assert profiler.stdout is not None
    await profiler.stdout.readline()  # py-spy prints this line once it samples
    try:
        yield profile
    finally:
        if profiler.returncode is None:
            profiler.send_signal(signal.SIGINT)
        await profiler.communicate()
    if not stacks.exists():
        raise ProfilerUnavailable(
            f"py-spy ended with {profiler.returncode}; it needs permission to trace other processes"
        )
    found = summarize_stacks(stacks.read_text().splitlines())
    vars(profile).update(vars(found))
    stacks.unlink()


def summarize_stacks(lines: Iterable[str]) -> Profile:
    """Summarize py-spy's raw output: functions joined by semicolons, innermost last, and a count."""
    parts: Counter[str] = Counter()
    own: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    for line in lines:
        stack, _, text = line.rpartition(" ")
        functions, count = stack.split(";"), int(text)
        python = [function for function in functions if ".py:" in function]
        if functions[-1].startswith(WAITING) or (python and python[-1].startswith(IDLE)):
            continue
        own[functions[-1]] += count
        parts[package_of(python[-1]) if python else "interpreter"] += count
        for function in set(python):
            inclusive[function] += count
    samples = own.total()
    informative = Counter(
        {name: count for name, count in inclusive.items() if count < MAX_INCLUSIVE_SHARE * samples}
    )
    return Profile(samples, _shares(parts, samples), _shares(own, samples), _shares(informative, samples))


def package_of(function: str) -> str:
    """Return ``aiohttp`` for ``ClientSession._request (aiohttp/client.py:558)``, ``controller/kube`` for files in there."""
    path = function.rpartition("(")[2].rpartition(":")[0].removesuffix(".py").split("/")
    return "/".join(path[: 2 if path[0] == "controller" else 1])


def _shares(counts: "Counter[str]", samples: int) -> dict[str, float]:
    return {name: round(100 * count / samples, 2) for name, count in counts.most_common(MAX_FUNCTIONS)}
