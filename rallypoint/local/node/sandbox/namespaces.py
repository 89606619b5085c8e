"""Isolation with Linux namespaces: each pod has its own network, host name, shared memory and view of the file system.

The manifest is not rewritten: names resolve (``hosts_file``), each pod has all ports, volumes are at their paths. The
sandbox daemon, a separate process, creates the sandboxes; all processes in them exit with it. Without root it uses a
user namespace, in which processes keep their UID.
"""

import itertools
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from api import quantity
from rallypoint.local import private
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.environment import Variable
from rallypoint.local.node.containers.images import NO_IMAGES, Images
from rallypoint.local.node.containers.launch import host_name
from rallypoint.local.node.containers.process import Launch, Process, Streams
from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.network.addresses import PRIVATE, Addresses
from rallypoint.local.node.network.dns import PodNetwork
from rallypoint.local.node.network.egress import Egress
from rallypoint.local.node.network.hosts_file import Hosts
from rallypoint.local.node.sandbox.client import NoNamespaces, SandboxClient, SandboxHandle
from rallypoint.local.node.sandbox.isolation import connected
from rallypoint.local.node.volumes import projected, service_account, setup
from rallypoint.local.node.volumes.setup import Mount

SHARED_MEMORY = "/dev/shm"
WORLD_WRITABLE = "mode=1777"
RESOLVER = "/etc/resolv.conf"


class Namespaces:
    name = "namespaces"
    has_network = True

    def __init__(
        self,
        daemon: SandboxClient,
        addresses: Addresses,
        folder: Path,
        egress: Egress | None,
    ) -> None:
        self.folder = folder
        self._egress = egress
        self.network = PodNetwork(addresses)
        self._daemon = daemon
        self._addresses = addresses
        self._hosts = Hosts(self.network, f"{addresses.node}\t{' '.join(service_account.NAMES)}\n")
        self._runs: dict[tuple[str, str], SandboxHandle] = {}
        self._begun = itertools.count(1)

    @classmethod
    async def open(cls, folder: Path, *, egress: bool = False, images: Images = NO_IMAGES) -> Self:
        """Start the daemon. ``egress``: give pods a proxy to networks outside the machine.

        Raises:
            NoNamespaces: this machine does not allow namespaces, or not with these images.
        """
        addresses = Addresses(PRIVATE)
        private.folder(folder)
        daemon = await SandboxClient.start(folder, addresses.node)
        try:
            await _check_images(daemon, folder, images)
            proxy = None
            if egress:
                (listener,) = await daemon.call("socket")
                proxy = await Egress.open(socket.socket(fileno=listener), addresses.node, os.environ)
        except BaseException:
            await daemon.stop()
            raise
        return cls(daemon, addresses, folder, proxy)

    @property
    def node_address(self) -> str:
        return self._addresses.node

    def pod_address(self, pod: Manifest) -> str:
        return self._addresses.of(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def rejection(self, pod: Manifest) -> str:
        return setup.unsupported(pod)

    def rewrite(self, pod: Manifest, text: str) -> str:
        return text

    def variables(
        self, pod: Manifest, found: Mapping[str, Variable], mounts: Sequence[Mount]
    ) -> dict[str, str]:
        return {name: variable.value for name, variable in found.items()}

    def adapt(self, pod: Manifest, launch: Launch) -> Launch:
        unwritable = {
            volume["name"] for volume in pod["spec"].get("volumes") or () if projected.is_projected(volume)
        }
        mounts = [
            replace(mount, read_only=mount.read_only or mount.volume in unwritable) for mount in launch.mounts
        ]
        env = self._egress.variables(launch.env, f"{PRIVATE}.0.0/16") if self._egress else launch.env
        return replace(launch, mounts=mounts, env=env)

    def paths(self, text: str, mounts: Sequence[Mount]) -> str:
        return text

    def port(self, pod: Manifest, port: int) -> int:
        return port

    async def connect(self, pod: Manifest, port: int) -> socket.socket:
        inside = {"pod": pod["metadata"]["uid"]}
        try:
            return await connected(await self._socket(**inside), ("127.0.0.1", port))
        except ConnectionRefusedError as refusal:
            try:
                return await connected(await self._socket(**inside, family=socket.AF_INET6), ("::1", port))
            except OSError:
                raise refusal from None

    async def _socket(self, **fields: Any) -> socket.socket:
        try:
            (descriptor,) = await self._daemon.call("socket", **fields)
        except CannotStart as error:
            raise OSError(str(error)) from error
        return socket.socket(fileno=descriptor)

    async def socket(self) -> socket.socket:
        """Return a socket in the network namespace of the bridge."""
        own = await self._socket()
        own.setblocking(False)
        return own

    async def prepare(self, pod: Manifest, volumes: Mapping[str, Path]) -> None:
        own = self.folder / pod["metadata"]["uid"] / ".pod"
        staging = own / "root"
        staging.mkdir(parents=True, exist_ok=True)
        address, name = self.pod_address(pod), host_name(pod)
        self._hosts.add(pod, address, own / "hosts")
        (own / "hostname").write_text(f"{name}\n")
        await self._daemon.call(
            "create",
            pod=pod["metadata"]["uid"],
            host_name=name,
            address=address,
            staging=str(staging),
            mounts=[[str(own / file), f"/etc/{file}"] for file in ("hosts", "hostname")],
            memory=[[SHARED_MEMORY, WORLD_WRITABLE], *_memory_volumes(pod, volumes)],
        )

    async def start(self, pod: Manifest, container: str, launch: Launch, streams: Streams) -> Process:
        self._hosts.refresh(pod)
        mounts: list[list[Any]] = [
            [str(mount.source), mount.path, mount.read_only, str(mount.within or mount.source)]
            for mount in launch.mounts
        ]
        uid = pod["metadata"]["uid"]
        image: list[str] = []
        if launch.image is not None:
            own = self.folder / uid / ".pod"
            mounts += [
                [f"{own}/{file}", f"/etc/{file}"] for file in ("hosts", "hostname")
            ] + _resolver_mounts()
            image = [str(launch.image), str(own / f"image-{next(self._begun)}")]
        run = await self._daemon.run(
            "start", _descriptors(streams), pod=uid, mounts=mounts, image=image, **_program_fields(launch)
        )
        self._runs[uid, container] = run
        return run

    async def enter(self, pod: Manifest, container: str, launch: Launch, streams: Streams) -> Process:
        run = self._runs.get((pod["metadata"]["uid"], container))
        if run is None:
            raise CannotStart(f"container {container} is not running")
        self._hosts.refresh(pod)
        return await self._daemon.run(
            "enter",
            _descriptors(streams),
            main_run=run.number,
            terminal=streams.terminal,
            **_program_fields(launch),
        )

    def release(self, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        self._hosts.drop(pod)
        self._daemon.send("remove", pod=uid)
        for key in [key for key in self._runs if key[0] == uid]:
            del self._runs[key]

    def discard(self, pod: Manifest) -> None:
        self._addresses.release(pod["metadata"]["namespace"], pod["metadata"]["name"])

    async def close(self) -> None:
        self._hosts.close()
        if self._egress is not None:
            self._egress.close()
        await self._daemon.stop()


def _resolver_mounts() -> list[list[str]]:
    """Return the mount of the machine's resolver configuration into an image."""
    return [[RESOLVER, RESOLVER]] if Path(RESOLVER).exists() else []


async def _check_images(daemon: SandboxClient, folder: Path, images: Images) -> None:
    staging = folder / ".try" / "root"
    for number, (name, root) in enumerate(images.roots()):
        staging.mkdir(parents=True, exist_ok=True)
        try:
            await daemon.call(
                "check_image", image=[str(root), str(folder / ".try" / str(number))], staging=str(staging)
            )
        except CannotStart as error:
            raise NoNamespaces(f"{root} cannot be the file system of image {name}: {error}") from error


def _program_fields(launch: Launch) -> dict[str, Any]:
    return {"argv": list(launch.argv), "env": dict(launch.env), "folder": launch.folder}


def _descriptors(streams: Streams) -> tuple[int, int, int]:
    return streams.stdin, streams.stdout, streams.stderr


def _memory_volumes(pod: Manifest, volumes: Mapping[str, Path]) -> list[list[str]]:
    """Return the path and the mount options of each volume in memory."""
    found: list[list[str]] = []
    for volume in pod["spec"].get("volumes") or ():
        given = volume.get("emptyDir") or {}
        if given.get("medium") == "Memory":
            limit = given.get("sizeLimit")
            options = (
                WORLD_WRITABLE if limit is None else f"{WORLD_WRITABLE},size={int(quantity.parse(limit))}"
            )
            found.append([str(volumes[volume["name"]]), options])
    return found
