"""The service of the sandbox daemon: creates and removes sandboxes and their processes on request.

It is the init process of its PID namespace: when it exits, the kernel kills all other processes in there and removes
their namespaces, mounts and interfaces.

Each request is a message with descriptors: the first is a file in memory with the request as JSON, the others are its
arguments. Requests are served one at a time, without blocking.
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

from rallypoint.local.node.sandbox.daemon import links, system
from rallypoint.local.node.sandbox.daemon.process import ProcessSpec, spawn
from rallypoint.local.node.sandbox.daemon.view import Devices, FilesystemView, Image, Mount

MAX_DESCRIPTORS = 8
MESSAGE_BYTES = 64
"""Requests travel in a file; the message itself is one byte."""
KILL_ROUNDS = 200
KILL_PAUSE_SECONDS = 0.005
POD_KINDS = (system.CLONE_NEWNS, system.CLONE_NEWNET, system.CLONE_NEWUTS, system.CLONE_NEWIPC)


@dataclass
class Sandbox:
    """The namespaces of a pod, as descriptors."""

    mount_namespace: int
    """Each container copies it."""
    shared: tuple[int, ...]
    """The other namespaces, which all containers share."""
    staging: str
    runs: set[int] = field(default_factory=set)


@dataclass
class Run:
    """The main process of a container, or a process started in the container later."""

    pod: str
    mount_namespace: int
    pid: int
    is_exec: bool
    """Whether it was started in the container of another run. Its exit kills no other process."""


class SandboxService:
    def __init__(self, control: socket.socket, address: str) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._links = links.PodLinks(address)
        self._devices = Devices()
        self._sandboxes: dict[str, Sandbox] = {}
        self._runs: dict[int, Run] = {}
        self._starting: dict[int, tuple[int, int, int]] = {}
        """Process id → (request, run, descriptor) of processes that have not reported their start yet."""
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._limits[1], self._limits[1]))

    def serve(self) -> None:
        """Serve requests until the node closes its socket."""
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
        data, given, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, MAX_DESCRIPTORS)
        if not data:
            raise EOFError
        with ExitStack() as stack:
            for descriptor in given:
                os.set_inheritable(descriptor, False)  # Otherwise a program's children hold them open.
                stack.callback(os.close, descriptor)
            with open(given[0], "rb", closefd=False) as file:
                file.seek(0)
                request: dict[str, Any] = json.loads(file.read())
            self._answer(request, given[1:])

    def _answer(self, request: dict[str, Any], given: list[int]) -> None:
        do: Callable[..., tuple[int, ...] | None] = getattr(self, f"do_{request.pop('do')}")
        number = request.pop("request")
        try:
            opened = do(number, given, **request)
        except Exception as error:  # noqa: BLE001 - report any error to the node and serve the next request
            self._send({"request": number, "error": system.error_text(error)})
            return
        if opened is not None:
            self._send({"request": number}, opened)
            for descriptor in opened:
                os.close(descriptor)

    def do_create(
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
        """Create a pod's namespaces and shared mounts; replace an incomplete sandbox."""
        self.do_remove(_number, _given, pod=pod)
        self._devices.refresh()
        with system.temporary_namespaces(POD_KINDS):
            socket.sethostname(host_name)
            inside = links.open_inside()
            view = FilesystemView(staging)
            for target, options in memory:
                view.mount_tmpfs(target, options)
            view.mount(Mount(*mount) for mount in mounts)
            mount_namespace, *shared = (system.current_namespace(kind) for kind in POD_KINDS)
        self._sandboxes[pod] = Sandbox(mount_namespace, tuple(shared), staging)
        with inside:
            self._links.attach(shared[0], inside, address)
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
        """Start a container; answer when its program has started."""
        sandbox = self._sandboxes[pod]
        with system.temporary_namespaces([system.CLONE_NEWNS], [sandbox.mount_namespace]):
            filesystem = FilesystemView(sandbox.staging)
            filesystem.mount((Mount(*mount) for mount in mounts), Image(*image) if image else None)
            filesystem.make_working_directory(folder)
            namespace = system.current_namespace(system.CLONE_NEWNS)
        spec = ProcessSpec(argv, env, folder, (namespace, *sandbox.shared), given, False, self._limits)
        self._spawn(number, run, Run(pod, namespace, 0, is_exec=False), spec)

    def do_check_image(
        self, _number: int, _given: list[int], *, image: list[str], staging: str
    ) -> tuple[int, ...]:
        """Mount an image once to check it; answer with an error if that fails."""
        with system.temporary_namespaces([system.CLONE_NEWNS]):
            FilesystemView(staging).mount([], Image(*image))
        return ()

    def do_enter(
        self,
        number: int,
        given: list[int],
        *,
        run: int,
        main_run: int,
        argv: list[str],
        env: dict[str, str],
        folder: str,
        terminal: bool,
    ) -> None:
        """Start another process in a running container."""
        if main_run not in self._runs:
            raise LookupError("the container no longer runs")
        main = self._runs[main_run]
        namespaces = main.mount_namespace, *self._sandboxes[main.pod].shared
        spec = ProcessSpec(argv, env, folder, namespaces, given, terminal, self._limits)
        self._spawn(number, run, Run(main.pod, os.dup(main.mount_namespace), 0, is_exec=True), spec)

    def do_signal(self, _number: int, _given: list[int], *, run: int, which: int) -> tuple[int, ...]:
        if run in self._runs:
            _kill_group(self._runs[run].pid, which)
        return ()

    def do_remove(self, _number: int, _given: list[int], *, pod: str) -> tuple[int, ...]:
        """Remove a sandbox and kill its processes."""
        sandbox = self._sandboxes.pop(pod, None)
        if sandbox is not None:
            for run in list(sandbox.runs):
                _kill_mount_namespace(self._runs[run].mount_namespace)
            for descriptor in (sandbox.mount_namespace, *sandbox.shared):
                os.close(descriptor)
        return ()

    def do_socket(
        self, _number: int, _given: list[int], *, pod: str = "", family: int = socket.AF_INET
    ) -> tuple[int, ...]:
        """Create a socket in the network namespace of a pod, without one in that of the bridge.

        It is usable from any namespace.
        """
        if pod and pod not in self._sandboxes:
            raise LookupError("the pod no longer runs")
        with ExitStack() as stack:
            if pod:
                network, *_ = self._sandboxes[pod].shared
                stack.enter_context(system.entered_namespace(system.CLONE_NEWNET, network))
            return (socket.socket(family, socket.SOCK_STREAM).detach(),)

    def _spawn(self, number: int, run: int, process: Run, spec: ProcessSpec) -> None:
        process.pid, errors = spawn(spec)
        self._runs[run] = process
        self._sandboxes[process.pod].runs.add(run)
        self._starting[process.pid] = number, run, errors
        self._selector.register(errors, selectors.EVENT_READ, lambda: self._handle_start(process.pid))

    def _handle_start(self, pid: int) -> None:
        if pid not in self._starting:
            return
        number, run, errors = self._starting.pop(pid)
        with open(errors, "rb") as file:  # noqa: PTH123 - a descriptor
            self._selector.unregister(errors)
            problem = file.read().decode()
        if problem:
            self._discard(run)
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
            self._handle_start(pid)
            for run in [run for run, process in self._runs.items() if process.pid == pid]:
                self._handle_exit(run, os.waitstatus_to_exitcode(status))

    def _handle_exit(self, run: int, code: int) -> None:
        process = self._runs[run]
        if not process.is_exec:
            _kill_group(process.pid, signal.SIGKILL)
            _kill_mount_namespace(process.mount_namespace)
        self._discard(run)
        self._send({"ended": run, "code": code})

    def _discard(self, run: int) -> None:
        process = self._runs.pop(run)
        os.close(process.mount_namespace)
        if process.pod in self._sandboxes:
            self._sandboxes[process.pod].runs.discard(run)

    def _send(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)


def _kill_group(leader: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, number)


def _kill_mount_namespace(descriptor: int) -> None:
    """Kill all processes in the mount namespace of one container, in any process group.

    Repeat until none is left, because a process may fork meanwhile. Give up on a process that SIGKILL does not end at
    once, for example one in uninterruptible sleep.
    """
    namespace = os.fstat(descriptor).st_ino
    for _ in range(KILL_ROUNDS):
        pids = [pid for pid in _processes() if _mount_namespace_of(pid) == namespace]
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(KILL_PAUSE_SECONDS)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _mount_namespace_of(pid: int) -> int | None:
    """Return the inode of a process's mount namespace; None if the process has exited."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").stat().st_ino
    except OSError:
        return None
