"""Addresses of pods: a network of 65,000 for each node.

Plain processes have theirs in 127.0.0.0/8, in a network that no other node of the machine holds; pods with a network
namespace of their own meet nobody, so all nodes use the same one.
"""

import random
import socket
from typing import Self

CLAIM_PORT = 54127
"""The UDP port that a node holds on its own address as long as it lives; the kernel frees it, however it ends."""
NETWORKS = range(16, 255)
"""127.0 to 127.15 are left alone: systemd-resolved, Debian's 127.0.1.1 and other people's aliases live there."""
PRIVATE = "10.244"
"""What many clusters use for pods."""
LAST = 254 * 256


class NoAddresses(Exception):
    """This machine does not let us use 127.0.0.0/8 (macOS has 127.0.0.1 alone until aliases are added)."""


class Addresses:
    """The addresses of one node. A name keeps its address for as long as there are others to give.

    That matters to whoever looked a name up (or was given the address in its place) when it began: a pod that is
    created anew under its old name is found where its peers look for it.
    """

    def __init__(self, network: str, claim: socket.socket | None = None) -> None:
        """``network`` is the first half of all addresses, ``127.16``."""
        self._network = network
        self._claim = claim
        self._given: dict[tuple[str, str], str] = {}
        self._released: dict[tuple[str, str], None] = {}
        """Names that nobody has now, the one that was left first in front."""

    @classmethod
    def claim(cls) -> Self:
        """Take a network of 127.0.0.0/8 that no other node on this machine holds.

        Raises:
            NoAddresses: none can be had.
        """
        problem: OSError | None = None
        for network in random.sample(NETWORKS, len(NETWORKS)):
            held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                held.bind((f"127.{network}.0.1", CLAIM_PORT))
            except OSError as error:
                held.close()
                problem = error
            else:
                return cls(f"127.{network}", held)
        raise NoAddresses(
            "no address in 127.0.0.0/8 beside 127.0.0.1 can be used; on macOS add aliases first, one for each pod "
            "and one for the node, for example: sudo ifconfig lo0 alias 127.16.0.1"
        ) from problem

    @property
    def node(self) -> str:
        return f"{self._network}.0.1"

    def of(self, namespace: str, name: str) -> str:
        """The address of a pod, given at first sight.

        Raises:
            NoAddresses: all are given away.
        """
        key = namespace, name
        self._released.pop(key, None)
        if key not in self._given:
            self._given[key] = self._next()
        return self._given[key]

    def whose(self, address: str) -> tuple[str, str] | None:
        """The namespace and name that an address was given to."""
        return next((key for key, given in self._given.items() if given == address), None)

    def release(self, namespace: str, name: str) -> None:
        """The name's pod is gone; its address is given to another name when no fresh ones are left."""
        self._released[namespace, name] = None

    def _next(self) -> str:
        index = len(self._given) + 256
        if index < LAST:
            return f"{self._network}.{index // 254}.{index % 254 + 1}"
        if not self._released:
            raise NoAddresses("all addresses of this node are given away")
        oldest = next(iter(self._released))
        del self._released[oldest]
        return self._given.pop(oldest)

    def close(self) -> None:
        if self._claim is not None:
            self._claim.close()
