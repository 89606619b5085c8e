"""Isolation with Linux namespaces: each pod has its own network, host name, shared memory and view of the file system.

Nothing of the manifest is rewritten: names resolve (``hosts``), ports are the pod's own, volumes are at their paths. The
work is done by the keeper, a process apart, so that everything ends when it ends. Where root is not to be had, it is
done in a user namespace; a process stays what it was, with the same user.
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
from rallypoint.local.node.network.egress import Egress
from rallypoint.local.node.network.hosts import Hosts
from rallypoint.local.node.network.network import Network
from rallypoint.local.node.sandbox.keeping import Keeper, Kept, NoNamespaces
from rallypoint.local.node.volumes import access, payload, volumes
from rallypoint.local.node.volumes.volumes import Mount

SHARED_MEMORY = "/dev/shm"
ANYONE = "mode=1777"
RESOLVER = "/etc/resolv.conf"


class Namespaces:
    name = "namespaces"
    has_network = True

    def __init__(
        self,
        keeper: Keeper,
        addresses: Addresses,
        folder: Path,
        egress: Egress | None,
    ) -> None:
        self.folder = folder
        self._egress = egress
        self.network = Network(addresses)
        self._keeper = keeper
        self._addresses = addresses
        self._hosts = Hosts(self.network, f"{addresses.node}\t{' '.join(access.NAMES)}\n")
        self._runs: dict[tuple[str, str], Kept] = {}
        self._begun = itertools.count(1)

    @classmethod
    async def open(cls, folder: Path, *, egress: bool = False, images: Images = NO_IMAGES) -> Self:
        """``egress``: give pods a way out of the machine. ``images``: the folders that stand for images.

        Raises:
            NoNamespaces: this machine does not let us have any, or none with these images.
        """
        addresses = Addresses(PRIVATE)
        private.folder(folder)
        keeper = await Keeper.start(folder, addresses.node)
        try:
            await _try(keeper, folder, images)
            way_out = None
            if egress:
                (listener,) = await keeper.call("socket")
                way_out = await Egress.open(socket.socket(fileno=listener), addresses.node, os.environ)
        except BaseException:
            await keeper.stop()
            raise
        return cls(keeper, addresses, folder, way_out)

    @property
    def node_address(self) -> str:
        return self._addresses.node

    def pod_address(self, pod: Manifest) -> str:
        return self._addresses.of(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def refusal(self, pod: Manifest) -> str:
        return volumes.unknown(pod)

    def rewrite(self, pod: Manifest, text: str) -> str:
        return text

    def variables(
        self, pod: Manifest, found: Mapping[str, Variable], mounts: Sequence[Mount]
    ) -> dict[str, str]:
        return {name: variable.value for name, variable in found.items()}

    def place(self, pod: Manifest, launch: Launch) -> Launch:
        unwritable = {
            volume["name"] for volume in pod["spec"].get("volumes") or () if payload.is_filled(volume)
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

    async def socket(self) -> socket.socket:
        """Of the network that the bridge is in: what a node has besides its pods."""
        try:
            (descriptor,) = await self._keeper.call("socket")
        except CannotStart as error:
            raise OSError(str(error)) from error
        own = socket.socket(fileno=descriptor)
        own.setblocking(False)
        return own

    async def prepare(self, pod: Manifest, places: Mapping[str, Path]) -> None:
        own = self.folder / pod["metadata"]["uid"] / ".pod"
        staging = own / "root"
        staging.mkdir(parents=True, exist_ok=True)
        address, name = self.pod_address(pod), host_name(pod)
        self._hosts.add(pod, address, own / "hosts")
        (own / "hostname").write_text(f"{name}\n")
        await self._keeper.call(
            "pod",
            pod=pod["metadata"]["uid"],
            host_name=name,
            address=address,
            staging=str(staging),
            mounts=[[str(own / file), f"/etc/{file}"] for file in ("hosts", "hostname")],
            memory=[[SHARED_MEMORY, ANYONE], *_in_memory(pod, places)],
        )

    async def start(self, pod: Manifest, container: str, launch: Launch, streams: Streams) -> Process:
        self._hosts.refresh(pod)
        mounts: list[list[Any]] = [
            [str(mount.place), mount.path, mount.read_only, str(mount.within or mount.place)]
            for mount in launch.mounts
        ]
        uid = pod["metadata"]["uid"]
        image: list[str] = []
        if launch.image is not None:
            own = self.folder / uid / ".pod"
            mounts += [[f"{own}/{file}", f"/etc/{file}"] for file in ("hosts", "hostname")] + _resolver()
            image = [str(launch.image), str(own / f"image-{next(self._begun)}")]
        run = await self._keeper.run(
            "start", _all(streams), pod=uid, mounts=mounts, image=image, **_program(launch)
        )
        self._runs[uid, container] = run
        return run

    async def enter(self, pod: Manifest, container: str, launch: Launch, streams: Streams) -> Process:
        run = self._runs.get((pod["metadata"]["uid"], container))
        if run is None:
            raise CannotStart(f"container {container} is not running")
        self._hosts.refresh(pod)
        return await self._keeper.run(
            "enter", _all(streams), beside=run.number, terminal=streams.terminal, **_program(launch)
        )

    def release(self, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        self._hosts.drop(pod)
        self._keeper.tell("drop", pod=uid)
        for key in [key for key in self._runs if key[0] == uid]:
            del self._runs[key]

    def forget(self, pod: Manifest) -> None:
        self._addresses.release(pod["metadata"]["namespace"], pod["metadata"]["name"])

    async def close(self) -> None:
        self._hosts.close()
        if self._egress is not None:
            self._egress.close()
        await self._keeper.stop()


def _resolver() -> list[list[str]]:
    """What looks up names is the machine's own, in images, too."""
    return [[RESOLVER, RESOLVER]] if Path(RESOLVER).exists() else []


async def _try(keeper: Keeper, folder: Path, images: Images) -> None:
    staging = folder / ".try" / "root"
    for number, (name, root) in enumerate(images.roots()):
        staging.mkdir(parents=True, exist_ok=True)
        try:
            await keeper.call(
                "try", image=[str(root), str(folder / ".try" / str(number))], staging=str(staging)
            )
        except CannotStart as error:
            raise NoNamespaces(f"{root} cannot be the file system of image {name}: {error}") from error


def _program(launch: Launch) -> dict[str, Any]:
    return {"argv": list(launch.argv), "env": dict(launch.env), "folder": launch.folder}


def _all(streams: Streams) -> tuple[int, int, int]:
    return streams.stdin, streams.stdout, streams.stderr


def _in_memory(pod: Manifest, places: Mapping[str, Path]) -> list[list[str]]:
    """The volumes that are in memory: where, and with which options of the file system."""
    found: list[list[str]] = []
    for volume in pod["spec"].get("volumes") or ():
        given = volume.get("emptyDir") or {}
        if given.get("medium") == "Memory":
            limit = given.get("sizeLimit")
            options = ANYONE if limit is None else f"{ANYONE},size={int(quantity.parse(limit))}"
            found.append([str(places[volume["name"]]), options])
    return found
