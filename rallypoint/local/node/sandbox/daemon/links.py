"""The pod network: a bridge in the network namespace of the sandbox daemon, and a veth pair for each pod.

The kernel removes it with the last process of these namespaces. The machine's own network is not changed.
"""

from pathlib import Path

from pyroute2 import IPRoute  # type: ignore[import-untyped]

BRIDGE = "pods"
INTERFACE = "eth0"
PREFIX_LENGTH = 16
LOOPBACK_INDEX = 1


class PodLinks:
    """The bridge, created in the current network namespace.

    Its hardware address is set: otherwise the kernel gives it the lowest address of its ports, and whenever a pod starts or ends, the ARP
    entries of the other pods may become stale.
    """

    def __init__(self, address: str) -> None:
        _disable_ipv6_by_default()
        self._route = IPRoute()
        self._route.link("set", index=LOOPBACK_INDEX, state="up")
        self._route.link("add", ifname=BRIDGE, kind="bridge", address=_hardware(address))
        (self._bridge,) = self._route.link_lookup(ifname=BRIDGE)
        self._route.addr("add", index=self._bridge, address=address, prefixlen=PREFIX_LENGTH)
        self._route.link("set", index=self._bridge, state="up")
        self._attached = 0

    def attach(self, namespace: int, inside: IPRoute, address: str) -> None:
        """Create the pod's interface in the network namespace of a descriptor. ``inside`` is a netlink socket in it.

        The hardware address is derived from the IP address, so ARP entries stay valid when a pod is replaced.
        """
        self._attached += 1
        peer = {"ifname": INTERFACE, "net_ns_fd": namespace, "address": _hardware(address)}
        self._route.link(
            "add", ifname=f"pod{self._attached}", kind="veth", peer=peer, master=self._bridge, state="up"
        )
        (own,) = inside.link_lookup(ifname=INTERFACE)
        inside.addr("add", index=own, address=address, prefixlen=PREFIX_LENGTH)
        inside.link("set", index=own, state="up")


def open_inside() -> IPRoute:
    """Configure the current, new network namespace; return a netlink socket that works from outside."""
    _disable_ipv6_by_default()
    _write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")  # As container runtimes do.
    route = IPRoute()
    route.link("set", index=LOOPBACK_INDEX, state="up")
    return route


def _hardware(address: str) -> str:
    """Return the hardware address for an IPv4 address."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def _disable_ipv6_by_default() -> None:
    """Disable IPv6 on future interfaces: it is unused, and every pod would multicast its announcements to all others."""
    _write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")


def _write(path: str, text: str) -> None:
    file = Path(path)
    if file.exists():
        file.write_text(text)
