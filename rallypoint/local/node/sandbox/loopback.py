"""Isolation with plain processes: each pod has an address in 127.0.0.0/8, and the manifest is rewritten.

Addresses replace names, and real paths replace mount paths. A process sees the whole machine. If a port is in use,
another one replaces it in the manifest (``ports``). A second program with the same built-in port on all addresses fails.
A pod with a volume whose path does not occur in the manifest is rejected.
"""

import asyncio
import errno
import os
import signal
import socket
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import psutil

from api.restart_report import SETTINGS_VARIABLE
from rallypoint.local.manifest import Manifest, containers, controller_uid
from rallypoint.local.node.containers import guard
from rallypoint.local.node.containers.environment import Variable
from rallypoint.local.node.containers.process import (
    GuardClient,
    Launch,
    Process,
    ProcessGroup,
    Streams,
    pod_of,
)
from rallypoint.local.node.network import name_rewrite
from rallypoint.local.node.network.addresses import Addresses
from rallypoint.local.node.network.dns import PodNetwork
from rallypoint.local.node.network.ports import Ports
from rallypoint.local.node.remote.target import is_equipped
from rallypoint.local.node.sandbox.isolation import connected
from rallypoint.local.node.volumes import setup
from rallypoint.local.node.volumes.setup import Mount

HOST_SUFFIXES = ("ADDR", "ADDRESS", "HOST")
"""Suffixes of variables with the host of a port: MASTER_ADDR, COORDINATOR_ADDRESS."""

NEEDS_LOCALHOST = ("PADDLE_MASTER",)
"""Variables whose host must be 127.0.0.1 if it is the pod itself.

Paddle's launcher serves only if it recognizes the address as its own: 127.0.0.1, or the address of the machine's name.
It listens on all addresses, so other pods reach it at the pod's address.
"""

OPEN_MPI = {
    "OMPI_MCA_btl": "^vader",
    "PMIX_MCA_gds": "hash",
    "OMPI_MCA_plm_rsh_pass_environ_mca_params": "0",  # A daemon must not inherit the launcher's folder.
}
LISTENER_SECONDS = 2.0
"""How long a pod's listening address is used again. To find one takes 50 µs for each process of the machine."""
FIRST_PORT = 1024
"""A smaller number after a host in MPI's files is a number of slots."""
INJECTED = ("ssh-auth", "mpi-job-config", "mpi-job-kubectl")
"""Volumes that the MPI operators add. Local mode does not need them, or passes their real paths in variables and files."""


class Loopback:
    name = "loopback"
    has_network = False

    def __init__(self, addresses: Addresses, guard: GuardClient, folder: Path) -> None:
        self.folder = folder
        self._addresses = addresses
        self._guard = guard
        self.ports = Ports()
        self._interface = loopback_interface()
        self.network = PodNetwork(addresses)
        self._marks_to_sweep: set[str] = set()
        """The marks of containers with further processes."""
        self._searching = asyncio.Lock()
        self._listeners: dict[tuple[str, tuple[int, ...]], tuple[float, tuple[str, int]]] = {}
        """When and at which address a pod listened on one of the ports, by the pod's UID and the ports."""

    @classmethod
    async def open(cls, folder: Path) -> Self:
        """Claim addresses and start the guard.

        Raises:
            NoAddresses: this machine has no addresses for pods.
        """
        addresses = Addresses.claim()
        try:
            return cls(addresses, await GuardClient.start(uuid.uuid4().hex, folder), folder)
        except BaseException:
            addresses.close()
            raise

    @property
    def node_address(self) -> str:
        return self._addresses.node

    def pod_address(self, pod: Manifest) -> str:
        return self._addresses.of(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def rejection(self, pod: Manifest) -> str:
        return setup.unsupported(pod) or next(
            (reason for container in containers(pod) if (reason := self._unmountable(pod, container))), ""
        )

    def rewrite(self, pod: Manifest, text: str) -> str:
        return self._rewrite(pod, self.paths(text, _shared_mounts(pod, self.folder)))

    def _rewrite(self, pod: Manifest, text: str) -> str:
        return name_rewrite.replace(text, lambda name, port: self._resolve(pod, name, port))

    def variables(
        self, pod: Manifest, found: Mapping[str, Variable], mounts: Sequence[Mount]
    ) -> dict[str, str]:
        values: dict[str, str] = {}
        for name, variable in found.items():
            if not variable.written:
                values[name] = variable.value
            elif port := self._port_variable(pod, variable, found):
                values[name] = str(port)
            else:
                values[name] = self._rewrite(pod, self.paths(variable.value, mounts))
                if name in NEEDS_LOCALHOST:
                    values[name] = values[name].replace(f"{self.pod_address(pod)}:", "127.0.0.1:")
        return values

    def paths(self, text: str, mounts: Sequence[Mount]) -> str:
        moved = {mount.path: str(mount.source) for mount in mounts if not _is_in_place(mount)}
        return name_rewrite.replace_paths(text, moved)

    def adapt(self, pod: Manifest, launch: Launch) -> Launch:
        return replace(
            launch,
            argv=[self._rewrite(pod, part) for part in launch.argv],
            env={**self._network_variables(pod), **launch.env},
        )

    def port(self, pod: Manifest, port: int) -> int:
        return self.ports.lookup(_job(pod), self.pod_address(pod), port)

    async def connect(self, pod: Manifest, port: int) -> socket.socket:
        """Connect to the process of the pod that listens on the port or on its substitute.

        All pods have the same localhost, so another pod may listen on the port, too.
        """
        key = str(pod["metadata"]["uid"]), tuple(dict.fromkeys((self.port(pod, port), port)))
        async with self._searching:  # Connections that come meanwhile use what this one finds.
            address = await self._listener(*key)
        try:
            return await self._connect(pod, *address)
        except ConnectionRefusedError:
            self._listeners.pop(key, None)
            raise

    async def _listener(self, uid: str, ports: tuple[int, ...]) -> tuple[str, int]:
        """Return the address at which a process of the pod listens on one of the ports, as of 2 s ago at most.

        Raises:
            ConnectionRefusedError: none does.
        """
        time = asyncio.get_running_loop().time
        self._listeners = {
            key: found for key, found in self._listeners.items() if time() - found[0] < LISTENER_SECONDS
        }
        if known := self._listeners.get((uid, ports)):
            return known[1]
        address = await asyncio.to_thread(_listening, uid, ports)
        if address is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._listeners[uid, ports] = time(), address
        return address

    async def _connect(self, pod: Manifest, host: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        host = {"0.0.0.0": self.pod_address(pod), "::": "::1"}.get(host, host)
        return await connected(socket.socket(family, socket.SOCK_STREAM), (host, port))

    async def socket(self) -> socket.socket:
        own = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        own.setblocking(False)
        return own

    async def prepare(self, pod: Manifest, volumes: Mapping[str, Path]) -> None:
        """Create Open MPI's folder; containers share nothing else."""
        if is_equipped(pod):
            _scratch(pod, self.folder).mkdir(parents=True, exist_ok=True)

    async def start(self, pod: Manifest, container: str, launch: Launch, streams: Streams) -> Process:
        mark = _mark(pod, container)
        _make_working_directory(launch)
        if is_equipped(pod) or SETTINGS_VARIABLE in launch.env:
            self._marks_to_sweep.add(
                mark
            )  # The agent of a restart in place starts its command in a group of its own.
        return _ContainerProcess(
            await ProcessGroup.start(_marked(launch, mark), self._guard, streams), mark, self._marks_to_sweep
        )

    async def enter(self, pod: Manifest, container: str, launch: Launch, streams: Streams) -> Process:
        mark = _mark(pod, container)
        self._marks_to_sweep.add(mark)
        return await ProcessGroup.start(_marked(launch, mark), self._guard, streams, is_exec=True)

    def release(self, pod: Manifest) -> None:
        """Do nothing: a pod holds no resources here."""

    def discard(self, pod: Manifest) -> None:
        """Release the ports with a job's last pod: until then its pods refer to each other by them."""
        self._addresses.release(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if any(_job(other) == _job(pod) for other in self.network.pods.values()):
            return
        self.ports.release(_job(pod))

    def _resolve(self, pod: Manifest, name: str, port: int | None) -> tuple[str, int | None] | None:
        """Return the address and port for a name. The pod's own address counts as a name: ``$(POD_IP):8080``."""
        is_itself = name == self.pod_address(pod)
        address = name if is_itself else self.network.address_of(pod, name)
        if address is None:
            return None
        is_port = port is not None and not (port < FIRST_PORT and is_equipped(pod))
        if port is not None and is_port and (is_itself or self.network.is_sibling(pod, name)):
            port = self.ports.of(_job(pod), address, port)
        return address, port

    def _port_variable(self, pod: Manifest, variable: Variable, found: Mapping[str, Variable]) -> int | None:
        """Return the port for a variable such as MASTER_PORT, whose host is in MASTER_ADDR."""
        stem, _, word = variable.name.rpartition("_")
        if word != "PORT" or not variable.value.isdigit():
            return None
        for suffix in HOST_SUFFIXES:
            host = found.get(f"{stem}_{suffix}")
            if host is not None and (resolved := self._resolve(pod, host.value, int(variable.value))):
                return resolved[1]
        return None

    async def close(self) -> None:
        await self._guard.stop()
        self.ports.close()
        self._addresses.close()

    def _network_variables(self, pod: Manifest) -> dict[str, str]:
        """Return the variables that keep torch and MPI on the loopback interface; others of the same name win.

        By default gloo and TensorPipe resolve the machine's host name, which may fail; NCCL and Open MPI ignore the
        loopback interface; torchrun publishes its host name. Open MPI names shared memory and files after the host and
        the rank, but all pods share one host.
        """
        interfaces = ["GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"]
        mpi: dict[str, str] = {}
        if is_equipped(pod):
            interfaces += ["OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"]
            mpi = {**OPEN_MPI, "OMPI_MCA_orte_tmpdir_base": str(_scratch(pod, self.folder))}
        return {**dict.fromkeys(interfaces, self._interface), "PET_LOCAL_ADDR": self.pod_address(pod), **mpi}

    def _unmountable(self, pod: Manifest, container: Manifest) -> str:
        """Return why a process on the machine's file system cannot see a mount of ``container``."""
        kinds = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
        texts = list(_texts(container))
        for mount in container.get("volumeMounts") or ():
            name, path = mount["name"], mount["mountPath"]
            if name in INJECTED and is_equipped(pod):
                continue
            if _is_visible(kinds[name], mount) or any(
                name_rewrite.mentions_path(text, path) for text in texts
            ):
                continue
            return (
                f'volume "{name}" cannot be mounted in container "{container["name"]}" at {path}: without a mount '
                "namespace a path is replaced only where command, args, env or workingDir contain it, and none does"
            )
        return ""


class _ContainerProcess:
    """The ``Process`` of a container, with the further processes in their own groups."""

    def __init__(self, group: ProcessGroup, mark: str, marks_to_sweep: set[str]) -> None:
        self._group = group
        self._mark = mark
        self._marks_to_sweep = marks_to_sweep

    async def wait(self) -> int:
        try:
            return await self._group.wait()
        finally:
            if self._mark in self._marks_to_sweep:
                self._marks_to_sweep.discard(self._mark)
                await asyncio.to_thread(guard.sweep, guard.CONTAINER, self._mark)

    def send(self, number: signal.Signals) -> None:
        self._group.send(number)


def _make_working_directory(launch: Launch) -> None:
    """Create a missing working directory inside a writable volume of the pod."""
    folder = Path(launch.folder)
    if any(
        folder.is_relative_to(mount.source) and not mount.read_only
        for mount in launch.mounts
        if mount.source.is_dir()
    ):
        folder.mkdir(parents=True, exist_ok=True)


def _scratch(pod: Manifest, folder: Path) -> Path:
    """Return the pod's folder for files that Open MPI names after the host, which all pods share."""
    return folder / str(pod["metadata"]["uid"]) / ".mpi"


def _mark(pod: Manifest, container: str) -> str:
    return f"{pod['metadata']['uid']}/{container}"


def _marked(launch: Launch, mark: str) -> Launch:
    return replace(launch, env={**launch.env, guard.CONTAINER: mark})


def _listening(uid: str, ports: Iterable[int]) -> tuple[str, int] | None:
    """Return the address at which a process of the pod listens on the first possible of these ports, of IPv4 if there is one."""
    found: set[tuple[int, bool, str]] = set()
    for process in psutil.process_iter():
        try:
            if pod_of(process) == uid:
                found |= {
                    (connection.laddr.port, ":" in connection.laddr.ip, connection.laddr.ip)
                    for connection in process.net_connections("tcp")
                    if connection.status == psutil.CONN_LISTEN
                }
        except psutil.Error:
            continue
    return next(((host, port) for port in ports for number, _, host in sorted(found) if number == port), None)


def loopback_interface() -> str:
    """Return the name of the interface with 127.0.0.1: ``lo``, ``lo0``."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(a.family == socket.AF_INET and a.address.startswith("127.") for a in addresses):
            return name
    return "lo"


def _is_visible(volume: Manifest, mount: Manifest) -> bool:
    """Return whether the machine has these files at the same path."""
    path, inside = mount["mountPath"], mount.get("subPath") or ""
    if host := volume.get("hostPath"):
        return Path(host["path"], inside).resolve() == Path(path).resolve()
    return path == "/dev/shm" and (volume.get("emptyDir") or {}).get("medium") == "Memory"


def _is_in_place(mount: Mount) -> bool:
    """Return whether the mount path needs no replacement: it is that of the source, or the machine's shared memory."""
    return mount.path == "/dev/shm" or mount.source.resolve() == Path(mount.path).resolve()


def _shared_mounts(pod: Manifest, folder: Path) -> list[Mount]:
    """Return the mounts of the pod's own volumes that are equal in all its containers; files may contain their paths."""
    own_volumes = {
        volume["name"]
        for volume in pod["spec"].get("volumes") or ()
        if not any(kind in volume for kind in ("hostPath", *setup.CLAIMED))
    }
    found: dict[str, set[Mount]] = defaultdict(set)
    for container in containers(pod):
        for mount in container.get("volumeMounts") or ():
            name, path = mount["name"], mount["mountPath"]
            if name in own_volumes and not mount.get("subPathExpr"):
                source = folder / pod["metadata"]["uid"] / name / (mount.get("subPath") or "")
                found[path].add(Mount(name, path, source))
    return [next(iter(mounts)) for mounts in found.values() if len(mounts) == 1]


def _texts(container: Manifest) -> Iterable[str]:
    yield from container.get("command") or ()
    yield from container.get("args") or ()
    yield from (entry.get("value") or "" for entry in container.get("env") or ())
    yield container.get("workingDir") or ""


def _job(pod: Manifest) -> str:
    """Return the UID of the pod's controller; without one, its own UID."""
    return controller_uid(pod) or str(pod["metadata"]["uid"])
