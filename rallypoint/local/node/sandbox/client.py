"""The client of the sandbox daemon (``daemon.main``): sends requests, receives answers and exit codes."""

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import Process as Child
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import orjson

from rallypoint.local.node.containers.guard import MARK
from rallypoint.local.node.containers.program import CannotStart

ROOT = Path(__file__).parents[4]
DAEMON_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from rallypoint.local.node.sandbox.daemon.main import main; main(*sys.argv[1:])"
MESSAGE_BYTES = 65536
MAX_CONCURRENT_REQUESTS = 32
"""The kernel limits the number of descriptors in flight between processes."""
DAEMON_ENDED = "the sandbox daemon has ended"
DAEMON_LOST_EXIT_CODE = 137
"""The exit code of every process when the daemon is killed: the kernel kills them with it."""


class NoNamespaces(Exception):
    """This machine does not allow namespaces. The text says which call failed."""


class SandboxClient:
    """The connection to one sandbox daemon."""

    def __init__(self, child: Child, control: socket.socket) -> None:
        self._child = child
        self._control = control
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[list[int]]] = {}
        self._exit_codes: dict[int, asyncio.Future[int]] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._concurrent_requests = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._unsent: deque[tuple[bytes, Sequence[int]]] = deque()
        self._is_closed = False
        asyncio.get_running_loop().add_reader(control.fileno(), self._receive)

    @classmethod
    async def start(cls, folder: Path, address: str) -> Self:
        """Start a daemon, which removes ``folder`` when it exits. ``address`` is the address of its bridge.

        Raises:
            NoNamespaces: this machine does not allow it.
        """
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            ours.setblocking(False)
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-c", DAEMON_PROGRAM, str(ROOT), str(folder), address),
                stdin=its.fileno(),
                env={name: value for name, value in os.environ.items() if name != MARK},
                start_new_session=True,
            )
        daemon = cls(child, ours)
        try:
            await daemon._ready
        except BaseException:
            await daemon.stop()
            raise
        return daemon

    async def call(self, do: str, descriptors: Sequence[int] = (), **fields: Any) -> list[int]:
        """Send a request and return the descriptors of the answer, which the caller closes.

        Raises:
            CannotStart: the daemon reports an error.
        """
        number = next(self._numbers)
        async with self._concurrent_requests:
            request = self._send({"do": do, "request": number, **fields}, descriptors)
            answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
            self._answers[number] = answer
            try:
                return await answer
            finally:
                del self._answers[number]
                if request in self._unsent:  # The caller closes its descriptors.
                    self._unsent.remove(request)

    async def run(self, do: str, descriptors: Sequence[int], **fields: Any) -> "SandboxHandle":
        """Start a process.

        Raises:
            CannotStart: the process cannot start.
        """
        number = next(self._numbers)
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._exit_codes[number] = end
        try:
            await self.call(do, descriptors, run=number, **fields)
        except BaseException:
            self._exit_codes.pop(number, None)
            # The daemon may start it all the same, as after a cancellation: nobody would wait for it.
            self.send("signal", run=number, which=int(signal.SIGKILL))
            raise
        return SandboxHandle(self, number, end)

    def send(self, do: str, **fields: Any) -> None:
        """Send a request without waiting for the answer."""
        if not self._is_closed:
            self._send({"do": do, "request": 0, **fields})

    async def stop(self) -> None:
        """Stop the daemon and everything in its sandboxes."""
        self._connection_lost()
        await self._child.wait()

    def _send(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> tuple[bytes, Sequence[int]]:
        if self._is_closed:
            raise CannotStart(DAEMON_ENDED)
        packed = json.dumps(request).encode(), descriptors  # Escapes what is not UTF-8.
        self._unsent.append(packed)
        if len(self._unsent) == 1:
            self._flush()
        return packed

    def _flush(self) -> None:
        """Send pending requests; continue when the socket is writable again."""
        loop = asyncio.get_running_loop()
        while self._unsent:
            body, descriptors = self._unsent[0]
            file = os.memfd_create("request", os.MFD_CLOEXEC)
            try:
                with os.fdopen(file, "wb", closefd=False) as open_file:
                    open_file.write(body)
                socket.send_fds(self._control, [b"\n"], [file, *descriptors])
            except BlockingIOError:
                loop.add_writer(self._control.fileno(), self._flush)
                return
            except BrokenPipeError:
                break  # _receive handles the end of the connection.
            finally:
                os.close(file)
            self._unsent.popleft()
        loop.remove_writer(self._control.fileno())

    def _receive(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 1)
        except ConnectionError:
            data, descriptors = b"", []
        if not data:
            self._connection_lost()
            return
        message = orjson.loads(data)
        if "ready" in message:
            self._ready.set_result(None)
        elif "failed" in message:
            self._ready.set_exception(NoNamespaces(message["failed"]))
        elif "ended" in message:
            _set_result(self._exit_codes.pop(message["ended"], None), message["code"])
        elif "error" in message:
            _set_error(self._answers.get(message["request"]), message["error"])
        elif message["request"] in self._answers:
            _set_result(self._answers[message["request"]], descriptors)
        else:
            for descriptor in descriptors:
                os.close(descriptor)

    def _connection_lost(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        asyncio.get_running_loop().remove_writer(self._control.fileno())
        self._unsent.clear()
        self._control.close()
        if not self._ready.done():
            self._ready.set_exception(NoNamespaces("the sandbox daemon ended during its start"))
        for answer in self._answers.values():
            _set_error(answer, DAEMON_ENDED)
        for end in self._exit_codes.values():
            _set_result(end, DAEMON_LOST_EXIT_CODE)


class SandboxHandle:
    """A process in a sandbox; implements ``Process``."""

    def __init__(self, daemon: SandboxClient, number: int, end: asyncio.Future[int]) -> None:
        self.number = number
        self._daemon = daemon
        self._end = end

    async def wait(self) -> int:
        """Return the exit code. Cancellation kills the process first."""
        try:
            code = await asyncio.shield(self._end)
        except asyncio.CancelledError:
            self.send(signal.SIGKILL)
            await self._end
            raise
        return code if code >= 0 else 128 - code

    def send(self, number: signal.Signals) -> None:
        if not self._end.done():
            self._daemon.send("signal", run=self.number, which=int(number))


def _set_result(future: "asyncio.Future[Any] | None", result: Any) -> None:
    if future is not None and not future.done():
        future.set_result(result)


def _set_error(future: "asyncio.Future[Any] | None", reason: str) -> None:
    if future is not None and not future.done():
        future.set_exception(CannotStart(reason))
