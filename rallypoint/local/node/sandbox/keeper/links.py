"""The network between pods: a bridge in the keeper's own network namespace, and a pair of interfaces for each pod.

All of it goes with the last process of these namespaces; the machine's own network never sees any.
"""

from pathlib import Path

from pyroute2 import IPRoute  # type: ignore[import-untyped]

BRIDGE = "pods"
INTERFACE = "eth0"
PREFIX_LENGTH = 16
LOOPBACK_INDEX = 1


class Links:
    """The bridge, made in the network namespace that this process is in now."""

    def __init__(self, address: str) -> None:
        _no_ipv6_from_now_on()
        self._route = IPRoute()
        self._route.link("set", index=LOOPBACK_INDEX, state="up")
        self._route.link("add", ifname=BRIDGE, kind="bridge")
        (self._bridge,) = self._route.link_lookup(ifname=BRIDGE)
        self._route.addr("add", index=self._bridge, address=address, prefixlen=PREFIX_LENGTH)
        self._route.link("set", index=self._bridge, state="up")
        self._plugged = 0

    def plug(self, namespace: int, inside: IPRoute, address: str) -> None:
        """Give the network namespace of a descriptor its interface; ``inside`` is a socket opened in there.

        The hardware address follows the address: whoever knew the pod's predecessor by it finds this one.
        """
        self._plugged += 1
        hardware = "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))
        peer = {"ifname": INTERFACE, "net_ns_fd": namespace, "address": hardware}
        self._route.link(
            "add", ifname=f"pod{self._plugged}", kind="veth", peer=peer, master=self._bridge, state="up"
        )
        (own,) = inside.link_lookup(ifname=INTERFACE)
        inside.addr("add", index=own, address=address, prefixlen=PREFIX_LENGTH)
        inside.link("set", index=own, state="up")


def inside() -> IPRoute:
    """Make the new network namespace that this process is in usable, and a socket to go on from outside."""
    _no_ipv6_from_now_on()
    _write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")  # As container runtimes do.
    route = IPRoute()
    route.link("set", index=LOOPBACK_INDEX, state="up")
    return route


def _no_ipv6_from_now_on() -> None:
    """Not at interfaces that are yet to come: nobody uses it, and its announcements reach every pod from every pod."""
    _write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")


def _write(path: str, text: str) -> None:
    file = Path(path)
    if file.exists():
        file.write_text(text)
