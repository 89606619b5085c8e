"""Addresses of pods: a /16 subnet for each node.

Plain processes use a subnet of 127.0.0.0/8 that no other node of the machine holds. Pods in network namespaces are
isolated from other nodes, so all nodes use the same subnet.
"""

import random
import socket
from typing import Self

CLAIM_PORT = 54127
"""The UDP port that a node binds on its address to claim its subnet; the kernel frees it at exit."""
NETWORKS = range(16, 255)
"""127.0 to 127.15 are not used: systemd-resolved, Debian's 127.0.1.1 and custom aliases use them."""
PRIVATE = "10.244"
"""A common pod subnet in clusters."""
LAST = 254 * 256


class NoAddresses(Exception):
    """This machine does not allow 127.0.0.0/8 (macOS has 127.0.0.1 alone until aliases are added)."""


class Addresses:
    """The addresses of one node. A name keeps its address while unused addresses are left.

    Peers look a name up only once, or have its address in their manifest, so a recreated pod must keep its address.
    """

    def __init__(self, network: str, claim: socket.socket | None = None) -> None:
        """``network`` is the first half of all addresses, ``127.16``."""
        self._network = network
        self._claim_socket = claim
        self._given: dict[tuple[str, str], str] = {}
        self._released: dict[tuple[str, str], None] = {}
        """Names without a pod, the oldest first."""

    @classmethod
    def claim(cls) -> Self:
        """Claim a subnet of 127.0.0.0/8 that no other node on this machine holds.

        Raises:
            NoAddresses: no subnet is available.
        """
        last_error: OSError | None = None
        for network in random.sample(NETWORKS, len(NETWORKS)):
            claim_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                claim_socket.bind((f"127.{network}.0.1", CLAIM_PORT))
            except OSError as error:
                claim_socket.close()
                last_error = error
            else:
                return cls(f"127.{network}", claim_socket)
        raise NoAddresses(
            "127.0.0.1 is the only usable address in 127.0.0.0/8; on macOS add aliases first, one for each pod and one "
            "for the node, for example: sudo ifconfig lo0 alias 127.16.0.1"
        ) from last_error

    @property
    def node(self) -> str:
        return f"{self._network}.0.1"

    def of(self, namespace: str, name: str) -> str:
        """Return the address of a pod; allocate it at the first call.

        Raises:
            NoAddresses: all addresses are allocated.
        """
        key = namespace, name
        self._released.pop(key, None)
        if key not in self._given:
            self._given[key] = self._next()
        return self._given[key]

    def owner_of(self, address: str) -> tuple[str, str] | None:
        """Return the namespace and name that an address is allocated to."""
        return next((key for key, given in self._given.items() if given == address), None)

    def release(self, namespace: str, name: str) -> None:
        """Release the address of a deleted pod. It is reused when no unused addresses are left."""
        self._released[namespace, name] = None

    def _next(self) -> str:
        index = len(self._given) + 256
        if index < LAST:
            return f"{self._network}.{index // 254}.{index % 254 + 1}"
        if not self._released:
            raise NoAddresses("all addresses of this node are in use")
        oldest = next(iter(self._released))
        del self._released[oldest]
        return self._given.pop(oldest)

    def close(self) -> None:
        if self._claim_socket is not None:
            self._claim_socket.close()
