"""Starts a container's process: forks, enters its namespaces, connects its streams, executes its program."""

import fcntl
import os
import resource
import signal
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from rallypoint.local.node.containers.program import CannotStart, find_program, not_executed
from rallypoint.local.node.sandbox.daemon import system

STREAMS = (0, 1, 2)
RESET_SIGNALS = (
    *(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores these.
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD),  # The daemon ignores or handles these.
)
"""Signals that a program expects to have their default action."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A program to run and its namespaces."""

    argv: Sequence[str]
    env: Mapping[str, str]
    folder: str
    namespaces: Sequence[int]
    streams: Sequence[int]
    """Descriptors to become standard input, output and error."""
    terminal: bool
    """Whether standard input is a terminal that becomes the controlling terminal."""
    limits: tuple[int, int]
    """The user's limits of open files, which the daemon has raised for itself."""


def spawn(spec: ProcessSpec) -> tuple[int, int]:
    """Start the process; return its pid and a pipe with the error, empty if the program has started."""
    errors, error_pipe = os.pipe()
    pid = os.fork()
    if pid == 0:
        _exec(spec, error_pipe)
    os.close(error_pipe)
    return pid, errors


def _exec(spec: ProcessSpec, error_pipe: int) -> NoReturn:
    try:
        for namespace in spec.namespaces:
            system.setns(namespace)
        os.setsid()
        _connect_streams(spec)
        resource.setrlimit(resource.RLIMIT_NOFILE, spec.limits)
        program = find_program(spec.argv[0], spec.folder, spec.env.get("PATH", os.defpath))
        os.chdir(spec.folder)
        try:
            os.execve(program, list(spec.argv), dict(spec.env))
        except OSError as error:
            raise not_executed(spec.argv[0], error) from error
    except (CannotStart, OSError) as error:
        os.write(error_pipe, system.error_text(error).encode())
    except BaseException:  # noqa: BLE001 - this process must not continue as a second daemon
        os.write(error_pipe, f"the process cannot start: {sys.exception()!r}".encode())
    os._exit(1)


def _connect_streams(spec: ProcessSpec) -> None:
    # Copy to high numbers first: the descriptor that becomes 1 may itself be 0 or 2.
    high = [fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, 10) for stream in spec.streams]
    for number, stream in zip(STREAMS, high, strict=True):
        os.dup2(stream, number)
    if spec.terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in RESET_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
