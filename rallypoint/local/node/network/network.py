"""The pod network: which names there are, what they resolve to, and when. Fed by the node's informers; no I/O.

``resolve`` answers as cluster DNS does: a Service has the addresses of its pods that are ready, of all those that run
where it says ``publishNotReadyAddresses``; a pod with a hostname has its own name below the Service that its subdomain
names. ``address_of`` answers ahead of that, for text in which a name must be replaced before its pod exists.

Source: Kubernetes, staging/src/k8s.io/endpointslice/utils.go (podToEndpoint) and util/controller_utils.go
(ShouldPodBeInEndpoints, ShouldSetHostname); CoreDNS, plugin/kubernetes/kubernetes.go (findServices).
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.network import names
from rallypoint.local.node.network.addresses import Addresses

ROLES = ("master", "worker", "chief", "ps", "evaluator", "launcher")
"""The roles that operators give names to: ``<job>-<role>-<index>``."""
JOB_LABELS = ("training.kubeflow.org/job-name", "mpi_job_name")
"""How pods say which job they are of; its pods need not be the job's own children. The second one is of 2020."""

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""
_Place = TypeVar("_Place")


class Network:
    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._pods: dict[Key, Manifest] = {}
        self._services: dict[Key, Manifest] = {}
        self._labelled: dict[tuple[str, str, str], dict[Key, None]] = defaultdict(dict)
        """(namespace, label, value) → the pods that have it."""
        self._named: dict[Key, dict[Key, None]] = defaultdict(dict)
        """(namespace, name of its own) → the pods that go by it."""
        self._listeners: list[Callable[[], None]] = []

    @property
    def pods(self) -> Mapping[Key, Manifest]:
        return self._pods

    @property
    def services(self) -> Mapping[Key, Manifest]:
        return self._services

    def listen(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` told whenever something here has changed."""
        self._listeners.append(listener)

    def put_pod(self, pod: Manifest) -> None:
        key = _key(pod)
        self._unlabel(key)
        self._pods[key] = pod
        for label, value in (pod["metadata"].get("labels") or {}).items():
            self._labelled[key[0], label, value][key] = None
        if own := _own_name(pod):
            self._named[key[0], own][key] = None
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
        for key in self._named:
            found.setdefault(key, []).extend(self._of_that_name(key))
        return found

    def resolve(self, namespace: str, word: str) -> list[str]:
        """The addresses that ``word`` has for a pod of ``namespace``: of a headless Service all of its ready pods."""
        owner, name = self._split(namespace, word)
        service = self._services.get((owner, name))
        if service is not None:
            return self._answer(service)
        return self._of_that_name((owner, name))

    def find(self, caller: Manifest, word: str) -> Manifest | None:
        """The pod that ``word`` (a pod's own name, a name or an address in the network) means to ``caller``.

        Also one that its name does not resolve to any more, or not yet.
        """
        namespace = caller["metadata"]["namespace"]
        if (namespace, word) in self._pods:
            return self._pods[namespace, word]
        names_of_it = [word, *(f"{word}.{domain}" for domain in searched(caller))]
        wanted = {word, *(address for name in names_of_it for address in self.resolve(namespace, name))}
        own = (key for name in names_of_it for key in self._named.get(self._split(namespace, name), ()))
        wanted.update(_address(self._pods[key]) for key in own)
        wanted.discard("")
        return next((pod for pod in self._pods.values() if _address(pod) in wanted), None)

    def _answer(self, service: Manifest) -> list[str]:
        return [_address(pod) for pod in self._selected(service) if _is_published(service, pod)]

    def _of_that_name(self, name: Key) -> list[str]:
        """The addresses of the pods that go by a name of their own."""
        pods = (self._pods[key] for key in self._named.get(name, ()))
        return [_address(pod) for pod in pods if self._is_known(pod)]

    def _is_known(self, pod: Manifest) -> bool:
        subdomain = pod["spec"].get("subdomain")
        if not subdomain:
            return bool(_address(pod))
        service = self._services.get((pod["metadata"]["namespace"], subdomain))
        return service is not None and _selects(service, pod) and _is_published(service, pod)

    def address_of(self, pod: Manifest, word: str) -> str | None:
        """The address to write for ``word`` in the manifest of ``pod``; None when it names nothing in the network.

        A sibling (``<job>-worker-1`` in a pod of ``<job>``) has an address before it exists, because processes that
        begin together name each other.
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
            return next((self._of(chosen) for chosen in self._selected(service)), None)
        return next((self._addresses.of(*key) for key in self._named.get((owner, name), ())), None)

    def is_sibling(self, pod: Manifest, word: str) -> bool:
        """Whether ``word`` names a pod of the same job, there or yet to come, or is the address kept for one."""
        given = self._addresses.whose(word)
        return self._is_sibling(pod, *(given or self._split(pod["metadata"]["namespace"], word)))

    def _of(self, pod: Manifest) -> str:
        return self._addresses.of(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _split(self, namespace: str, word: str) -> tuple[str, str]:
        return names.split(word, namespace, {owner for owner, _ in (*self._services, *self._pods)})

    def _is_sibling(self, pod: Manifest, namespace: str, name: str) -> bool:
        """Also with the job's name for a subdomain, as workers of MPI jobs have it."""
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
        sets = [self._labelled.get((namespace, *pair), {}) for pair in selector.items()]
        fewest = min(sets, key=len, default=dict[Key, None]())
        for key in sorted(fewest):
            if all(key in others for others in sets):
                yield self._pods[key]

    def _unlabel(self, key: Key) -> None:
        before = self._pods.get(key, {"metadata": {"name": ""}, "spec": {}})
        for pair in (before["metadata"].get("labels") or {}).items():
            _leave(self._labelled, (key[0], *pair), key)
        _leave(self._named, (key[0], _own_name(before)), key)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def _leave(index: dict[_Place, dict[Key, None]], place: _Place, key: Key) -> None:
    if place in index:
        index[place].pop(key, None)
        if not index[place]:
            del index[place]


def _own_name(pod: Manifest) -> str:
    """What the pod itself goes by in its namespace, empty for most: ``hostname.subdomain``.

    Pods of MPI jobs of 2020 go by their host names, which their init container wrote into each other's /etc/hosts.
    Source: mpi-operator 0.3.0, cmd/kubectl-delivery/app/server.go.
    """
    spec, meta = pod["spec"], pod["metadata"]
    if spec.get("subdomain"):
        return f"{spec['hostname']}.{spec['subdomain']}" if spec.get("hostname") else ""
    host: str = spec.get("hostname") or meta["name"]
    return host if JOB_LABELS[1] in (meta.get("labels") or {}) else ""


def searched(pod: Manifest) -> list[str]:
    """The domains that the pod's resolver tries beside those of every pod."""
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
    """Whether a pod that a Service selects is found by its name."""
    status = pod.get("status") or {}
    if not _address(pod) or status.get("phase") in ("Succeeded", "Failed"):
        return False
    if service["spec"].get("publishNotReadyAddresses"):
        return True
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
    return ready and not pod["metadata"].get("deletionTimestamp")
