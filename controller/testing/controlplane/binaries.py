"""Where a program of the control plane is: named by the environment, in the user's cache, downloaded, compiled.

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
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

from controller.testing.controlplane import download, gobuild
from controller.testing.controlplane.programs import KUBERNETES, PROGRAMS, Unavailable

Say = Callable[[str], None]


def say_on_stderr(line: str) -> None:
    """One line for the person who waits, at once."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder for this version of Kubernetes; it need not exist yet."""
    root = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "rallypoint" / "controlplane" / f"v{KUBERNETES}"


def find(name: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The program, if it is there already."""
    assets = environ.get("KUBEBUILDER_ASSETS")
    places = [Path(assets)] if assets else []
    for place in [*places, cache_directory(environ)]:
        program = place / name
        if program.is_file() and os.access(program, os.X_OK):
            return program.resolve()
    return None


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
        _obtain(wanted, environ, say)
    return {name: _found(name, environ) for name in wanted}


def _obtain(wanted: list[str], environ: Mapping[str, str], say: Say) -> None:
    cache = cache_directory(environ)
    cache.mkdir(parents=True, exist_ok=True)
    with _alone_in(cache, say):
        # Asked again under the lock: somebody else may have filled the cache while this process waited.
        if missing := [name for name in wanted if find(name, environ) is None]:
            say(f"Control plane v{KUBERNETES}: {', '.join(missing)} wanted in {cache}")
            download.fetch(missing, cache, say=say)
        if missing := [name for name in wanted if find(name, environ) is None]:
            gobuild.build([PROGRAMS[name] for name in missing], cache, say=say)


def _found(name: str, environ: Mapping[str, str]) -> Path:
    if (path := find(name, environ)) is None:
        raise Unavailable(f"{name} is still missing in {cache_directory(environ)}")
    return path


@contextmanager
def _alone_in(cache: Path, say: Say) -> Generator[None]:
    """Holds the cache's lock; the kernel gives it back when the holder dies."""
    with (cache / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            started = time.monotonic()
            say(f"Another process fills {cache}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
            say(f"  waited {time.monotonic() - started:.0f} s")
        yield
