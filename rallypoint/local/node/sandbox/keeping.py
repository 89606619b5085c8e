"""The node's side of the keeper of namespaces (``keeper.main``): requests, answers, and what it tells by itself."""

import asyncio
import itertools
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
BEGIN = "import sys; sys.path.append(sys.argv.pop(1)); from rallypoint.local.node.sandbox.keeper.main import main; main(*sys.argv[1:])"
MESSAGE_BYTES = 65536
AT_ONCE = 32
"""Requests under way; the kernel lets only so many descriptors be on their way between processes."""
ENDED = "the keeper of namespaces has ended"
LOST = 137
"""The exit code of what runs when the keeper is killed: the kernel kills it, too."""


class NoNamespaces(Exception):
    """This machine does not let us have namespaces. The text says what it refused."""


class Keeper:
    """A keeper that runs."""

    def __init__(self, child: Child, control: socket.socket) -> None:
        self._child = child
        self._control = control
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[list[int]]] = {}
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._unsent: deque[tuple[bytes, Sequence[int]]] = deque()
        self._gone = False
        asyncio.get_running_loop().add_reader(control.fileno(), self._receive)

    @classmethod
    async def start(cls, folder: Path, address: str) -> Self:
        """Start it; it removes ``folder`` when it ends. ``address`` is its own in the pods' network.

        Raises:
            NoNamespaces: it cannot be.
        """
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            ours.setblocking(False)
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-c", BEGIN, str(ROOT), str(folder), address),
                stdin=its.fileno(),
                env={name: value for name, value in os.environ.items() if name != MARK},
                start_new_session=True,
            )
        keeper = cls(child, ours)
        try:
            await keeper._ready
        except BaseException:
            await keeper.stop()
            raise
        return keeper

    async def call(self, do: str, descriptors: Sequence[int] = (), **fields: Any) -> list[int]:
        """Ask for something; the descriptors that it answers with are the caller's to close.

        Raises:
            CannotStart: it could not be done.
        """
        number = next(self._numbers)
        async with self._turns:
            request = self._send({"do": do, "request": number, **fields}, descriptors)
            answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
            self._answers[number] = answer
            try:
                return await answer
            finally:
                del self._answers[number]
                if request in self._unsent:  # Its descriptors are about to be closed.
                    self._unsent.remove(request)

    async def run(self, do: str, descriptors: Sequence[int], **fields: Any) -> "Kept":
        """Ask for a process.

        Raises:
            CannotStart: it does not begin.
        """
        number = next(self._numbers)
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ends[number] = end
        try:
            await self.call(do, descriptors, run=number, **fields)
        except BaseException:
            self._ends.pop(number, None)
            raise
        return Kept(self, number, end)

    def tell(self, do: str, **fields: Any) -> None:
        """Ask for something and do not wait for it."""
        if not self._gone:
            self._send({"do": do, "request": 0, **fields})

    async def stop(self) -> None:
        """Let it end, and with it all that it keeps."""
        self._lost()
        await self._child.wait()

    def _send(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> tuple[bytes, Sequence[int]]:
        if self._gone:
            raise CannotStart(ENDED)
        packed = orjson.dumps(request), descriptors
        self._unsent.append(packed)
        if len(self._unsent) == 1:
            self._flush()
        return packed

    def _flush(self) -> None:
        """Send what waits; the rest when the keeper has read some of it."""
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
                break  # Reading tells the end, and why.
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
            self._lost()
            return
        message = orjson.loads(data)
        if "ready" in message:
            self._ready.set_result(None)
        elif "failed" in message:
            self._ready.set_exception(NoNamespaces(message["failed"]))
        elif "ended" in message:
            _settle(self._ends.pop(message["ended"], None), message["code"])
        elif "error" in message:
            _refuse(self._answers.get(message["request"]), message["error"])
        elif message["request"] in self._answers:
            _settle(self._answers[message["request"]], descriptors)
        else:
            for descriptor in descriptors:
                os.close(descriptor)

    def _lost(self) -> None:
        if self._gone:
            return
        self._gone = True
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        asyncio.get_running_loop().remove_writer(self._control.fileno())
        self._unsent.clear()
        self._control.close()
        if not self._ready.done():
            self._ready.set_exception(NoNamespaces("the keeper of namespaces ended at once"))
        for answer in self._answers.values():
            _refuse(answer, ENDED)
        for end in self._ends.values():
            _settle(end, LOST)


class Kept:
    """A process in namespaces; a ``Process``."""

    def __init__(self, keeper: Keeper, number: int, end: asyncio.Future[int]) -> None:
        self.number = number
        self._keeper = keeper
        self._end = end

    async def wait(self) -> int:
        """The exit code; when this is cancelled, it is killed first."""
        try:
            code = await asyncio.shield(self._end)
        except asyncio.CancelledError:
            self.send(signal.SIGKILL)
            await self._end
            raise
        return code if code >= 0 else 128 - code

    def send(self, number: signal.Signals) -> None:
        if not self._end.done():
            self._keeper.tell("signal", run=self.number, which=int(number))


def _settle(future: "asyncio.Future[Any] | None", result: Any) -> None:
    if future is not None and not future.done():
        future.set_result(result)


def _refuse(future: "asyncio.Future[Any] | None", reason: str) -> None:
    if future is not None and not future.done():
        future.set_exception(CannotStart(reason))
