"""The last steps before a container's program begins, in the process that becomes it."""

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
from rallypoint.local.node.sandbox.keeper import system

STREAMS = (0, 1, 2)
PLAIN = (
    *(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores these
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD),  # and the keeper these.
)
"""Signals that a program expects to do what they do by default."""


@dataclass(frozen=True, slots=True)
class Order:
    """A program to run, and where."""

    argv: Sequence[str]
    env: Mapping[str, str]
    folder: str
    namespaces: Sequence[int]
    streams: Sequence[int]
    """Descriptors to become standard input, output and error."""
    terminal: bool
    """Whether standard input is a terminal, to be the one that controls the process."""
    limits: tuple[int, int]
    """Of open files: what the person has, and the keeper has raised for itself."""


def spawn(order: Order) -> tuple[int, int]:
    """Start it: the process id, and a descriptor that tells why it did not begin; nothing at all when it did."""
    told, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(order, report)
    os.close(report)
    return pid, told


def _become(order: Order, report: int) -> NoReturn:
    try:
        for namespace in order.namespaces:
            system.enter(namespace)
        os.setsid()
        _wire(order)
        resource.setrlimit(resource.RLIMIT_NOFILE, order.limits)
        program = find_program(order.argv[0], order.folder, order.env.get("PATH", os.defpath))
        os.chdir(order.folder)
        try:
            os.execve(program, list(order.argv), dict(order.env))
        except OSError as error:
            raise not_executed(order.argv[0], error) from error
    except (CannotStart, OSError) as error:
        os.write(report, system.spell(error).encode())
    except BaseException:  # noqa: BLE001 - this process must not go on as a second keeper
        os.write(report, f"the process could not begin: {sys.exception()!r}".encode())
    os._exit(1)


def _wire(order: Order) -> None:
    # Copied high first: a descriptor that is wanted as 1 may itself be 0 or 2.
    high = [fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, 10) for stream in order.streams]
    for number, stream in zip(STREAMS, high, strict=True):
        os.dup2(stream, number)
    if order.terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in PLAIN:
        signal.signal(number, signal.SIG_DFL)
