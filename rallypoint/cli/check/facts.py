"""Reads once what several checks use. A part that may not be read makes only the checks unknown that use it."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Generic, TypeVar

import aiohttp
import orjson

from api.meta import LEASES, STATEFUL_SETS, Resource
from controller.kinds import ALL, DEFAULT
from controller.kube.client import JSON, METADATA_ONLY_LIST
from controller.kube.errors import ApiError, Forbidden, NotFound, describe
from controller.runtime import clock
from controller.runtime.migration import DEFINITIONS
from controller.runtime.serverclock import date_seconds
from rallypoint.cli.check.findings import Before, Finding, Level
from rallypoint.cli.check.installation import default_namespace
from rallypoint.cli.check.operators import (
    CLOCK_SECONDS,
    LEASE_NAMES,
    LeaseState,
    Operator,
    find_operators,
    lease_state,
    our_operator,
)
from rallypoint.cli.cluster import Cluster, Object

T = TypeVar("T")
ERRORS = (ApiError, aiohttp.ClientError, TimeoutError, OSError)
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments")
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
MAX_CONCURRENT_REQUESTS = 16
LEASE_PAUSE_SECONDS = 3.0
"""Between two reads of a Lease that looks expired. Holders renew every 2 s. Source: controller-runtime's retry period."""
_RIGHT = re.compile(r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]*)")?')


@dataclass(frozen=True, slots=True)
class Options:
    """What the flags of the command say."""

    before: Before | None = None
    go_operators: Sequence[str] = ()
    """The Go operators to go back to."""
    release: tuple[int, int] | None = None
    """The release of that operator, major and minor; None for a current one."""
    namespace: str = ""
    """The namespace of the installation; empty for that of the operator that is found."""
    gang_scheduler: str = ""
    image: str = ""
    """The image of the operator to install; empty for that of the operator that is found."""
    pull: bool = False
    field_manager: str = "kubectl"


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """A value that was read, or why it could not be read."""

    _value: T | None = None
    error: Exception | None = None

    def get(self) -> T:
        """Return the value; raise the error of the read."""
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value] # without an error there is a value


async def fact(reading: Awaitable[T]) -> Fact[T]:
    try:
        return Fact(await reading)
    except ERRORS as error:
        return Fact(error=error)


def missing_right(error: Exception) -> "re.Match[str] | None":
    """Return verb, resource, group and namespace of the right without which RBAC refuses a request; None for other errors."""
    return _RIGHT.search(error.message) if isinstance(error, Forbidden) else None


def unreadable(check: str, error: Exception, what: str = "") -> Finding:
    """Return the finding of a check that could not be made; it names the right that is missing."""
    prefix = f"{what}: " if what else ""
    if right := missing_right(error):
        verb, resource, group, namespace = right.groups()
        name = f"{resource}.{group}" if group else resource
        where = f" in namespace {namespace}" if namespace and resource != NAMESPACES.plural else ""
        return Finding(
            check,
            Level.UNKNOWN,
            f"{prefix}not checked: you have no right to {verb} {name}{where}",
            f"ask someone who may {verb} {name} to run this check",
        )
    if isinstance(error, NotFound) and not error.kind:
        return Finding(
            check, Level.UNKNOWN, f"{prefix}not checked: the cluster does not serve what this needs"
        )
    reason = error.message if isinstance(error, ApiError) else describe(error)
    return Finding(check, Level.UNKNOWN, f"{prefix}not checked: {reason}")


class ServerDates:
    """Estimates how far the server's clock is ahead of the local one, from the ``Date`` headers of its answers."""

    def __init__(self) -> None:
        self._offsets: list[float] = []

    def observe(self, date: str, took_seconds: float) -> None:
        try:
            seconds = date_seconds(date)
        except (ValueError, OverflowError):
            return
        # The header is the start of its second, and half of the round trip has passed since.
        self._offsets.append(seconds - clock.now().timestamp() + 0.5 + took_seconds / 2)

    def offset_seconds(self) -> float | None:
        """Return the median; None without any date."""
        return median(self._offsets) if self._offsets else None


@dataclass(slots=True)
class Reader:
    """Reads objects, whole or their metadata, in pages."""

    cluster: Cluster
    namespace: str = ""
    """Lists read only this namespace if the right to read all is missing."""
    forbidden: set[str] = field(default_factory=set[str])
    """The resources of which only that namespace was read."""

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        """Return an object; None if it does not exist."""
        try:
            found: Object = orjson.loads(await self.cluster.client.get(resource, namespace, name))
        except NotFound:
            return None
        return found

    async def pages(
        self, resource: Resource, namespace: str = "", *, metadata_only: bool = False, **query: str
    ) -> AsyncIterator[list[Object]]:
        """Yield the objects of a namespace, empty for all, in pages."""
        accept = METADATA_ONLY_LIST if metadata_only else JSON
        try:
            async for page in self.cluster.pages(namespace, resource, accept=accept, **query):
                yield page
            return
        except Forbidden:
            if namespace or not self.namespace or not resource.namespaced:
                raise
        async for page in self.cluster.pages(self.namespace, resource, accept=accept, **query):
            yield page
        self.forbidden.add(resource.plural)

    async def all(
        self, resource: Resource, namespace: str = "", *, metadata_only: bool = False, **query: str
    ) -> list[Object]:
        """Return the objects of a namespace, empty for all."""
        pages = self.pages(resource, namespace, metadata_only=metadata_only, **query)
        return [body async for page in pages for body in page]

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> Object:
        """Create an object that is not stored, such as a SubjectAccessReview."""
        found: Object = orjson.loads(
            await self.cluster.client.create(resource, namespace, orjson.dumps(body))
        )
        return found

    async def dry_run(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> None:
        """Let the server admit an object without storing it; raise what its create would raise."""
        path = resource.path(namespace)
        await self.cluster.client.request("POST", path, params={"dryRun": "All"}, body=orjson.dumps(body))

    async def dry_apply(
        self, resource: Resource, body: Mapping[str, Any], namespace: str, field_manager: str
    ) -> None:
        """Apply an object server-side without storing it; raise Conflict if other managers own fields with other values."""
        await self.cluster.client.request(
            "PATCH",
            resource.path(namespace, body["metadata"]["name"]),
            params={"dryRun": "All", "fieldManager": field_manager, "force": "false"},
            body=orjson.dumps(body),
            content_type="application/apply-patch+yaml",
        )

    async def versions(self, group: str) -> list[str]:
        """Return the versions of an API group that the cluster serves; none if it does not have the group."""
        try:
            found = orjson.loads(await self.cluster.client.request("GET", f"/apis/{group}"))
        except NotFound:
            return []
        return [version["version"] for version in found["versions"]]

    def serves(self, resource: Resource) -> bool:
        """Return whether the cluster serves the resource, in any version."""
        return self.served_as(resource) is not None

    def served_as(self, resource: Resource) -> Resource | None:
        """Return the resource in the version that the server prefers."""
        return next(
            (
                served.resource
                for served in self.cluster.resources
                if (served.resource.group, served.resource.plural) == (resource.group, resource.plural)
            ),
            None,
        )


@dataclass(slots=True)
class Facts:
    """What was read of the cluster."""

    reader: Reader
    options: Options
    version: Fact[Mapping[str, str]]
    definitions: Mapping[str, Fact[Object | None]]
    """By name, such as ``mpijobs.kubeflow.org``; None for one that does not exist."""
    workloads: Fact[Sequence[Object]]
    """All Deployments and StatefulSets."""
    leases: Fact[Sequence[LeaseState]]
    offset_seconds: float | None
    """How far the server's clock is ahead of the local one; None if it does not say."""
    worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "check"))
    """One thread for what takes long: objects of the ``cel`` package must not be used by several at once."""

    @property
    def before(self) -> Before | None:
        return self.options.before

    @property
    def now(self) -> datetime:
        """The API server's time."""
        return clock.now() + timedelta(seconds=self.offset_seconds or 0.0)

    @property
    def operators(self) -> Sequence[Operator]:
        """The operators of the cluster; raises if the workloads could not be read."""
        return find_operators(self.workloads.get())

    @property
    def ours(self) -> Operator | None:
        return our_operator(self.operators, self.options.namespace)

    @property
    def installed(self) -> Operator | None:
        """Our operator unless it is a shadow, which is no part of the installation."""
        ours = self.ours
        return None if ours is None or ours.is_shadow else ours

    @property
    def namespace(self) -> str:
        """The namespace of the installation: the flag's, else that of the operator found, else the default one."""
        if self.options.namespace:
            return self.options.namespace
        ours = None if self.workloads.error else self.installed
        return ours.namespace if ours else default_namespace()

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that our operator serves; without one, those of the default installation."""
        ours = None if self.workloads.error else self.ours
        return ours.kinds if ours else frozenset(kind.resource.kind for kind in DEFAULT)


async def read_facts(cluster: Cluster, options: Options, dates: ServerDates) -> Facts:
    """Read what most checks need, in parallel."""
    reader = Reader(cluster, options.namespace)
    names = [f"{kind.resource.plural}.{kind.resource.group}" for kind in ALL]
    (version, workloads, leases), definitions = await asyncio.gather(
        asyncio.gather(fact(_version(cluster)), fact(_workloads(reader)), fact(_leases(reader, LEASE_NAMES))),
        asyncio.gather(*(fact(reader.get(DEFINITIONS, name)) for name in names)),
    )
    if workloads.error is None:
        leases = await fact(_all_leases(reader, leases, find_operators(workloads.get()), dates))
    return Facts(
        reader,
        options,
        version,
        dict(zip(names, definitions, strict=True)),
        workloads,
        leases,
        dates.offset_seconds(),
    )


async def _version(cluster: Cluster) -> Mapping[str, str]:
    found: Mapping[str, str] = orjson.loads(await cluster.client.request("GET", "/version"))
    return found


async def _workloads(reader: Reader) -> Sequence[Object]:
    return [*await reader.all(DEPLOYMENTS), *await reader.all(STATEFUL_SETS)]


async def _leases(reader: Reader, names: Sequence[str]) -> Sequence[LeaseState]:
    found = await asyncio.gather(
        *(reader.all(LEASES, fieldSelector=f"metadata.name={name}") for name in names)
    )
    return [lease_state(body) for bodies in found for body in bodies]


async def _all_leases(
    reader: Reader, known: Fact[Sequence[LeaseState]], operators: Sequence[Operator], dates: ServerDates
) -> Sequence[LeaseState]:
    """Return the Leases of the usual names and of those that flags of the operators choose."""
    others = {name for operator in operators for _, name in operator.leases} - set(LEASE_NAMES)
    return await _with_changes(reader, [*known.get(), *await _leases(reader, sorted(others))], dates)


async def _with_changes(
    reader: Reader, leases: Sequence[LeaseState], dates: ServerDates
) -> Sequence[LeaseState]:
    """Read the Leases again whose times look wrong: a holder that renews its Lease is alive, whatever its clock says."""
    now = clock.now() + timedelta(seconds=dates.offset_seconds() or 0.0)
    doubtful = [
        lease
        for lease in leases
        if lease.holder and not -CLOCK_SECONDS <= lease.age_seconds(now) <= lease.duration_seconds
    ]
    if not doubtful:
        return leases
    await asyncio.sleep(LEASE_PAUSE_SECONDS)
    again = {lease.key: lease for lease in await _leases(reader, sorted({lease.name for lease in doubtful}))}
    return [
        LeaseState(*lease.key, newer.holder, newer.duration_seconds, newer.renewed, is_changing=True)
        if lease in doubtful and (newer := again.get(lease.key)) and newer.renewed != lease.renewed
        else lease
        for lease in leases
    ]
