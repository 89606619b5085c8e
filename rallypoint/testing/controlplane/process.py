"""A program that runs beside the tests: it has its own log, ends by pid and never outlives them."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

_STOP_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1
_LINUX = sys.platform == "linux"
_LIBC = ctypes.CDLL(None)  # opened before any fork


class ProcessFailed(RuntimeError):
    """A program ended by itself or never became ready; the message ends with the tail of its log."""


class Process:
    """A program and its log. It can start again after it has ended. Without ``environment`` it inherits ours."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._environment = environment
        self._command = [str(part) for part in command]
        self._child: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        """The time of its last start, on the monotonic clock."""

    @property
    def pid(self) -> int:
        """Raise ``ProcessFailed`` unless the program runs."""
        self.check()
        assert self._child is not None
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def returncode(self) -> int | None:
        """None until it has ended; a negative number is the signal that ended it."""
        return self._child.poll() if self._child is not None else None

    def start(self) -> None:
        """Starts the program in a session of its own, so that Ctrl-C reaches only whoever started it.

        On Linux it is killed when the thread that starts it ends, however that happens.
        """
        assert not self.running, f"{self.name} runs already"
        parent = os.getpid()
        self.started_at = time.monotonic()
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent),
            )

    def check(self) -> None:
        """Raise ``ProcessFailed`` unless the program runs."""
        if not self.running:
            code = self._child.returncode if self._child else "not started"
            raise ProcessFailed(f"{self.name} does not run ({code}). The end of {self.log}:\n{self.tail()}")

    def stop(self, *, grace_seconds: float = _STOP_SECONDS) -> None:
        """Terminate the program; kill it if it takes longer than the grace period."""
        if self._child is None:
            return
        if self.running:
            self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
        self._child.wait()

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of the log, each cut to a readable length."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 64 * 1024))
            text = log.read().decode(errors="replace")
        return "\n".join(line[:400] for line in text.splitlines()[-lines:])


class ReservedPort:
    """A free port, of loopback as a rule, that stays ours: held bound, never listening, and shared with the program that serves.

    Whoever serves on it must set ``SO_REUSEPORT`` and run as the same user. Nobody else is given the port meanwhile,
    which asking for a free port and letting go of it would allow.
    """

    def __init__(self, address: str = "127.0.0.1") -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((address, 0))
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    """Return whether a GET of this URL succeeds."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:  # urllib's errors are subclasses
        return False


def _die_with(parent: int) -> None:
    """Run in the child between fork and exec."""
    if _LINUX:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above took effect
            os._exit(1)
