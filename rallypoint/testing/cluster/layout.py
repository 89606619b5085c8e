"""The layout of a cluster: addresses, folders, names. Pure."""

from dataclasses import dataclass
from pathlib import Path

BRIDGE = "rallypoint0"
"""The bridge of this machine with all nodes."""
HOST = "10.250.0.1"
"""This machine's address on the bridge, for API server and DNS."""
PREFIX = 24
PODS = "10.244.0.0/16"
DOMAIN = "cluster.local"
PAUSE = "registry.local/pause:1"


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The layout of the ``index``-th node, from 1. ``folder`` keeps its data, outside the node's own ``/var`` and ``/run``."""

    index: int
    folder: Path

    @property
    def name(self) -> str:
        return f"node-{self.index}"

    @property
    def address(self) -> str:
        return f"10.250.0.{10 + self.index}"

    @property
    def pods(self) -> str:
        """The address range of its pods."""
        return f"10.244.{self.index}.0/24"

    @property
    def link(self) -> str:
        """This machine's end of the veth pair; the node's end is ``eth0``."""
        return f"{BRIDGE}n{self.index}"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def config(self) -> Path:
        return self.folder / "config"
