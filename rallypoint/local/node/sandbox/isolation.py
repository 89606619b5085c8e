"""What separates the pods of one machine: the contract.

``loopback`` keeps it with plain processes alone, ``namespaces`` with what Linux containers are made of; ``choice`` takes
the one that works here.
"""

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
    """A way to give each pod an address, names, its volumes and processes."""

    @property
    def name(self) -> str:
        """The name that is shown to people."""
        ...

    @property
    def folder(self) -> Path:
        """Where volumes are made: its own, and removed when it ends, however that comes."""
        ...

    @property
    def network(self) -> PodNetwork: ...

    @property
    def has_network(self) -> bool:
        """Whether pods are in a network of their own, where the node can listen at its address."""
        ...

    @property
    def node_address(self) -> str: ...

    def pod_address(self, pod: Manifest) -> str: ...

    def rejection(self, pod: Manifest) -> str:
        """Why this pod can never run here; empty when it can."""
        ...

    def rewrite(self, pod: Manifest, text: str) -> str:
        """A text that the pod is given as a file, such as a ConfigMap's."""
        ...

    def variables(
        self, pod: Manifest, found: Mapping[str, Variable], mounts: Sequence[Mount]
    ) -> dict[str, str]:
        """The values of a container's variables inside the pod."""
        ...

    def adapt(self, pod: Manifest, launch: Launch) -> Launch:
        """``launch`` as it has to be started to run inside the pod."""
        ...

    def paths(self, text: str, mounts: Sequence[Mount]) -> str:
        """A text of the manifest with the mounts' paths as the process sees them."""
        ...

    def port(self, pod: Manifest, port: int) -> int:
        """The port that the pod was told in place of one of its own."""
        ...

    async def socket(self) -> socket.socket:
        """A TCP socket from which the node reaches its pods; it does not block.

        Raises:
            OSError: there is none.
        """
        ...

    async def prepare(self, pod: Manifest, volumes: Mapping[str, Path]) -> None:
        """Make what the pod's containers share; its volumes are at ``volumes``, by name.

        Raises:
            CannotStart: it cannot be made.
        """
        ...

    async def start(self, pod: Manifest, container: str, launch: Launch, streams: Streams) -> Process:
        """Start a container's process.

        Raises:
            CannotStart: it does not begin.
        """
        ...

    async def enter(self, pod: Manifest, container: str, launch: Launch, streams: Streams) -> Process:
        """Start one more process in a container that runs; it ends with the container.

        Raises:
            CannotStart: it does not begin, or the container does not run.
        """
        ...

    def release(self, pod: Manifest) -> None:
        """Nothing of the pod runs any more."""
        ...

    def discard(self, pod: Manifest) -> None:
        """The pod's object is gone."""
        ...

    async def close(self) -> None:
        """End what is left and give back what was taken from the machine."""
        ...
