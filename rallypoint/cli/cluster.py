"""The cluster client of ``get``, ``describe``, ``logs``, ``why``, ``delete``, ``exec`` and ``port-forward``: it finds resources by name and reports errors.

Exit statuses and messages are kubectl's.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import aiohttp
import orjson
import yaml

from api.batch import BATCH_JOBS
from api.meta import PODS, Resource
from controller.kinds import ALL
from controller.kube.client import JSON, Client
from controller.kube.connect import SERVICE_ACCOUNT, Connection, NotConfigured, from_kubeconfig, in_cluster
from controller.kube.errors import ApiError, NotFound, unreachable
from rallypoint.cli.terminal import OutputError, discard_output, write_error
from rallypoint.diagnosis.objects import owners_of
from rallypoint.local.log_archive import EXTENSION, LogArchive, default_container, folder_of_kubeconfig

DISCOVERY = ",".join(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    for version in ("v2", "v2beta1")
)
"""Kubernetes 1.29 serves aggregated discovery only as v2beta1."""
EXIT_BROKEN_PIPE = 141
"""The status of a process that SIGPIPE ended."""
_PAGE = 500
DEFAULT_KUBECONFIG = Path("~/.kube/config")

T = TypeVar("T")
Object: TypeAlias = dict[str, Any]


class CommandError(Exception):
    """The command cannot be carried out on this cluster. The text is kubectl's."""


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A resource that the cluster serves, with all its names."""

    resource: Resource
    names: frozenset[str]
    categories: frozenset[str]

    @property
    def full_name(self) -> str:
        """``pytorchjob.kubeflow.org``, as kubectl prints it after a write."""
        group = self.resource.group
        return f"{self.resource.singular}.{group}" if group else self.resource.singular

    @property
    def has_batch_jobs(self) -> bool:
        """Whether objects of this kind own batch Jobs, which own pods, such as an MPIJob's launcher."""
        return any(BATCH_JOBS in kind.children for kind in ALL if kind.resource.kind == self.resource.kind)

    def matches(self, word: str) -> bool:
        """Return whether ``word`` is a name of it: ``pods``, ``po``, ``pytorchjobs.kubeflow.org`` or ``pytorchjobs.v1.kubeflow.org``."""
        name, _, rest = word.lower().partition(".")
        group, version = self.resource.group, self.resource.version
        return name in self.names and rest in ("", group, f"{version}.{group}".rstrip("."))


@dataclass(frozen=True, slots=True)
class Cluster:
    client: Client
    server: str
    namespace: str
    """Empty for all namespaces."""
    resources: Sequence[ServedResource]
    archive: LogArchive | None = None
    """The logs of pods that may no longer exist; None unless this is a local cluster."""

    def find(self, word: str) -> ServedResource:
        """Return the resource of that name.

        Raises:
            CommandError: the cluster serves no resource of that name.
        """
        found = next((served for served in self.resources if served.matches(word)), None)
        if found is None:
            raise CommandError(f'the server doesn\'t have a resource type "{word}"')
        return found

    def find_all(self, words: str) -> list[ServedResource]:
        """Return the resources of a list such as ``pods,svc`` or of a category such as ``all``; raise as ``find`` does."""
        found: list[ServedResource] = []
        for word in words.split(","):
            members = [served for served in self.resources if word in served.categories]
            found += members or [self.find(word)]
        return list(dict.fromkeys(found))

    def namespace_of(self, served: ServedResource) -> str:
        return self.namespace if served.resource.namespaced else ""

    async def get(self, served: ServedResource, name: str, *, accept: str = JSON) -> Object:
        """Return one object, in the form that ``accept`` names.

        Raises:
            CommandError: the command covers all namespaces.
        """
        if served.resource.namespaced and not self.namespace:
            raise CommandError("a resource cannot be retrieved by name across all namespaces")
        return await self._read(served.resource.path(self.namespace_of(served), name), accept=accept)

    async def list_objects(self, resource: Resource, **query: str) -> list[Object]:
        return await self.list_in(self.namespace if resource.namespaced else "", resource, **query)

    async def list_in(self, namespace: str, resource: Resource, **query: str) -> list[Object]:
        """Return the objects of a namespace, empty for all."""
        return _items(resource, await self._read(resource.path(namespace), query))

    async def table(self, served: ServedResource, *, accept: str, **query: str) -> Object:
        """Return all objects of a kind as the Table that ``accept`` names."""
        return await self._read(served.resource.path(self.namespace_of(served)), query, accept)

    async def pages(
        self, namespace: str, resource: Resource, *, accept: str = JSON, **query: str
    ) -> AsyncIterator[list[Object]]:
        """Yield the objects of a namespace, empty for all, in pages; ``accept`` can select their metadata."""
        position = ""
        while True:
            paged = {**query, "limit": str(_PAGE), **({"continue": position} if position else {})}
            found = await self._read(resource.path(namespace), paged, accept)
            yield _items(resource, found)
            position = (found.get("metadata") or {}).get("continue") or ""
            if not position:
                return

    async def _read(self, path: str, query: Mapping[str, str] | None = None, accept: str = JSON) -> Object:
        found: Object = orjson.loads(await self.client.request("GET", path, params=query, accept=accept))
        return found

    async def pods(self, arguments: Sequence[str], selector: str) -> list[Object]:
        """Return the pods that ``NAME``, ``pod/NAME``, ``KIND/NAME`` of a job or a selector select.

        Raises:
            CommandError: no pod matches.
        """
        if selector:
            found = await self.list_objects(PODS, labelSelector=selector)
        else:
            kind, _, name = arguments[0].rpartition("/")
            served = self.find(kind or "pods")
            found = (
                [await self.get(served, name)]
                if served.resource == PODS
                else await self.owned_pods(served, await self.get(served, name))
            )
        if not found:
            raise CommandError("no pods found")
        return found

    async def owned_pods(self, served: ServedResource, owner: Object) -> list[Object]:
        """Return the pods of the object and of its batch Jobs, such as an MPIJob's launcher."""
        owners = {owner["metadata"]["uid"]}
        if served.has_batch_jobs:
            jobs = await self.list_objects(BATCH_JOBS)
            owners |= {job["metadata"]["uid"] for job in jobs if owners & owners_of(job)}
        return [pod for pod in await self.list_objects(PODS) if owners & owners_of(pod)]


def _items(resource: Resource, answer: Object) -> list[Object]:
    """Return the objects of a list, whose own items lack their type."""
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [{**kind, **item} for item in answer["items"] or ()]


def add_flags(
    parser: argparse.ArgumentParser,
    *,
    all_namespaces: bool = False,
    namespace_help: str = "namespace of the objects; default: the namespace of the context, else default",
) -> None:
    parser.add_argument(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="kubeconfig file; default: $KUBECONFIG, then ~/.kube/config",
    )
    parser.add_argument(
        "--context",
        default="",
        metavar="NAME",
        help="context of the kubeconfig; default: the current context",
    )
    parser.add_argument(
        "--namespace",
        "-n",
        default="",
        help=namespace_help,
    )
    if all_namespaces:
        parser.add_argument("--all-namespaces", "-A", action="store_true", help="use all namespaces")


def port(text: str) -> int:
    """Parse a port number; raise argparse.ArgumentTypeError if it is none."""
    if not text.isdecimal() or not 0 <= int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text}: must be from 0 to 65535")
    return int(text)


Operation: TypeAlias = Callable[[Cluster], Awaitable[int]]


def execute(args: argparse.Namespace, operation: Operation, *, failure: int = 1, **client: Any) -> int:
    """Run ``operation`` on the cluster that the flags name. Return its exit status, or ``failure`` with the reason on stderr.

    ``client`` are further arguments of the client.
    """
    try:
        return asyncio.run(_with_cluster(args, operation, client))
    except NotConfigured as error:
        return _report(f"error: {error}", failure)
    except CommandError as error:
        return _report(f"error: {error}", failure)
    except ApiError as error:
        return _report(f"Error from server ({error.reason or error.code}): {error.message}", failure)
    except BrokenPipeError:
        discard_output(sys.stdout)
        return EXIT_BROKEN_PIPE
    except OutputError as error:
        discard_output(sys.stdout)
        return _report(f"error: {error}", failure)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return _report(f"error: the server does not answer: {unreachable(error)}", failure)


def _report(text: str, status: int) -> int:
    write_error(f"{text}\n")
    return status


async def _with_cluster(args: argparse.Namespace, operation: Operation, options: Mapping[str, Any]) -> int:
    connection = await _connect(args.kubeconfig, args.context)
    all_namespaces = getattr(args, "all_namespaces", False)
    namespace = "" if all_namespaces else args.namespace or connection.namespace or "default"
    async with Client(connection, user_agent="rallypoint-cli", **options) as client:
        archive = _archive(args.kubeconfig, args.context)
        return await operation(Cluster(client, connection.server, namespace, await discover(client), archive))


def _archive(kubeconfig: str, context: str) -> LogArchive | None:
    """Return the logs that the kubeconfig of a local cluster names; None for other clusters."""
    file = _kubeconfig(kubeconfig)
    try:
        text = Path(file).read_text() if file else ""
        # Parsing a large kubeconfig takes a moment, and only that of a local cluster contains the word.
        folder = folder_of_kubeconfig(yaml.safe_load(text), context) if EXTENSION in text else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    return None if folder is None else LogArchive(folder)


def _kubeconfig(flag: str) -> str:
    """Return the kubeconfig file to use; empty if there is none."""
    if named := flag or os.environ.get("KUBECONFIG", ""):
        return named
    try:
        default = DEFAULT_KUBECONFIG.expanduser()
    except RuntimeError:  # Neither HOME nor the password database names a home directory.
        return ""
    return str(default) if default.is_file() else ""


async def _connect(kubeconfig: str, context: str) -> Connection:
    file = _kubeconfig(kubeconfig)
    if not file:
        return in_cluster(SERVICE_ACCOUNT)
    return await from_kubeconfig(file, context)


async def discover(client: Client) -> list[ServedResource]:
    """Return all resources that can be listed, the core group first, each in the server's preferred version."""
    groups: list[Object] = []
    for path in ("/api", "/apis"):
        groups += orjson.loads(await client.request("GET", path, accept=DISCOVERY))["items"]
    found: dict[tuple[str, str], ServedResource] = {}
    for group in groups:
        for version in group["versions"]:
            for discovered in version.get("resources") or ():
                if "list" in discovered["verbs"]:
                    served = _served_resource(
                        group["metadata"].get("name", ""), version["version"], discovered
                    )
                    found.setdefault((served.resource.group, served.resource.plural), served)
    return list(found.values())


def _served_resource(group: str, version: str, discovered: Mapping[str, Any]) -> ServedResource:
    kind = discovered["responseKind"]["kind"]
    resource = Resource(
        group, version, kind, discovered["resource"], namespaced=discovered["scope"] == "Namespaced"
    )
    singular = discovered.get("singularResource") or kind.lower()
    names = {resource.plural, singular, kind.lower(), *discovered.get("shortNames", ())}
    return ServedResource(resource, frozenset(names), frozenset(discovered.get("categories", ())))


def targets(arguments: Sequence[str], *, has_selector: bool = False) -> list[tuple[str, str]]:
    """Return (kinds, name) pairs for ``KIND NAME...`` or ``KIND/NAME...``; the name is empty for all objects of a kind.

    Raises:
        CommandError: the arguments mix both forms, or name objects although a selector selects them.
    """
    if any("/" in argument for argument in arguments):
        if not all(argument.count("/") == 1 for argument in arguments):
            raise CommandError(
                "there is no need to specify a resource type as a separate argument with KIND/NAME"
            )
        if has_selector:
            raise CommandError(
                "selectors and the all flag cannot be used when passing resource/name arguments"
            )
        return [_pair(argument.split("/")) for argument in arguments]
    kinds, *names = arguments
    if names and has_selector:
        raise CommandError("name cannot be provided when a selector is specified")
    return [(kinds, name) for name in names] or [(kinds, "")]


def _pair(parts: Iterable[str]) -> tuple[str, str]:
    kind, name = parts
    return kind, name


def container_of(pod: Mapping[str, Any], requested: str) -> str:
    """Return the requested container; by default that of the annotation, else the first one.

    Raises:
        CommandError: the pod has no container of that name.
    """
    names = [container["name"] for container in pod["spec"]["containers"]]
    inits = [container["name"] for container in pod["spec"].get("initContainers") or ()]
    if requested:
        if requested not in (*names, *inits):
            raise CommandError(f"container {requested} is not valid for pod {pod['metadata']['name']}")
        return requested
    chosen = default_container(pod)
    if not chosen and len(names) + len(inits) > 1:
        others = ", ".join([*names, *(f"{name} (init)" for name in inits)])
        write_error(f'Defaulted container "{names[0]}" out of: {others}\n')
    return chosen or str(names[0])


async def found_or_missing(reading: Awaitable[T], missing: list[NotFound]) -> T | None:
    """Return what is read; None if the object does not exist, whose error is added to ``missing``."""
    try:
        return await reading
    except NotFound as error:
        missing.append(error)
        return None


def report_missing(missing: Iterable[NotFound]) -> int:
    """Write the errors to stderr; return the exit status, 1 if there is any."""
    text = "".join(f"Error from server (NotFound): {error.message}\n" for error in missing)
    return _report(text.rstrip("\n"), 1) if text else 0


def report_none_found(cluster: Cluster, kinds: Iterable[ServedResource]) -> None:
    """Write to stderr that the namespace, or the cluster, has no objects of these kinds."""
    in_namespace = cluster.namespace and any(served.resource.namespaced for served in kinds)
    suffix = f" in {cluster.namespace} namespace." if in_namespace else ""
    write_error(f"No resources found{suffix}\n")


async def is_gone(cluster: Cluster, served: ServedResource, name: str, uid: str) -> bool:
    """Return whether the object with this UID no longer exists."""
    try:
        found = await cluster.get(served, name)
    except NotFound:
        return True
    return bool(found["metadata"]["uid"] != uid)
