"""Finds the programs of the control plane: named by the environment, in the user's cache, downloaded or compiled.

The places are asked in this order, for each program on its own:

1. the directory in ``KUBEBUILDER_ASSETS``,
2. ``$XDG_CACHE_HOME/rallypoint/controlplane/<version>`` (``~/.cache`` without the variable),
3. a download into that cache (``download``),
4. a compilation into that cache (``gobuild``).
"""

import fcntl
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rallypoint.testing.controlplane import download, gobuild
from rallypoint.testing.controlplane.programs import (
    KUBERNETES,
    PROGRAMS,
    SERVERS,
    Program,
    Unavailable,
    kubernetes,
)

Say = Callable[[str], None]


def say_on_stderr(line: str) -> None:
    """Write a line to stderr at once."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in the user's cache for everything that tests compile or download."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rallypoint"


def cache_directory(environ: Mapping[str, str] = os.environ, version: str = KUBERNETES) -> Path:
    """Return the folder for a version of Kubernetes; it may not exist yet."""
    return cache_root(environ) / "controlplane" / f"v{version}"


def find(name: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of the program if it exists."""
    assets = environ.get("KUBEBUILDER_ASSETS")
    folders = [Path(assets)] if assets else []
    for folder in [*folders, cache_directory(environ)]:
        if _is_program(folder / name):
            return (folder / name).resolve()
    return None


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def ensure(
    names: Iterable[str], *, environ: Mapping[str, str] = os.environ, say: Say = say_on_stderr
) -> dict[str, Path]:
    """All named programs; what is missing is downloaded or compiled, which can take minutes.

    Raises:
        Unavailable: a program could neither be found, downloaded nor compiled.
    """
    wanted = list(dict.fromkeys(names))
    if unknown := [name for name in wanted if name not in PROGRAMS]:
        raise Unavailable(f"no such program: {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    if any(find(name, environ) is None for name in wanted):
        programs = [PROGRAMS[name] for name in wanted]
        _fill(
            cache_directory(environ),
            KUBERNETES,
            programs,
            lambda name: find(name, environ) is not None,
            say,
        )
    return {name: _found(name, environ) for name in wanted}


def servers_of(version: str, *, environ: Mapping[str, str] = os.environ, say: Say = say_on_stderr) -> Path:
    """The folder with the servers of a version of Kubernetes, got like all others.

    Named by ``KUBEBUILDER_ASSETS`` it makes control planes of that version.
    """
    cache = cache_directory(environ, version)
    servers = [kubernetes(name, version) for name in SERVERS]
    _fill(cache, version, servers, lambda name: _is_program(cache / name), say)
    return cache


def _fill(
    cache: Path, version: str, wanted: Sequence[Program], is_there: Callable[[str], bool], say: Say
) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    with alone_in(cache, say):
        # Checked under the lock: another process may have filled the cache meanwhile.
        if missing := [program.name for program in wanted if not is_there(program.name)]:
            say(f"Control plane v{version}: {', '.join(missing)} wanted in {cache}")
            download.fetch(missing, cache, version=version, say=say)
        if left := [program for program in wanted if not is_there(program.name)]:
            gobuild.build(left, cache, say=say)


def _found(name: str, environ: Mapping[str, str]) -> Path:
    if (path := find(name, environ)) is None:
        raise Unavailable(f"{name} is still missing in {cache_directory(environ)}")
    return path


@contextmanager
def alone_in(cache: Path, say: Say) -> Generator[None]:
    """Hold the cache's lock; the kernel releases it when the holder dies."""
    with (cache / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            started = time.monotonic()
            say(f"Another process fills {cache}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
            say(f"  waited {time.monotonic() - started:.0f} s")
        yield
