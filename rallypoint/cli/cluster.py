"""What ``get``, ``describe``, ``logs``, ``why``, ``delete`` and ``exec`` share: a cluster, its resources by the names that people
use, and how a refusal is told.

Exit statuses and words are kubectl's.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import orjson

from api.batch import BATCH_JOBS
from api.meta import PODS, Resource
from controller.kinds import ALL
from controller.kube.client import Client
from controller.kube.connect import SERVICE_ACCOUNT, Connection, NotConfigured, from_kubeconfig, in_cluster
from controller.kube.errors import ApiError, NotFound
from controller.kube.static_kubeconfig import static_kubeconfig
from rallypoint.diagnosis.objects import owners_of

DISCOVERY = ",".join(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    for version in ("v2", "v2beta1")
)
"""Kubernetes 1.29 has the same lists as v2beta1 only."""
UNREAD = 141
"""What SIGPIPE makes of other programs."""
DEFAULT_KUBECONFIG = Path("~/.kube/config")

Object: TypeAlias = dict[str, Any]


class Unusable(Exception):
    """The arguments make no sense on this cluster. The text says why, as kubectl does."""


@dataclass(frozen=True, slots=True)
class Named:
    """A resource with all that it may be called."""

    resource: Resource
    names: frozenset[str]
    categories: frozenset[str]

    @property
    def full_name(self) -> str:
        """``pytorchjob.kubeflow.org``, as in what is told of a write."""
        group = self.resource.group
        return f"{self.resource.singular}.{group}" if group else self.resource.singular

    def matches(self, word: str) -> bool:
        """Whether ``pods``, ``po``, ``pytorchjobs.kubeflow.org`` or ``pytorchjobs.v1.kubeflow.org`` means it."""
        name, _, rest = word.lower().partition(".")
        group, version = self.resource.group, self.resource.version
        return name in self.names and rest in ("", group, f"{version}.{group}".rstrip("."))


@dataclass(frozen=True, slots=True)
class Cluster:
    client: Client
    server: str
    namespace: str
    """Empty for all."""
    resources: Sequence[Named]

    def find(self, word: str) -> Named:
        """
        Raises:
            Unusable: the cluster serves nothing of that name.
        """
        found = next((named for named in self.resources if named.matches(word)), None)
        if found is None:
            raise Unusable(f'the server doesn\'t have a resource type "{word}"')
        return found

    def find_all(self, words: str) -> list[Named]:
        """Of a list such as ``pods,svc``, or of a category such as ``all``; raises as ``find`` does."""
        found: list[Named] = []
        for word in words.split(","):
            members = [named for named in self.resources if word in named.categories]
            found += members or [self.find(word)]
        return list(dict.fromkeys(found))

    def place(self, named: Named) -> str:
        return self.namespace if named.resource.namespaced else ""

    async def get(self, named: Named, name: str) -> Object:
        """
        Raises:
            Unusable: nobody can say in which namespace.
        """
        if named.resource.namespaced and not self.namespace:
            raise Unusable("a resource cannot be retrieved by name across all namespaces")
        return await self._read(named.resource.path(self.place(named), name))

    async def all_of(self, resource: Resource, **query: str) -> list[Object]:
        found = await self._read(resource.path(self.namespace if resource.namespaced else ""), query)
        items: list[Object] = found["items"] or []
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [{**kind, **item} for item in items]

    async def _read(self, path: str, query: Mapping[str, str] | None = None) -> Object:
        found: Object = orjson.loads(await self.client.request("GET", path, params=query))
        return found

    async def pods(self, words: Sequence[str], selector: str) -> list[Object]:
        """The pods that ``NAME``, ``pod/NAME`` or ``KIND/NAME`` of a job mean, or a selector.

        Raises:
            Unusable: there is none.
        """
        if selector:
            found = await self.all_of(PODS, labelSelector=selector)
        else:
            kind, _, name = words[0].rpartition("/")
            named = self.find(kind or "pods")
            found = [await self.get(named, name)] if named.resource == PODS else await self._of(named, name)
        if not found:
            raise Unusable("no pods found")
        return found

    async def _of(self, named: Named, name: str) -> list[Object]:
        """Its own, and those of batch Jobs that are its own, as an MPIJob's launcher is."""
        owners = {(await self.get(named, name))["metadata"]["uid"]}
        if any(BATCH_JOBS in kind.children for kind in ALL if kind.resource.kind == named.resource.kind):
            jobs = await self.all_of(BATCH_JOBS)
            owners |= {job["metadata"]["uid"] for job in jobs if owners & owners_of(job)}
        return [pod for pod in await self.all_of(PODS) if owners & owners_of(pod)]


def add_flags(parser: argparse.ArgumentParser, *, all_namespaces: bool = False) -> None:
    parser.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="default: $KUBECONFIG, then ~/.kube/config"
    )
    parser.add_argument("--context", default="", metavar="NAME", help="a context of the kubeconfig")
    parser.add_argument("--namespace", "-n", default="", help="default: that of the context, else default")
    if all_namespaces:
        parser.add_argument("--all-namespaces", "-A", action="store_true", help="everywhere")


Work: TypeAlias = Callable[[Cluster], Awaitable[int]]


def execute(args: argparse.Namespace, work: Work) -> int:
    """Do ``work`` with the cluster that the flags name; its exit status, or 1 with the reason on stderr."""
    try:
        return asyncio.run(_with_cluster(args, work))
    except NotConfigured as error:
        return _failed(f"error: {error}")
    except Unusable as error:
        return _failed(f"error: {error}")
    except ApiError as error:
        return _failed(f"Error from server ({error.reason or error.code}): {error.message}")
    except BrokenPipeError:
        # Nobody reads any more; what is still to be flushed goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return _failed(f"error: the server does not answer: {str(error) or type(error).__name__}")


def _failed(text: str) -> int:
    sys.stderr.write(f"{text}\n")
    return 1


async def _with_cluster(args: argparse.Namespace, work: Work) -> int:
    connection = await _connect(args.kubeconfig, args.context)
    everywhere = getattr(args, "all_namespaces", False)
    namespace = "" if everywhere else args.namespace or connection.namespace or "default"
    async with Client(connection, user_agent="rallypoint-cli") as client:
        return await work(Cluster(client, connection.server, namespace, await _discover(client)))


def _kubeconfig(wanted: str) -> str:
    """The file that counts; empty when there is none."""
    usual = DEFAULT_KUBECONFIG.expanduser()
    return wanted or os.environ.get("KUBECONFIG", "") or (str(usual) if usual.is_file() else "")


async def _connect(kubeconfig: str, context: str) -> Connection:
    named = _kubeconfig(kubeconfig)
    if not named:
        return in_cluster(SERVICE_ACCOUNT)
    return static_kubeconfig(named, context) or await from_kubeconfig(named, context)


async def _discover(client: Client) -> list[Named]:
    """All that can be listed, the core group first; of each resource the version that the server prefers."""
    groups: list[Object] = []
    for path in ("/api", "/apis"):
        groups += orjson.loads(await client.request("GET", path, accept=DISCOVERY))["items"]
    found: dict[tuple[str, str], Named] = {}
    for group in groups:
        for version in group["versions"]:
            for one in version.get("resources") or ():
                if "list" in one["verbs"]:
                    made = _named(group["metadata"].get("name", ""), version["version"], one)
                    found.setdefault((made.resource.group, made.resource.plural), made)
    return list(found.values())


def _named(group: str, version: str, told: Mapping[str, Any]) -> Named:
    kind = told["responseKind"]["kind"]
    resource = Resource(group, version, kind, told["resource"], namespaced=told["scope"] == "Namespaced")
    singular = told.get("singularResource") or kind.lower()
    names = {resource.plural, singular, kind.lower(), *told.get("shortNames", ())}
    return Named(resource, frozenset(names), frozenset(told.get("categories", ())))


def targets(words: Sequence[str]) -> list[tuple[str, str]]:
    """(kinds, name) of each thing that ``KIND NAME...`` or ``KIND/NAME...`` means; no name for all of a kind.

    Raises:
        Unusable: both forms at once.
    """
    if any("/" in word for word in words):
        if not all(word.count("/") == 1 for word in words):
            raise Unusable(
                "there is no need to specify a resource type as a separate argument with KIND/NAME"
            )
        return [_pair(word.split("/")) for word in words]
    kinds, *names = words
    return [(kinds, name) for name in names] or [(kinds, "")]


def _pair(parts: Iterable[str]) -> tuple[str, str]:
    kind, name = parts
    return kind, name


def container_of(pod: Mapping[str, Any], wanted: str) -> str:
    """The container that is meant; nobody need say which when it is the first one.

    Raises:
        Unusable: the pod has no container of that name.
    """
    annotations = pod["metadata"].get("annotations") or {}
    names = [one["name"] for one in pod["spec"]["containers"]]
    inits = [one["name"] for one in pod["spec"].get("initContainers") or ()]
    if wanted:
        if wanted not in (*names, *inits):
            raise Unusable(f"container {wanted} is not valid for pod {pod['metadata']['name']}")
        return wanted
    chosen = annotations.get("kubectl.kubernetes.io/default-container")
    if chosen not in names:
        chosen = names[0]
        if len(names) + len(inits) > 1:
            others = ", ".join([*names, *(f"{name} (init)" for name in inits)])
            sys.stderr.write(f'Defaulted container "{chosen}" out of: {others}\n')
    return str(chosen)


async def is_gone(cluster: Cluster, named: Named, name: str, uid: str) -> bool:
    """Whether this very object is no more."""
    try:
        found = await cluster.get(named, name)
    except NotFound:
        return True
    return bool(found["metadata"]["uid"] != uid)
