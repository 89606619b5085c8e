"""The interface of pod isolation.

``loopback`` implements it with plain processes, ``namespaces`` with Linux namespaces; ``selection`` chooses one.
"""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.environment import Variable
from rallypoint.local.node.containers.process import Launch, Process, Streams
from rallypoint.local.node.network.dns import PodNetwork
from rallypoint.local.node.volumes.setup import Mount


class Isolation(Protocol):
    """Provides the address, names, volumes and processes of each pod."""

    @property
    def name(self) -> str:
        """The name of the isolation mode, for messages."""
        ...

    @property
    def folder(self) -> Path:
        """The folder for volumes. It is removed when the isolation ends, even after a crash."""
        ...

    @property
    def network(self) -> PodNetwork: ...

    @property
    def has_network(self) -> bool:
        """Whether pods have their own network, in which the node can listen at its address."""
        ...

    @property
    def node_address(self) -> str: ...

    def pod_address(self, pod: Manifest) -> str: ...

    def rejection(self, pod: Manifest) -> str:
        """Return why this pod can never run here; empty if it can."""
        ...

    def rewrite(self, pod: Manifest, text: str) -> str:
        """Rewrite the text of a file for the pod, such as a ConfigMap's."""
        ...

    def variables(
        self, pod: Manifest, found: Mapping[str, Variable], mounts: Sequence[Mount]
    ) -> dict[str, str]:
        """Return the values of a container's variables inside the pod."""
        ...

    def adapt(self, pod: Manifest, launch: Launch) -> Launch:
        """Adapt ``launch`` to run inside the pod."""
        ...

    def paths(self, text: str, mounts: Sequence[Mount]) -> str:
        """Replace mount paths in a text of the manifest by the paths that the process sees."""
        ...

    def port(self, pod: Manifest, port: int) -> int:
        """Return the port that replaces a port of the pod."""
        ...

    async def connect(self, pod: Manifest, port: int) -> socket.socket:
        """Connect to a port of a pod at localhost, as a program in the pod does. The socket does not block.

        Raises:
            OSError: the connection failed; ConnectionRefusedError if nothing in the pod listens on the port.
        """
        ...

    async def socket(self) -> socket.socket:
        """Return a non-blocking TCP socket from which the node reaches its pods.

        Raises:
            OSError: the socket cannot be created.
        """
        ...

    async def prepare(self, pod: Manifest, volumes: Mapping[str, Path]) -> None:
        """Create what the pod's containers share. ``volumes`` has the paths of its volumes by name.

        Raises:
            CannotStart: it cannot be created.
        """
        ...

    async def start(self, pod: Manifest, container: str, launch: Launch, streams: Streams) -> Process:
        """Start a container's process.

        Raises:
            CannotStart: the process cannot start.
        """
        ...

    async def enter(self, pod: Manifest, container: str, launch: Launch, streams: Streams) -> Process:
        """Start a further process in a running container; it ends with the container.

        Raises:
            CannotStart: the process cannot start, or the container does not run.
        """
        ...

    def release(self, pod: Manifest) -> None:
        """Release the resources of a pod whose processes have all ended."""
        ...

    def discard(self, pod: Manifest) -> None:
        """Discard the state of a deleted pod."""
        ...

    async def close(self) -> None:
        """Kill the remaining processes and release the machine's resources."""
        ...


async def connected(own: socket.socket, address: tuple[str, int]) -> socket.socket:
    """Connect a socket and return it, non-blocking. Close it if that fails.

    Raises:
        OSError: the connection failed.
    """
    try:
        own.setblocking(False)
        await asyncio.get_running_loop().sock_connect(own, address)
    except BaseException:
        own.close()
        raise
    return own
