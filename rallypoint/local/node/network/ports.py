"""Allocates ports to pods that share the machine's network.

torch's store, TensorFlow's servers and others listen on all addresses, so a port serves one pod of the machine. The
first pod with a port gets it. In the manifests of later pods, of any job and any local cluster, a substitute replaces it.
"""

import socket

CLAIM_ADDRESS = "127.15.255.254"
"""A claim is a UDP socket on this address: every node of the machine sees it, and the kernel frees it at exit."""
SUBSTITUTES = range(20000, 32000)
"""Substitute ports, below the kernel's ephemeral ports."""


class Ports:
    """The ports of one node's pods: (job, address of the pod, port in the manifest) → port on the machine."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str, int], tuple[int, socket.socket]] = {}

    def of(self, job: str, address: str, port: int) -> int:
        """Return the port of a pod, claimed at the first call; the original port if no substitute is free."""
        key = job, address, port
        if key not in self._given:
            for candidate in (port, *SUBSTITUTES):
                claim_socket = claim(candidate)
                if claim_socket is not None:
                    self._given[key] = candidate, claim_socket
                    break
            else:
                return port
        return self._given[key][0]

    def lookup(self, job: str, address: str, port: int) -> int:
        """Return the port of a pod without claiming one."""
        return self._given[job, address, port][0] if (job, address, port) in self._given else port

    def release(self, job: str) -> None:
        """Release the ports of a job without pods."""
        for key in [key for key in self._given if key[0] == job]:
            self._given.pop(key)[1].close()

    def close(self) -> None:
        for _, claim_socket in self._given.values():
            claim_socket.close()
        self._given.clear()


def claim(port: int) -> socket.socket | None:
    """Claim ``port``; return None if it is claimed or in use."""
    claim_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        claim_socket.bind((CLAIM_ADDRESS, port))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError:
        claim_socket.close()
        return None
    return claim_socket
