"""Objects that are stored in another version of their API are stored anew in the one that is stored now.

A definition remembers in ``status.storedVersions`` in which versions objects may be stored, and the server keeps it from dropping one
of those. Until they are written again, objects are read by the version they are stored in, so nothing waits for this.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import aiohttp
import msgspec
import structlog

from api.meta import Resource
from controller.kube.client import METADATA_ONLY_LIST, Client
from controller.kube.concurrency import PriorityLevel
from controller.kube.errors import ApiError, Forbidden, Invalid, NotFound, NotLeading

DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
PAGE = 500
"""Objects that are asked for at once."""
WIDTH = 8
"""Objects that are written at once: what works on jobs needs the rest of the calls."""
SETTLED_SECONDS = 60.0
"""After so long every API server has taken up a definition; one that has not would store objects as before."""
FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 600.0

log = structlog.get_logger()


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    namespace: str = ""
    name: str = ""


class _Version(msgspec.Struct):
    name: str
    storage: bool = False


class _Spec(msgspec.Struct):
    versions: list[_Version]


class _Status(msgspec.Struct, rename="camel"):
    stored_versions: list[str] = msgspec.field(default_factory=list[str])


class _Definition(msgspec.Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class _Item(msgspec.Struct):
    metadata: _Meta


class _ListMeta(msgspec.Struct, rename={"token": "continue"}):
    token: str = ""


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[_Item]


async def migrated(client: Client, resource: Resource) -> None:
    """``migrate`` until it has come to its end, however often it is interrupted; without the rights for it, not at all."""
    pause, bound = FIRST_PAUSE_SECONDS, log.bind(resource=resource.plural)
    while True:
        try:
            written = await migrate(client, resource)
        except Forbidden as error:
            bound.warning("stored versions are left as they are", error=error.message)
            return
        except NotLeading:
            pass  # it may be this replica's turn again
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            bound.warning("migration interrupted", error=str(error) or repr(error), pause_seconds=pause)
        else:
            bound.debug("stored versions are the ones that are written", objects=written)
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


async def migrate(client: Client, resource: Resource, *, settled_seconds: float = SETTLED_SECONDS) -> int:
    """Have all objects stored in the resource's own version, then say so in their definition; how many were written.

    Nothing is done where that version is not the one that is stored, or no other ever was. An object that its server refuses is
    left, and then so is the definition.

    Raises:
        Forbidden: the rights are missing.
        ApiError, aiohttp.ClientError, TimeoutError, OSError: to be tried again; Conflict: the definition has changed meanwhile.
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
            "objects refused, other stored versions are kept", resource=resource.plural, objects=refused
        )
        return written
    # By the resourceVersion from the beginning: a definition that was changed since may have had objects stored otherwise.
    body = {"metadata": {"resourceVersion": definition.metadata.resource_version}}
    await client.patch(
        DEFINITIONS,
        "",
        name,
        msgspec.json.encode(body | {"status": {"storedVersions": stored}}),
        subresource="status",
    )
    log.info("objects stored anew", resource=resource.plural, objects=written)
    return written


async def _pages(client: Client, resource: Resource) -> AsyncIterator[Sequence[_Meta]]:
    """All objects, by name; those that come meanwhile are stored in the right version anyway."""
    token = ""
    while True:
        params = {"limit": str(PAGE), "continue": token}
        answer = await client.list(resource, params=params, accept=METADATA_ONLY_LIST)
        page = _decode_list(answer)
        yield [item.metadata for item in page.items]
        token = page.metadata.token
        if not token:
            return


async def _rewrite(client: Client, resource: Resource, meta: _Meta) -> bool:
    """Whether an object is stored anew, or is gone. An empty patch is enough: the server writes what it would store otherwise."""
    try:
        await client.patch(resource, meta.namespace, meta.name, b"{}", level=PriorityLevel.EVENT)
    except NotFound:
        pass
    except Invalid as error:
        log.warning(
            "object cannot be stored anew", namespace=meta.namespace, name=meta.name, error=error.message
        )
        return False
    return True


_decode_definition = msgspec.json.Decoder(_Definition).decode
_decode_list = msgspec.json.Decoder(_List).decode
