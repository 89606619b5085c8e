"""This machine's side of the cluster's network: a bridge, and a veth pair for each node."""

import subprocess

from rallypoint.testing.cluster.layout import BRIDGE, HOST, PREFIX, NodeLayout


def lay() -> None:
    """The bridge, with this machine on it.

    Its hardware address is fixed. Otherwise it changes with the veth pairs, and nodes use the old one until their ARP entry expires.
    """
    _ip("link", "add", BRIDGE, "address", hardware(HOST), "type", "bridge")
    _ip("address", "add", f"{HOST}/{PREFIX}", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")


def take_up() -> None:
    """Delete the bridge if it exists; veth pairs go with their nodes, routes with the bridge."""
    subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)


def plug(layout: NodeLayout, pid: int) -> None:
    """Connect the node with this first process to the bridge, and add a route to its pods."""
    peer = ("peer", "name", "eth0", "address", hardware(layout.address), "netns", str(pid))
    _ip("link", "add", layout.link, "type", "veth", *peer)
    _ip("link", "set", layout.link, "master", BRIDGE, "up")
    _ip("route", "replace", layout.pods, "via", layout.address)


def hardware(address: str) -> str:
    """Return the hardware address for an IPv4 address; it stays the same after a power cut."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
