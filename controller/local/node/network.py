"""The pod network: which names there are, what they resolve to, and when. Fed by the node's informers; no I/O.

``resolve`` answers as cluster DNS does: only pods that are ready. ``address_of`` answers ahead of that, for text in
which a name must be replaced before its pod exists.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from controller.local.manifest import Manifest
from controller.local.node import names
from controller.local.node.addresses import Addresses

ROLES = ("master", "worker", "chief", "ps", "evaluator", "launcher")
"""The roles that operators give names to: ``<job>-<role>-<index>``."""


Key: TypeAlias = tuple[str, str]
"""Namespace and name."""


class Network:
    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._pods: dict[Key, Manifest] = {}
        self._services: dict[Key, Manifest] = {}
        self._labelled: dict[tuple[str, str, str], dict[Key, None]] = defaultdict(dict)
        """(namespace, label, value) → the pods that have it."""
        self._listeners: list[Callable[[], None]] = []

    @property
    def pods(self) -> Mapping[Key, Manifest]:
        return self._pods

    def listen(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` told whenever something here has changed."""
        self._listeners.append(listener)

    def put_pod(self, pod: Manifest) -> None:
        key = _key(pod)
        self._unlabel(key)
        self._pods[key] = pod
        for label, value in (pod["metadata"].get("labels") or {}).items():
            self._labelled[key[0], label, value][key] = None
        self._tell()

    def drop_pod(self, key: Key) -> None:
        self._unlabel(key)
        self._pods.pop(key, None)
        self._tell()

    def put_service(self, service: Manifest) -> None:
        self._services[_key(service)] = service
        self._tell()

    def drop_service(self, key: Key) -> None:
        self._services.pop(key, None)
        self._tell()

    def records(self) -> dict[Key, list[str]]:
        """All names that resolve now, and to what."""
        found = {key: self._answer(service) for key, service in self._services.items()}
        for (namespace, name), pod in self._pods.items():
            spec = pod["spec"]
            if spec.get("subdomain") and _address(pod):
                host = f"{spec.get('hostname') or name}.{spec['subdomain']}"
                found.setdefault((namespace, host), []).append(_address(pod))
        return found

    def resolve(self, namespace: str, word: str) -> list[str]:
        """The addresses that ``word`` has for a pod of ``namespace``: of a headless Service all of its ready pods."""
        owner, name = self._split(namespace, word)
        service = self._services.get((owner, name))
        if service is not None:
            return self._answer(service)
        return [_address(pod) for pod in self._with_subdomain(owner, name) if _address(pod)]

    def _answer(self, service: Manifest) -> list[str]:
        early = bool(service["spec"].get("publishNotReadyAddresses"))
        return [
            _address(pod) for pod in self._selected(service) if _address(pod) and (early or _is_ready(pod))
        ]

    def address_of(self, pod: Manifest, word: str) -> str | None:
        """The address to write for ``word`` in the manifest of ``pod``; None when it names nothing in the network.

        A sibling (``<job>-worker-1`` in a pod of ``<job>``) has an address before it exists, because processes that
        begin together name each other.
        """
        if "-" not in word and "." not in word and (pod["metadata"]["namespace"], word) not in self._services:
            return None
        owner, name = self._split(pod["metadata"]["namespace"], word)
        if (owner, name) in self._pods or self._is_sibling(pod, owner, name):
            return self._addresses.of(owner, name)
        service = self._services.get((owner, name))
        if service is not None:
            return next((self._of(chosen) for chosen in self._selected(service)), None)
        return next((self._of(chosen) for chosen in self._with_subdomain(owner, name)), None)

    def is_sibling(self, pod: Manifest, word: str) -> bool:
        """Whether ``word`` names a pod of the same job, there or yet to come."""
        return self._is_sibling(pod, *self._split(pod["metadata"]["namespace"], word))

    def _of(self, pod: Manifest) -> str:
        return self._addresses.of(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _split(self, namespace: str, word: str) -> tuple[str, str]:
        return names.split(word, namespace, {owner for owner, _ in (*self._services, *self._pods)})

    def _is_sibling(self, pod: Manifest, namespace: str, name: str) -> bool:
        if namespace != pod["metadata"]["namespace"]:
            return False
        return any(
            re.fullmatch(rf"{re.escape(owner['name'])}-(?:{'|'.join(ROLES)})-\d+", name)
            for owner in pod["metadata"].get("ownerReferences") or ()
            if owner.get("controller")
        )

    def _selected(self, service: Manifest) -> Iterator[Manifest]:
        selector: dict[str, str] = service["spec"].get("selector") or {}
        namespace = service["metadata"]["namespace"]
        sets = [self._labelled.get((namespace, *pair), {}) for pair in selector.items()]
        fewest = min(sets, key=len, default=dict[Key, None]())
        for key in sorted(fewest):
            if all(key in others for others in sets):
                yield self._pods[key]

    def _unlabel(self, key: Key) -> None:
        before = self._pods.get(key)
        for pair in ((before or {"metadata": {}})["metadata"].get("labels") or {}).items():
            having = self._labelled[key[0], *pair]
            having.pop(key, None)
            if not having:
                del self._labelled[key[0], *pair]

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def _with_subdomain(self, namespace: str, name: str) -> Iterator[Manifest]:
        """The pods that go by ``hostname.subdomain``."""
        host, _, subdomain = name.partition(".")
        for (owner, pod_name), pod in self._pods.items() if subdomain else ():
            spec = pod["spec"]
            if (
                owner == namespace
                and spec.get("subdomain") == subdomain
                and (spec.get("hostname") or pod_name) == host
            ):
                yield pod


def _key(manifest: Manifest) -> Key:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _address(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def _is_ready(pod: Manifest) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
