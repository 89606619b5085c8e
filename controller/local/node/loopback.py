"""Isolation with plain processes: an address of 127.0.0.0/8 for each pod, names and mount paths replaced in the manifest.

A process sees the whole machine. It gets along with its neighbours as long as it listens on its own address; a
listener on all addresses (0.0.0.0, ::) takes its port from every pod, so a pod of another job that declares the same
port waits until it is free. Where a volume's path is not spelled in the manifest it cannot be provided, and the pod is
refused.
"""

import asyncio
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from controller.local.manifest import Manifest
from controller.local.node import names, volumes
from controller.local.node.addresses import Addresses
from controller.local.node.environment import Variable
from controller.local.node.network import Network
from controller.local.node.process import Launch
from controller.local.node.volumes import Mount

EVERY_ADDRESS = ("0.0.0.0", "::", "*")


class Loopback:
    name = "loopback"

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._groups: dict[int, Manifest] = {}
        self._interface = loopback_interface()
        self.network = Network(addresses)

    @property
    def node_address(self) -> str:
        return self._addresses.node

    def pod_address(self, pod: Manifest) -> str:
        return self._addresses.of(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def refusal(self, pod: Manifest) -> str:
        return volumes.unknown(pod) or next(
            (reason for container in _containers(pod) if (reason := self._unseen(pod, container))), ""
        )

    async def obstacle(self, pod: Manifest) -> str:
        wanted = {port["containerPort"] for c in _containers(pod) for port in c.get("ports") or ()}
        others = {group: other for group, other in self._groups.items() if _job(other) != _job(pod)}
        if not wanted or not others:
            return ""
        for group, port in await asyncio.to_thread(_takes_every_address, frozenset(others)):
            if port in wanted and group in others:
                other = others[group]["metadata"]
                return (
                    f"pod {other['namespace']}/{other['name']} listens on port {port} of all addresses, which "
                    "loopback isolation cannot share; this pod declares that port and waits"
                )
        return ""

    def rewrite(self, pod: Manifest, text: str) -> str:
        return names.replace(text, lambda word: self.network.address_of(pod, word))

    def place(
        self, pod: Manifest, launch: Launch, variables: Mapping[str, Variable], mounts: Sequence[Mount]
    ) -> Launch:
        moved = {mount.path: str(mount.place) for mount in mounts if not _is_there(mount)}

        def text(written: str) -> str:
            return names.replace_paths(self.rewrite(pod, written), moved)

        written = {name: text(variable.value) for name, variable in variables.items() if variable.written}
        return replace(
            launch,
            argv=[text(part) for part in launch.argv],
            env={**self._hints(self.pod_address(pod)), **launch.env, **written},
            folder=names.replace_paths(launch.folder, moved),
        )

    def joined(self, pod: Manifest, group: int) -> None:
        self._groups[group] = pod

    def left(self, pod: Manifest, group: int) -> None:
        self._groups.pop(group, None)

    async def close(self) -> None:
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
            if name not in kinds:
                return f'container "{container["name"]}" mounts volume "{name}", which the pod does not have'
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


def _takes_every_address(groups: frozenset[int]) -> list[tuple[int, int]]:
    """The (process group, port) of each listener of ``groups`` on all addresses. Reads /proc, some milliseconds."""
    found: list[tuple[int, int]] = []
    for process in psutil.process_iter():
        try:
            group = os.getpgid(process.pid)
            if group in groups:
                listening = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
                found += [(group, c.laddr.port) for c in listening if c.laddr.ip in EVERY_ADDRESS]
        except (psutil.Error, ProcessLookupError, PermissionError):
            continue
    return found
