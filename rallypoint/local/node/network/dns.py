"""The names of the pod network and their addresses. Updated by the node's informers; no I/O.

``resolve`` answers as cluster DNS does: a Service resolves to its ready pods, or to all running pods with
``publishNotReadyAddresses``; a pod with a hostname has a name below the Service of its subdomain. ``address_of`` also
resolves names of pods that do not exist yet, for replacement in manifests.

Source: Kubernetes, staging/src/k8s.io/endpointslice/utils.go (podToEndpoint) and util/controller_utils.go
(ShouldPodBeInEndpoints, ShouldSetHostname); CoreDNS, plugin/kubernetes/kubernetes.go (findServices).
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.network import name_rewrite
from rallypoint.local.node.network.addresses import Addresses

ROLES = ("master", "worker", "chief", "ps", "evaluator", "launcher")
"""The roles in pod names: ``<job>-<role>-<index>``."""
JOB_LABELS = ("training.kubeflow.org/job-name", "mpi_job_name")
"""Labels with the name of a pod's job. mpi-operator v1alpha2 uses the second one."""

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""
_IndexKey = TypeVar("_IndexKey")


class PodNetwork:
    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._pods: dict[Key, Manifest] = {}
        self._services: dict[Key, Manifest] = {}
        self._pods_by_label: dict[tuple[str, str, str], dict[Key, None]] = defaultdict(dict)
        """(namespace, label, value) → the pods with this label."""
        self._pods_by_hostname: dict[Key, dict[Key, None]] = defaultdict(dict)
        """(namespace, hostname record) → the pods with this record."""
        self._listeners: list[Callable[[], None]] = []

    @property
    def pods(self) -> Mapping[Key, Manifest]:
        return self._pods

    @property
    def services(self) -> Mapping[Key, Manifest]:
        return self._services

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each change."""
        self._listeners.append(listener)

    def put_pod(self, pod: Manifest) -> None:
        key = _key(pod)
        self._remove_from_indexes(key)
        self._pods[key] = pod
        for label, value in (pod["metadata"].get("labels") or {}).items():
            self._pods_by_label[key[0], label, value][key] = None
        if own := _hostname_record(pod):
            self._pods_by_hostname[key[0], own][key] = None
        self._notify()

    def drop_pod(self, key: Key) -> None:
        self._remove_from_indexes(key)
        self._pods.pop(key, None)
        self._notify()

    def put_service(self, service: Manifest) -> None:
        self._services[_key(service)] = service
        self._notify()

    def drop_service(self, key: Key) -> None:
        self._services.pop(key, None)
        self._notify()

    def records(self) -> dict[Key, list[str]]:
        """Return all names that resolve now, with their addresses."""
        found = {key: self._service_addresses(service) for key, service in self._services.items()}
        for key in self._pods_by_hostname:
            found.setdefault(key, []).extend(self._hostname_addresses(key))
        return found

    def resolve(self, namespace: str, word: str) -> list[str]:
        """Return the addresses of ``word`` for a pod of ``namespace``."""
        owner, name = self._split(namespace, word)
        service = self._services.get((owner, name))
        if service is not None:
            return self._service_addresses(service)
        return self._hostname_addresses((owner, name))

    def find(self, caller: Manifest, word: str) -> Manifest | None:
        """Return the pod that ``word`` means to ``caller``: a pod's name, or a name or an address in the network.

        Also finds a pod whose name does not resolve yet or any more.
        """
        namespace = caller["metadata"]["namespace"]
        if (namespace, word) in self._pods:
            return self._pods[namespace, word]
        candidates = [word, *(f"{word}.{domain}" for domain in search_domains(caller))]
        addresses = {word, *(address for name in candidates for address in self.resolve(namespace, name))}
        own = (
            key for name in candidates for key in self._pods_by_hostname.get(self._split(namespace, name), ())
        )
        addresses.update(_address(self._pods[key]) for key in own)
        addresses.discard("")
        return next((pod for pod in self._pods.values() if _address(pod) in addresses), None)

    def _service_addresses(self, service: Manifest) -> list[str]:
        return [_address(pod) for pod in self._selected(service) if _is_published(service, pod)]

    def _hostname_addresses(self, name: Key) -> list[str]:
        """Return the addresses of pods with this hostname record."""
        pods = (self._pods[key] for key in self._pods_by_hostname.get(name, ()))
        return [_address(pod) for pod in pods if self._is_resolvable(pod)]

    def _is_resolvable(self, pod: Manifest) -> bool:
        subdomain = pod["spec"].get("subdomain")
        if not subdomain:
            return bool(_address(pod))
        service = self._services.get((pod["metadata"]["namespace"], subdomain))
        return service is not None and _selects(service, pod) and _is_published(service, pod)

    def address_of(self, pod: Manifest, word: str) -> str | None:
        """Return the address that replaces ``word`` in the manifest of ``pod``; None if it is no name in the network.

        A sibling (``<job>-worker-1`` in a pod of ``<job>``) has an address before it exists, because processes that
        start together name each other.
        """
        if "-" not in word and "." not in word and (pod["metadata"]["namespace"], word) not in self._services:
            return None
        owner, name = self._split(pod["metadata"]["namespace"], word)
        if (owner, name) in self._pods:
            return self._addresses.of(owner, name)
        if self._is_sibling(pod, owner, name):
            return self._addresses.of(owner, name.partition(".")[0])
        service = self._services.get((owner, name))
        if service is not None:
            return next((self._address_for(chosen) for chosen in self._selected(service)), None)
        return next((self._addresses.of(*key) for key in self._pods_by_hostname.get((owner, name), ())), None)

    def is_sibling(self, pod: Manifest, word: str) -> bool:
        """Return whether ``word`` is the name or the address of a pod of the same job, even if it does not exist yet."""
        owner = self._addresses.owner_of(word)
        return self._is_sibling(pod, *(owner or self._split(pod["metadata"]["namespace"], word)))

    def _address_for(self, pod: Manifest) -> str:
        return self._addresses.of(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _split(self, namespace: str, word: str) -> tuple[str, str]:
        return name_rewrite.split(word, namespace, {owner for owner, _ in (*self._services, *self._pods)})

    def _is_sibling(self, pod: Manifest, namespace: str, name: str) -> bool:
        """Return whether the name is one of the job's pods, also with the job's name as subdomain, as MPI workers have."""
        meta = pod["metadata"]
        if namespace != meta["namespace"]:
            return False
        owners = [owner["name"] for owner in meta.get("ownerReferences") or () if owner.get("controller")]
        jobs = {*owners, *((meta.get("labels") or {}).get(label, "") for label in JOB_LABELS)} - {""}
        return any(
            re.fullmatch(rf"{re.escape(job)}-(?:{'|'.join(ROLES)})-\d+(?:\.{re.escape(job)})?", name)
            for job in jobs
        )

    def _selected(self, service: Manifest) -> Iterator[Manifest]:
        selector: dict[str, str] = service["spec"].get("selector") or {}
        namespace = service["metadata"]["namespace"]
        sets = [self._pods_by_label.get((namespace, *pair), {}) for pair in selector.items()]
        fewest = min(sets, key=len, default=dict[Key, None]())
        for key in sorted(fewest):
            if all(key in others for others in sets):
                yield self._pods[key]

    def _remove_from_indexes(self, key: Key) -> None:
        before = self._pods.get(key, {"metadata": {"name": ""}, "spec": {}})
        for pair in (before["metadata"].get("labels") or {}).items():
            _remove(self._pods_by_label, (key[0], *pair), key)
        _remove(self._pods_by_hostname, (key[0], _hostname_record(before)), key)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


def _remove(index: dict[_IndexKey, dict[Key, None]], index_key: _IndexKey, key: Key) -> None:
    if index_key in index:
        index[index_key].pop(key, None)
        if not index[index_key]:
            del index[index_key]


def _hostname_record(pod: Manifest) -> str:
    """Return the pod's own DNS record in its namespace, ``hostname.subdomain``; empty for most pods.

    Pods of old MPI jobs have their host name as record, because their init container writes it into /etc/hosts of the
    others. Source: mpi-operator 0.3.0, cmd/kubectl-delivery/app/server.go.
    """
    spec, meta = pod["spec"], pod["metadata"]
    if spec.get("subdomain"):
        return f"{spec['hostname']}.{spec['subdomain']}" if spec.get("hostname") else ""
    host: str = spec.get("hostname") or meta["name"]
    return host if JOB_LABELS[1] in (meta.get("labels") or {}) else ""


def search_domains(pod: Manifest) -> list[str]:
    """Return the search domains of the pod's ``dnsConfig``."""
    return [str(domain) for domain in (pod["spec"].get("dnsConfig") or {}).get("searches") or ()]


def _key(manifest: Manifest) -> Key:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _address(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def _selects(service: Manifest, pod: Manifest) -> bool:
    labels = pod["metadata"].get("labels") or {}
    selector = service["spec"].get("selector") or {}
    return bool(selector) and selector.items() <= labels.items()


def _is_published(service: Manifest, pod: Manifest) -> bool:
    """Return whether a Service's name resolves to this pod, which it selects."""
    status = pod.get("status") or {}
    if not _address(pod) or status.get("phase") in ("Succeeded", "Failed"):
        return False
    if service["spec"].get("publishNotReadyAddresses"):
        return True
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in status.get("conditions") or ()
    )
    return ready and not pod["metadata"].get("deletionTimestamp")
