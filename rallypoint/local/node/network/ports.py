"""Ports that pods without a network of their own can share a machine with.

torch's store, TensorFlow's servers and others listen on all addresses, so one port serves one pod of the machine. The
first pod that is referred to by a port keeps it; each further one, of whatever job and whatever rallypoint, is given
another port wherever the manifests spell its own.
"""

import socket
from typing import Protocol

CLAIMED_ON = "127.15.255.254"
"""Claims are UDP sockets on this address: seen by every node of the machine, and freed by the kernel."""
SPARE = range(20000, 32000)
"""Ports given instead; below those that the kernel hands out by itself."""


class Closable(Protocol):
    def close(self) -> None: ...


class Ports:
    """The ports of one node's pods: (job, address of the pod, port in the manifest) → port on the machine."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str, int], tuple[int, Closable]] = {}

    def of(self, job: str, address: str, port: int) -> int:
        """The port on which that pod is found, claimed at first sight; its own where all others are taken."""
        key = job, address, port
        if key not in self._given:
            for candidate in (port, *SPARE):
                held = claim(candidate)
                if held is not None:
                    self._given[key] = candidate, held
                    break
            else:
                return port
        return self._given[key][0]

    def known(self, job: str, address: str, port: int) -> int:
        """As ``of``, and nothing is claimed: a port that nobody has asked for stays what it is."""
        return self._given[job, address, port][0] if (job, address, port) in self._given else port

    def release(self, job: str) -> None:
        """No pod of the job is left."""
        for key in [key for key in self._given if key[0] == job]:
            self._given.pop(key)[1].close()

    def close(self) -> None:
        for _, held in self._given.values():
            held.close()
        self._given.clear()


def claim(port: int) -> Closable | None:
    """Keep others from being given ``port``; None when somebody has it or listens on it."""
    held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        held.bind((CLAIMED_ON, port))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError:
        held.close()
        return None
    return held
