"""Rewrite objects that are stored in another version of their API, so that they are stored in the current storage version.

``status.storedVersions`` of a CRD lists the versions in which objects may be stored, and the server refuses to remove one of them from
the CRD. The server converts old objects when it reads them, so nothing waits for this migration.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import aiohttp
import msgspec
import structlog

from api.meta import Resource
from controller.kube.client import METADATA_ONLY_LIST, Client
from controller.kube.concurrency import PriorityLevel
from controller.kube.errors import ApiError, Forbidden, Invalid, NotFound, NotLeading, describe
from controller.runtime.listwatch import ObjectMeta, Source, read_metadata

DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
WIDTH = 8
"""Objects written concurrently; reconciles need the other requests."""
SETTLED_SECONDS = 60.0
"""After this time every API server uses a new CRD. One that does not would store objects in the old version."""
FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 600.0

log = structlog.get_logger()


class _Version(msgspec.Struct):
    name: str
    storage: bool = False


class _Spec(msgspec.Struct):
    versions: list[_Version]


class _Status(msgspec.Struct, rename="camel"):
    stored_versions: list[str] = msgspec.field(default_factory=list[str])


class _Definition(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


async def migrated(client: Client, resource: Resource) -> None:
    """Run ``migrate`` until it completes, and restart it after failures. Stop if the permissions for it are missing."""
    pause, bound = FIRST_PAUSE_SECONDS, log.bind(resource=resource.plural)
    while True:
        try:
            written = await migrate(client, resource)
        except Forbidden as error:
            bound.warning("storage version migration skipped, permissions are missing", error=error.message)
            return
        except NotLeading:
            pass  # this process may lead again
        except (ApiError, aiohttp.ClientError, msgspec.DecodeError, TimeoutError, OSError) as error:
            bound.warning("storage version migration interrupted", error=describe(error), pause_seconds=pause)
        else:
            bound.debug("storage version migration not needed, or complete", objects=written)
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


async def migrate(client: Client, resource: Resource, *, settled_seconds: float = SETTLED_SECONDS) -> int:
    """Store all objects in the resource's own version, then update ``status.storedVersions``. Return how many were written.

    Does nothing if that version is not the storage version, or if it is the only stored version. If the server refuses an object,
    the object and ``status.storedVersions`` stay unchanged.

    Raises:
        Forbidden: the permissions are missing.
        ApiError, aiohttp.ClientError, msgspec.DecodeError, TimeoutError, OSError: try again; Conflict: somebody modified the CRD.
    """
    name = f"{resource.plural}.{resource.group}"
    try:
        definition = _decode_definition(await client.get(DEFINITIONS, "", name))
    except NotFound:
        return 0
    stored = [version.name for version in definition.spec.versions if version.storage]
    if stored != [resource.version] or definition.status.stored_versions == stored:
        return 0
    await asyncio.sleep(settled_seconds)
    written = refused = 0
    async for page in _pages(client, resource):
        for start in range(0, len(page), WIDTH):
            results = await asyncio.gather(
                *(_rewrite(client, resource, meta) for meta in page[start : start + WIDTH])
            )
            written, refused = written + results.count(True), refused + results.count(False)
    if refused:
        log.warning(
            "storage version migration incomplete, the server rejected objects",
            resource=resource.plural,
            objects=refused,
        )
        return written
    # With the resourceVersion read at the start: if the CRD changed since, objects may have been stored in another version.
    body = {"metadata": {"resourceVersion": definition.metadata.resource_version}}
    await client.patch(
        DEFINITIONS,
        "",
        name,
        msgspec.json.encode(body | {"status": {"storedVersions": stored}}),
        subresource="status",
    )
    log.info("storage version migration complete", resource=resource.plural, objects=written)
    return written


async def _pages(client: Client, resource: Resource) -> AsyncIterator[Sequence[ObjectMeta]]:
    """Yield all objects in pages, by name. Objects created meanwhile are stored in the right version anyway."""
    source = Source(client, resource, namespace="", selectors={}, accept=lambda _: METADATA_ONLY_LIST)
    rest = ""
    while True:
        page = await source.page(rest, metadata_only=True)
        yield [read_metadata(item) for item in page.items]
        if not (rest := page.rest):
            return


async def _rewrite(client: Client, resource: Resource, meta: ObjectMeta) -> bool:
    """Rewrite an object with an empty patch. Return False if the server refuses it; a deleted object counts as rewritten."""
    try:
        await client.patch(resource, meta.namespace, meta.name, b"{}", level=PriorityLevel.EVENT)
    except NotFound:
        pass
    except Invalid as error:
        log.warning(
            "object cannot be stored in the current version",
            namespace=meta.namespace,
            name=meta.name,
            error=error.message,
        )
        return False
    return True


_decode_definition = msgspec.json.Decoder(_Definition).decode
