"""Addresses of pods in 127.0.0.0/8, one network of 65,000 per node, so that two nodes on one machine do not meet."""

import random
import socket
from typing import Self

CLAIM_PORT = 54127
"""The UDP port that a node holds on its own address as long as it lives; the kernel frees it, however it ends."""
NETWORKS = range(16, 255)
"""127.0 to 127.15 are left alone: systemd-resolved, Debian's 127.0.1.1 and other people's aliases live there."""
LAST = 254 * 256


class NoAddresses(Exception):
    """This machine does not let us use 127.0.0.0/8 (macOS has 127.0.0.1 alone until aliases are added)."""


class Addresses:
    """The addresses of one node. A name keeps its address as long as the node lives.

    That matters where names were replaced by addresses when a process began: a pod that is created anew under its old
    name is found where its peers look for it.
    """

    def __init__(self, network: int, claim: socket.socket) -> None:
        self._network = network
        self._claim = claim
        self._given: dict[tuple[str, str], str] = {}

    @classmethod
    def claim(cls) -> Self:
        """Take a network that no other node on this machine holds.

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
                return cls(network, held)
        raise NoAddresses(
            "no address in 127.0.0.0/8 beside 127.0.0.1 can be used; on macOS add aliases first, one for each pod "
            "and one for the node, for example: sudo ifconfig lo0 alias 127.16.0.1"
        ) from problem

    @property
    def node(self) -> str:
        return f"127.{self._network}.0.1"

    def of(self, namespace: str, name: str) -> str:
        """The address of a pod, given at first sight.

        Raises:
            NoAddresses: all are given away.
        """
        key = namespace, name
        if key not in self._given:
            index = len(self._given) + 256
            if index >= LAST:
                raise NoAddresses("all addresses of this node are given away")
            self._given[key] = f"127.{self._network}.{index // 254}.{index % 254 + 1}"
        return self._given[key]

    def close(self) -> None:
        self._claim.close()
