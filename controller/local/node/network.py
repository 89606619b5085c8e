"""The pod network: which names there are, what they resolve to, and when. Fed by the node's informers; no I/O.

``resolve`` answers as cluster DNS does: only pods that are ready. ``address_of`` answers ahead of that, for text in
which a name must be replaced before its pod exists.
"""

import re
from collections.abc import Iterator

from controller.local.manifest import Manifest
from controller.local.node import names
from controller.local.node.addresses import Addresses

ROLES = ("master", "worker", "chief", "ps", "evaluator", "launcher")
"""The roles that operators give names to: ``<job>-<role>-<index>``."""


class Network:
    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self.pods: dict[tuple[str, str], Manifest] = {}
        self.services: dict[tuple[str, str], Manifest] = {}

    def resolve(self, namespace: str, word: str) -> list[str]:
        """The addresses that ``word`` has for a pod of ``namespace``: of a headless Service all of its ready pods."""
        owner, name = self._split(namespace, word)
        service = self.services.get((owner, name))
        if service is not None:
            early = bool(service["spec"].get("publishNotReadyAddresses"))
            return [
                _address(pod)
                for pod in self._selected(service)
                if _address(pod) and (early or _is_ready(pod))
            ]
        return [_address(pod) for pod in self._with_subdomain(owner, name) if _address(pod)]

    def address_of(self, pod: Manifest, word: str) -> str | None:
        """The address to write for ``word`` in the manifest of ``pod``; None when it names nothing in the network.

        A sibling (``<job>-worker-1`` in a pod of ``<job>``) has an address before it exists, because processes that
        begin together name each other.
        """
        if "-" not in word and "." not in word and (pod["metadata"]["namespace"], word) not in self.services:
            return None
        owner, name = self._split(pod["metadata"]["namespace"], word)
        if (owner, name) in self.pods or self._is_sibling(pod, owner, name):
            return self._addresses.of(owner, name)
        service = self.services.get((owner, name))
        if service is not None:
            return next((self._of(chosen) for chosen in self._selected(service)), None)
        return next((self._of(chosen) for chosen in self._with_subdomain(owner, name)), None)

    def is_sibling(self, pod: Manifest, word: str) -> bool:
        """Whether ``word`` names a pod of the same job, there or yet to come."""
        return self._is_sibling(pod, *self._split(pod["metadata"]["namespace"], word))

    def _of(self, pod: Manifest) -> str:
        return self._addresses.of(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _split(self, namespace: str, word: str) -> tuple[str, str]:
        return names.split(word, namespace, {owner for owner, _ in (*self.services, *self.pods)})

    def _is_sibling(self, pod: Manifest, namespace: str, name: str) -> bool:
        if namespace != pod["metadata"]["namespace"]:
            return False
        return any(
            re.fullmatch(rf"{re.escape(owner['name'])}-(?:{'|'.join(ROLES)})-\d+", name)
            for owner in pod["metadata"].get("ownerReferences") or ()
            if owner.get("controller")
        )

    def _selected(self, service: Manifest) -> Iterator[Manifest]:
        selector = service["spec"].get("selector") or {}
        meta = service["metadata"]
        for (namespace, _), pod in sorted(self.pods.items()) if selector else ():
            labels = pod["metadata"].get("labels") or {}
            if namespace == meta["namespace"] and selector.items() <= labels.items():
                yield pod

    def _with_subdomain(self, namespace: str, name: str) -> Iterator[Manifest]:
        """The pods that go by ``hostname.subdomain``."""
        host, _, subdomain = name.partition(".")
        for (owner, pod_name), pod in self.pods.items() if subdomain else ():
            spec = pod["spec"]
            if (
                owner == namespace
                and spec.get("subdomain") == subdomain
                and (spec.get("hostname") or pod_name) == host
            ):
                yield pod


def _address(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def _is_ready(pod: Manifest) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
