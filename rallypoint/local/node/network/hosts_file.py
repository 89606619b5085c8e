"""The ``/etc/hosts`` of each pod, with all names of the pod network. It replaces cluster DNS.

Updates write in place, because pods mount the file.
"""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.launch import host_name
from rallypoint.local.node.network.dns import PodNetwork, search_domains
from rallypoint.local.node.network.name_rewrite import CLUSTER_DOMAIN

LOCALHOST = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
PAUSE_FACTOR = 10
"""The pause after a round of writes, as a multiple of its duration: writes take a tenth of a core at most."""
PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    namespace: str
    own: str
    search_domains: tuple[str, ...]
    """The pod's DNS search domains."""


class Hosts:
    """The files of one node's pods."""

    def __init__(self, network: PodNetwork, fixed: str = "") -> None:
        """``fixed`` is part of all files."""
        self._network = network
        self._fixed = fixed
        self._files: dict[str, _File] = {}
        self._names: dict[tuple[str, tuple[str, ...]], str] = {}
        """The lines of all records by (namespace, search domains); cleared after each change of the network."""
        self._next: asyncio.TimerHandle | None = None
        self._pause_seconds = PAUSE_SECONDS
        network.listen(self._changed)

    def add(self, pod: Manifest, address: str, path: Path) -> None:
        """Write and update the file of a pod."""
        own = LOCALHOST + self._fixed + f"{address}\t{_own_names(pod)}\n"
        file = _File(path, pod["metadata"]["namespace"], own, tuple(search_domains(pod)))
        self._files[pod["metadata"]["uid"]] = file
        self._write(file)

    def refresh(self, pod: Manifest) -> None:
        """Update the pod's file before a process starts that may read it."""
        if pod["metadata"]["uid"] in self._files:
            self._write(self._files[pod["metadata"]["uid"]])

    def drop(self, pod: Manifest) -> None:
        self._files.pop(pod["metadata"]["uid"], None)

    def close(self) -> None:
        if self._next is not None:
            self._next.cancel()

    def _changed(self) -> None:
        self._names.clear()
        if self._next is None and self._files:
            self._next = asyncio.get_running_loop().call_later(self._pause_seconds, self._write_all)

    def _write_all(self) -> None:
        self._next = None
        start = time.monotonic()
        for file in self._files.values():
            self._write(file)
        self._pause_seconds = max(PAUSE_SECONDS, PAUSE_FACTOR * (time.monotonic() - start))

    def _write(self, file: _File) -> None:
        text = file.own + self._records_text(file.namespace, file.search_domains)
        descriptor = os.open(file.path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(descriptor, text.encode(), 0)
            os.ftruncate(descriptor, len(text.encode()))
        finally:
            os.close(descriptor)

    def _records_text(self, namespace: str, domains: tuple[str, ...]) -> str:
        key = namespace, domains
        if key not in self._names:
            self._names[key] = records_text(self._network.records(), namespace, domains)
        return self._names[key]


def records_text(
    records: Mapping[tuple[str, str], list[str]], namespace: str, domains: Sequence[str] = ()
) -> str:
    """Return the lines for (namespace, name) → addresses.

    Short names are only those that the pod's namespace and search domains complete.

    Each address also has a name in its IPv4-mapped form, that of the pod in cluster DNS (``10-244-0-5.ns.pod.cluster.local``): a server
    that listens with IPv6 sees its clients under that form and looks it up, as torch's store does, which otherwise warns on every rank.
    No other name gets that form, so that programs connect as before.
    """
    lines: list[str] = []
    mapped: dict[str, str] = {}
    for (owner, name), addresses in records.items():
        full = f"{name}.{owner}.svc.{CLUSTER_DOMAIN}"
        names = [full, f"{name}.{owner}.svc", f"{name}.{owner}"]
        if owner == namespace:
            names.append(name)
        names.extend(full.removesuffix(f".{domain}") for domain in domains if full.endswith(f".{domain}"))
        lines.extend(f"{address}\t{' '.join(names)}\n" for address in addresses)
        for address in addresses:
            mapped.setdefault(address, f"{address.replace('.', '-')}.{owner}.pod.{CLUSTER_DOMAIN}")
    lines.extend(f"::ffff:{address}\t{name}\n" for address, name in mapped.items())
    return "".join(lines)


def _own_names(pod: Manifest) -> str:
    """Return the names of the pod's own address.

    Source: Kubernetes, pkg/kubelet/kubelet_pods.go, managedHostsFileContent.
    """
    name, subdomain = host_name(pod), pod["spec"].get("subdomain")
    if not subdomain:
        return name
    return f"{name}.{subdomain}.{pod['metadata']['namespace']}.svc.{CLUSTER_DOMAIN} {name}"
