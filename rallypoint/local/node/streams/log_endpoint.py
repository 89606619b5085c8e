"""``GET …/pods/NAME/log``, which the API server passes to the node."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from aiohttp import web

from api.times import parse_time
from controller.runtime import clock
from rallypoint.local.apiserver.apimachinery import errors
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.streams.logs import Logs, NoLog, Selection


async def answer(logs: Logs, request: web.Request, pod: Mapping[str, Any]) -> web.StreamResponse:
    """Stream the requested log.

    Raises:
        StatusError: the query has no valid container, or the container has no log.
    """
    query = request.query
    try:
        log = logs.of(pod, container_of(pod, query.get("container", "")), previous=flag(query, "previous"))
        selection = _selection(query, clock.now())
    except (NoLog, ValueError) as error:
        raise errors.bad_request(str(error)) from error
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    async for chunk in log.read(selection):
        await response.write(chunk)
    await response.write_eof()
    return response


def container_of(pod: Manifest, name: str) -> str:
    """Return the name of the requested or only container.

    Raises:
        ValueError: there is none; the text is the API server's.
    """
    spec = pod["spec"]
    inits = [container["name"] for container in spec.get("initContainers") or ()]
    mains = [container["name"] for container in spec["containers"]]
    pod_name = pod["metadata"]["name"]
    if name and name not in (*mains, *inits):
        raise ValueError(f"container {name} is not valid for pod {pod_name}")
    if not name and len(mains) > 1:
        raise ValueError(
            f"a container name must be specified for pod {pod_name}, choose one of: [{' '.join(mains)}]"
            + (f" or one of the init containers: [{' '.join(inits)}]" if inits else "")
        )
    return name or str(mains[0])


def _selection(query: Mapping[str, str], now: datetime) -> Selection:
    since = parse_time(query["sinceTime"]) if "sinceTime" in query else None
    if "sinceSeconds" in query:
        since = now - timedelta(seconds=int(query["sinceSeconds"]))
    return Selection(
        follow=flag(query, "follow"),
        tail_lines=int(query["tailLines"]) if "tailLines" in query else None,
        since=since,
        timestamps=flag(query, "timestamps"),
        limit_bytes=int(query["limitBytes"]) if "limitBytes" in query else None,
    )


def flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1")
