"""Isolation with plain processes: an address of 127.0.0.0/8 for each pod, names and mount paths replaced in the manifest.

A process sees the whole machine. Where a port is already taken, by another pod or by anything else, another one is
written in its place (``ports``); what programs do not read from the manifest but have built in, such as a port to
listen on with all addresses, they cannot share, and the second one is told so by the kernel. Where a volume's path is
not spelled in the manifest it cannot be provided, and the pod is refused.
"""

import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import psutil

from controller.local.manifest import Manifest
from controller.local.node import names, volumes
from controller.local.node.addresses import Addresses
from controller.local.node.environment import Variable
from controller.local.node.network import Network
from controller.local.node.ports import Ports
from controller.local.node.process import Group, Guard, Launch, Process, Streams
from controller.local.node.volumes import Mount

HOST_SUFFIXES = ("ADDR", "ADDRESS", "HOST")
"""How variables end that hold the host of a port: MASTER_ADDR, COORDINATOR_ADDRESS."""

NEEDS_LOCALHOST = ("PADDLE_MASTER",)
"""Variables whose host must be 127.0.0.1 where it is the pod itself.

Paddle's launcher serves only at an address that it takes for its own: that one, or what the machine's name resolves to.
It listens on all addresses, so that the others find it at the pod's.
"""


class Loopback:
    name = "loopback"

    def __init__(self, addresses: Addresses, guard: Guard, folder: Path) -> None:
        self.folder = folder
        self._addresses = addresses
        self._guard = guard
        self.ports = Ports()
        self._interface = loopback_interface()
        self.network = Network(addresses)

    @classmethod
    async def open(cls, folder: Path) -> Self:
        """Raises:
        NoAddresses: this machine has no addresses for pods.
        """
        addresses = Addresses.claim()
        try:
            return cls(addresses, await Guard.start(uuid.uuid4().hex, folder), folder)
        except BaseException:
            addresses.close()
            raise

    @property
    def node_address(self) -> str:
        return self._addresses.node

    def pod_address(self, pod: Manifest) -> str:
        return self._addresses.of(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def refusal(self, pod: Manifest) -> str:
        return volumes.unknown(pod) or next(
            (reason for container in _containers(pod) if (reason := self._unseen(pod, container))), ""
        )

    def rewrite(self, pod: Manifest, text: str) -> str:
        return names.replace(text, lambda name, port: self._find(pod, name, port))

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
                values[name] = self.rewrite(pod, self.paths(variable.value, mounts))
                if name in NEEDS_LOCALHOST:
                    values[name] = values[name].replace(f"{self.pod_address(pod)}:", "127.0.0.1:")
        return values

    def paths(self, text: str, mounts: Sequence[Mount]) -> str:
        moved = {mount.path: str(mount.place) for mount in mounts if not _is_there(mount)}
        return names.replace_paths(text, moved)

    def place(self, pod: Manifest, launch: Launch) -> Launch:
        return replace(
            launch,
            argv=[self.rewrite(pod, part) for part in launch.argv],
            env={**self._hints(self.pod_address(pod)), **launch.env},
        )

    async def prepare(self, pod: Manifest, places: Mapping[str, Path]) -> None:
        """Containers share nothing but what they are told."""

    async def start(self, pod: Manifest, container: str, launch: Launch, streams: Streams) -> Process:
        return await Group.start(launch, self._guard, streams)

    async def enter(self, pod: Manifest, container: str, launch: Launch, streams: Streams) -> Process:
        return await Group.start(launch, self._guard, streams)

    def release(self, pod: Manifest) -> None:
        """Nothing is held for it."""

    def forget(self, pod: Manifest) -> None:
        """Ports are given back with a job's last pod: as long as one is left, it knows the others by them."""
        self._addresses.release(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if any(_job(other) == _job(pod) for other in self.network.pods.values()):
            return
        self.ports.release(_job(pod))

    def _find(self, pod: Manifest, name: str, port: int | None) -> tuple[str, int | None] | None:
        """What others call the pod itself by, its own address in a manifest means, too: ``$(POD_IP):8080``."""
        is_itself = name == self.pod_address(pod)
        address = name if is_itself else self.network.address_of(pod, name)
        if address is None:
            return None
        if port is not None and (is_itself or self.network.is_sibling(pod, name)):
            port = self.ports.of(_job(pod), address, port)
        return address, port

    def _port_variable(self, pod: Manifest, variable: Variable, found: Mapping[str, Variable]) -> int | None:
        """The port for a variable such as MASTER_PORT, which belongs to the host that MASTER_ADDR names."""
        stem, _, word = variable.name.rpartition("_")
        if word != "PORT" or not variable.value.isdigit():
            return None
        for suffix in HOST_SUFFIXES:
            host = found.get(f"{stem}_{suffix}")
            if host is not None and (place := self._find(pod, host.value, int(variable.value))):
                return place[1]
        return None

    async def close(self) -> None:
        await self._guard.stop()
        self.ports.close()
        self._addresses.close()

    def _hints(self, address: str) -> dict[str, str]:
        """What torch needs to stay on the loopback interface; what the person or the manifest sets goes before it.

        gloo and TensorPipe otherwise look up the machine's host name, which need not resolve, and NCCL leaves the
        loopback interface out; torchrun publishes its host name unless it is given an address.
        """
        interfaces = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        return {**dict.fromkeys(interfaces, self._interface), "PET_LOCAL_ADDR": address}

    def _unseen(self, pod: Manifest, container: Manifest) -> str:
        """Why a mount of ``container`` cannot be seen by a process that shares the machine's file system."""
        kinds = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
        texts = list(_texts(container))
        for mount in container.get("volumeMounts") or ():
            name, path = mount["name"], mount["mountPath"]
            if _is_shown(kinds[name], mount) or any(names.mentions_path(text, path) for text in texts):
                continue
            return (
                f'volume "{name}" cannot be shown to container "{container["name"]}" at {path}: without a mount '
                "namespace a path is replaced where command, args, env or workingDir spell it, and none of them does"
            )
        return ""


def loopback_interface() -> str:
    """The name of the interface that has 127.0.0.1: ``lo``, ``lo0``."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(a.family == socket.AF_INET and a.address.startswith("127.") for a in addresses):
            return name
    return "lo"


def _is_shown(volume: Manifest, mount: Manifest) -> bool:
    """Whether the machine has these files at this very path."""
    path, inside = mount["mountPath"], mount.get("subPath") or ""
    if host := volume.get("hostPath"):
        return Path(host["path"], inside).resolve() == Path(path).resolve()
    return path == "/dev/shm" and (volume.get("emptyDir") or {}).get("medium") == "Memory"


def _is_there(mount: Mount) -> bool:
    """A mount that needs no replacing: it is in its place, or it is the machine's shared memory."""
    return mount.path == "/dev/shm" or mount.place.resolve() == Path(mount.path).resolve()


def _containers(pod: Manifest) -> list[Manifest]:
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def _texts(container: Manifest) -> Iterable[str]:
    yield from container.get("command") or ()
    yield from container.get("args") or ()
    yield from (entry.get("value") or "" for entry in container.get("env") or ())
    yield container.get("workingDir") or ""


def _job(pod: Manifest) -> str:
    """The uid of what a pod belongs to; its own when it stands alone."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return str(next((o["uid"] for o in owners if o.get("controller")), pod["metadata"]["uid"]))
