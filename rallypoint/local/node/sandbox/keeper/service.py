"""The keeper's work: pods and their processes, made and ended as the node asks.

It is the first process of its process namespace: when it ends, for whatever reason, the kernel ends all others, and with
them go the namespaces, mounts and interfaces, which nothing else holds.

Each request is a message with descriptors: the first is a file in memory with the request as JSON, the others are what
the request is about. Nothing in here waits; one thing is done at a time.
"""

import json
import os
import resource
import selectors
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rallypoint.local.node.sandbox.keeper import child, links, system
from rallypoint.local.node.sandbox.keeper.child import Order
from rallypoint.local.node.sandbox.keeper.devices import Devices
from rallypoint.local.node.sandbox.keeper.image import Image
from rallypoint.local.node.sandbox.keeper.view import Mount, View

MOST_DESCRIPTORS = 8
MESSAGE_BYTES = 64
"""Requests travel in a file; the message itself is one byte."""
KILL_ROUNDS = 200
KILL_PAUSE_SECONDS = 0.005
POD_KINDS = (system.NEW_MOUNT, system.NEW_NETWORK, system.NEW_HOST_NAME, system.NEW_IPC)


@dataclass
class Pod:
    view: int
    """Descriptors of its namespaces: of mounts, which each container begins from, and of the rest, which all share."""
    shared: tuple[int, ...]
    staging: str
    runs: set[int] = field(default_factory=set)


@dataclass
class Run:
    """A container's process, or one that was put beside it."""

    pod: str
    view: int
    pid: int
    is_guest: bool
    """Whether it entered the container of another run: it ends alone, and leaves to the container what it has begun."""


class Service:
    def __init__(self, control: socket.socket, address: str) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._links = links.Links(address)
        self._devices = Devices()
        self._pods: dict[str, Pod] = {}
        self._runs: dict[int, Run] = {}
        self._begins: dict[int, tuple[int, int, int]] = {}
        """Process id → (request, run, descriptor) of what has not told yet whether it begins."""
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._limits[1], self._limits[1]))

    def serve(self) -> None:
        """Until the node is gone."""
        woken, wake = socket.socketpair()
        for end in (woken, wake):
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(woken, selectors.EVENT_READ, lambda: self._reap(woken))
        self._selector.register(self._control, selectors.EVENT_READ, self._receive)
        with suppress(EOFError, ConnectionError):
            self._send({"ready": True})
            while True:
                for key, _ in self._selector.select():
                    key.data()

    def _receive(self) -> None:
        data, given, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, MOST_DESCRIPTORS)
        if not data:
            raise EOFError
        with ExitStack() as stack:
            for descriptor in given:
                os.set_inheritable(descriptor, False)  # Else a program's own children hold them open.
                stack.callback(os.close, descriptor)
            with open(given[0], "rb", closefd=False) as file:
                file.seek(0)
                request: dict[str, Any] = json.loads(file.read())
            self._answer(request, given[1:])

    def _answer(self, request: dict[str, Any], given: list[int]) -> None:
        do: Callable[..., tuple[int, ...] | None] = getattr(self, f"do_{request.pop('do')}")
        number = request.pop("request")
        try:
            made = do(number, given, **request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the node is told, and the next request is served
            self._send({"request": number, "error": system.spell(error)})
            return
        if made is not None:
            self._send({"request": number}, made)
            for descriptor in made:
                os.close(descriptor)

    def do_pod(
        self,
        _number: int,
        _given: list[int],
        *,
        pod: str,
        host_name: str,
        address: str,
        staging: str,
        mounts: list[list[Any]],
        memory: list[list[str]],
    ) -> tuple[int, ...]:
        """Make a pod's namespaces, with what its containers see alike; anew when it was not done to the end."""
        self.do_drop(_number, _given, pod=pod)
        self._devices.look()
        with system.away(POD_KINDS):
            socket.sethostname(host_name)
            inside = links.inside()
            view = View(staging)
            for target, options in memory:
                view.memory(target, options)
            view.mount(Mount(*one) for one in mounts)
            mine, *shared = (system.here(kind) for kind in POD_KINDS)
        self._pods[pod] = Pod(mine, tuple(shared), staging)
        with inside:
            self._links.plug(shared[0], inside, address)
        return ()

    def do_start(
        self,
        number: int,
        given: list[int],
        *,
        run: int,
        pod: str,
        mounts: list[list[Any]],
        image: list[str],
        argv: list[str],
        env: dict[str, str],
        folder: str,
    ) -> None:
        """Start a container; answered once its program has begun."""
        home = self._pods[pod]
        with system.away([system.NEW_MOUNT], [home.view]):
            sight = View(home.staging)
            sight.mount((Mount(*one) for one in mounts), Image(*image) if image else None)
            sight.provide(folder)
            view = system.here(system.NEW_MOUNT)
        order = Order(argv, env, folder, (view, *home.shared), given, False, self._limits)
        self._begin(number, run, Run(pod, view, 0, is_guest=False), order)

    def do_try(self, _number: int, _given: list[int], *, image: list[str], staging: str) -> tuple[int, ...]:
        """Whether a container can have this image; told by an error if not."""
        with system.away([system.NEW_MOUNT]):
            View(staging).mount([], Image(*image))
        return ()

    def do_enter(
        self,
        number: int,
        given: list[int],
        *,
        run: int,
        beside: int,
        argv: list[str],
        env: dict[str, str],
        folder: str,
        terminal: bool,
    ) -> None:
        """Start one more process in a container that runs."""
        if beside not in self._runs:
            raise LookupError("the container does not run any more")
        host = self._runs[beside]
        home = self._pods[host.pod]
        order = Order(argv, env, folder, (host.view, *home.shared), given, terminal, self._limits)
        self._begin(number, run, Run(host.pod, os.dup(host.view), 0, is_guest=True), order)

    def do_signal(self, _number: int, _given: list[int], *, run: int, which: int) -> tuple[int, ...]:
        if run in self._runs:
            _kill_group(self._runs[run].pid, which)
        return ()

    def do_drop(self, _number: int, _given: list[int], *, pod: str) -> tuple[int, ...]:
        """Nothing of the pod is needed any more."""
        home = self._pods.pop(pod, None)
        if home is not None:
            for run in list(home.runs):
                _kill_view(self._runs[run].view)
            for descriptor in (home.view, *home.shared):
                os.close(descriptor)
        return ()

    def do_socket(self, _number: int, _given: list[int]) -> tuple[int, ...]:
        """A socket of the pods' network, to be used from anywhere."""
        return (socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach(),)

    def _begin(self, number: int, run: int, what: Run, order: Order) -> None:
        what.pid, told = child.spawn(order)
        self._runs[run] = what
        self._pods[what.pod].runs.add(run)
        self._begins[what.pid] = number, run, told
        self._selector.register(told, selectors.EVENT_READ, lambda: self._begun(what.pid))

    def _begun(self, pid: int) -> None:
        if pid not in self._begins:
            return
        number, run, told = self._begins.pop(pid)
        with open(told, "rb") as file:  # noqa: PTH123 - a descriptor
            self._selector.unregister(told)
            problem = file.read().decode()
        if problem:
            self._forget(run)
            self._send({"request": number, "error": problem})
        else:
            self._send({"request": number})

    def _reap(self, woken: socket.socket) -> None:
        woken.recv(4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._begun(pid)
            for run in [run for run, what in self._runs.items() if what.pid == pid]:
                self._end(run, os.waitstatus_to_exitcode(status))

    def _end(self, run: int, code: int) -> None:
        what = self._runs[run]
        if not what.is_guest:
            _kill_group(what.pid, signal.SIGKILL)
            _kill_view(what.view)
        self._forget(run)
        self._send({"ended": run, "code": code})

    def _forget(self, run: int) -> None:
        what = self._runs.pop(run)
        os.close(what.view)
        if what.pod in self._pods:
            self._pods[what.pod].runs.discard(run)

    def _send(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)


def _kill_group(leader: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, number)


def _kill_view(view: int) -> None:
    """Kill all processes that see the file system as one container does: whatever it has started, in any group.

    Looked for until there is none: a process may fork while we look. One that even a kill does not end at once (a
    driver holds it) is left to the kernel.
    """
    wanted = os.fstat(view).st_ino
    for _ in range(KILL_ROUNDS):
        found = [pid for pid in _processes() if _view_of(pid) == wanted]
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(KILL_PAUSE_SECONDS)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _view_of(pid: int) -> int | None:
    """The number of a process's mount namespace; None of one that has ended."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").stat().st_ino
    except OSError:
        return None
