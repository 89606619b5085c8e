"""Serves the page: static files for everybody on this machine, data for those who have the token.

The token comes in the fragment of the URL, which browsers never send. The page keeps it in its own storage and sends it as a header:
unlike a cookie it is no use to other ports of this machine, and no other site can make a browser send it.
"""

import asyncio
import re
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import structlog
from aiohttp import web

from api.labels import JOB_NAME
from api.meta import PODS
from controller.bounded_server import BoundedServer
from controller.kube.errors import ApiError, Forbidden, NotFound, unreachable
from rallypoint.cli.cluster import Cluster, Object
from rallypoint.cli.ui.history import History, record
from rallypoint.cli.ui.job_list import JobList, Key
from rallypoint.cli.ui.job_page import follow_job, read_job
from rallypoint.cli.ui.log_stream import (
    Line,
    archived_lines,
    archived_lines_of_job,
    earlier_lines,
    follow_logs,
)
from rallypoint.cli.ui.usage_stream import follow_usage
from rallypoint.local.usage import UsageSampler

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MAX_CONNECTIONS = 64
IDLE_SECONDS = 90.0
PING_SECONDS = 15.0
"""A stream without news sends a ping after this time, so that both ends notice a lost connection."""
MAX_MERGED_PODS = 64
"""Logs of larger jobs are shown per replica."""
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Event = tuple[str, Any]
"""The name of a server-sent event and its data."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = structlog.get_logger()


@asynccontextmanager
async def page(
    cluster: Cluster,
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    history: History | None = None,
    records: bool = False,
    usage: UsageSampler | None = None,
) -> AsyncGenerator[str]:
    """Serve the page until the end of the block, and yield its URL with the token.

    ``records`` adds the jobs that end to ``history``. ``usage`` is that of a local cluster. An unexpected error makes the page unavailable
    and does not end the block.

    Raises:
        OSError: the address is unknown or in use.
    """
    jobs = JobList(cluster)
    token = secrets.token_urlsafe(32)
    server = PageServer(cluster, jobs, token, history, usage)
    listener = BoundedServer(
        server.app(),
        max_connections=MAX_CONNECTIONS,
        idle_seconds=IDLE_SECONDS,
        handler_cancellation=True,
        shutdown_timeout=0.1,
    )
    await listener.start()
    try:
        host, chosen = await listener.listen(address, port)
        server.is_loopback_only = is_loopback(host)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(server.follow_jobs())]
            if history is not None and records:
                running.append(tasks.create_task(_record(history, cluster, jobs)))
            try:
                yield f"http://{_url_host(host)}:{chosen}/#token={token}"
            finally:
                for task in running:
                    task.cancel()
    finally:
        await listener.stop()


async def _record(history: History, cluster: Cluster, jobs: JobList) -> None:
    try:
        await record(history, jobs, partial(read_job, cluster, jobs, for_history=True))
    except Exception:
        log.exception("the history of jobs has stopped")


def _url_host(address: str) -> str:
    """Return the host for a URL: of all addresses of this machine, its name."""
    found = ip_address(address)
    if found.is_unspecified:
        return socket.gethostname()
    return f"[{address}]" if found.version == 6 else address


def is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


class PageServer:
    """The handlers of the page."""

    def __init__(
        self,
        cluster: Cluster,
        jobs: JobList,
        token: str,
        history: History | None = None,
        usage: UsageSampler | None = None,
    ) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._token = token
        self._history = history
        self._usage = usage
        self.is_loopback_only = True
        """Whether to refuse requests that name another host."""
        self._failed = asyncio.Event()
        self._failure = ""
        self._files = {file.name: file.read_bytes() for file in STATIC.iterdir() if file.suffix in TYPES}

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        job = "/api/jobs/{kind}/{namespace}/{name}"
        app.router.add_get("/", self._send_file)
        app.router.add_get("/{name}", self._send_file)
        app.router.add_get("/api/cluster", self._send_cluster)
        app.router.add_get("/api/jobs", self._stream_jobs)
        app.router.add_get(job, self._stream_job)
        app.router.add_get(f"{job}/logs", self._stream_logs)
        app.router.add_get("/api/history", self._send_history)
        app.router.add_get("/api/history/{uid}", self._send_record)
        return app

    async def follow_jobs(self) -> None:
        """Keep the list up to date until canceled. After an unexpected error all streams report it."""
        try:
            await self._jobs.run()
        except Exception as error:
            log.exception("the page is unavailable")
            self._failure = f"the page no longer follows the cluster, start it again: {_text_of(error)}"
            self._failed.set()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests of other sites, and data without the token; add the headers."""
        try:
            self._check(request)
            response = await handler(request)
        except web.HTTPException as error:
            response = web.json_response({"message": error.text or error.reason}, status=error.status)
        except NotFound:
            response = web.json_response({"message": "it does not exist"}, status=404)
        except Forbidden as error:
            response = web.json_response({"message": error.message}, status=403)
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            response = web.json_response({"message": _text_of(error)}, status=502)
        except Exception as error:
            log.exception("request of the page failed", path=request.path)
            response = web.json_response({"message": _text_of(error)}, status=500)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _check(self, request: web.Request) -> None:
        if self.is_loopback_only and not _names_loopback(request.host):
            raise web.HTTPForbidden(text="this page is served to this machine only")
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            # A link from another site may open the page, but nothing else.
            is_page = request.path == "/" and request.headers.get("Sec-Fetch-Mode") == "navigate"
            if not is_page:
                raise web.HTTPForbidden(text="requests of other sites are refused")
        if request.headers.get("Origin", f"http://{request.host}") != f"http://{request.host}":
            raise web.HTTPForbidden(text="requests of other sites are refused")
        if request.path.startswith("/api/"):
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not secrets.compare_digest(given.encode(errors="surrogateescape"), self._token.encode()):
                raise web.HTTPUnauthorized(text="the token is missing or wrong")
        if request.path.startswith("/api/jobs") and self._failed.is_set():
            raise web.HTTPServiceUnavailable(text=self._failure)

    async def _send_file(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name") or "index.html"
        content = self._files.get(name)
        if content is None:
            raise web.HTTPNotFound(text="there is no such file")
        return web.Response(body=content, content_type=TYPES[Path(name).suffix], charset="utf-8")

    async def _send_cluster(self, request: web.Request) -> web.Response:
        return _json(
            {
                "server": self._cluster.server,
                "namespace": self._cluster.namespace,
                "kinds": sorted(self._jobs.served),
                "history": self._history is not None,
            }
        )

    async def _stream_jobs(self, request: web.Request) -> web.StreamResponse:
        return await self._stream(request, _events("jobs", self._jobs.changes(checked=True)))

    async def _stream_job(self, request: web.Request) -> web.StreamResponse:
        key = self._key(request)
        if self._jobs.row(key) is None:
            await self._jobs.filled()
            if self._jobs.row(key) is None:
                raise web.HTTPNotFound(text="the job does not exist")
        names: dict[str, str] = {}
        sources = [self._job_events(key, names)]
        if self._usage is not None:
            sources.append(_events("usage", follow_usage(self._usage, names)))
        return await self._stream(request, *sources)

    async def _job_events(self, key: Key, names: dict[str, str]) -> AsyncGenerator[Event]:
        """Yield the documents of a job, and add the names of its pods to ``names``, by UID."""
        async with aclosing(follow_job(self._cluster, self._jobs, key)) as documents:
            async for found in documents:
                names.update({pod["uid"]: pod["name"] for pod in (*found["deletedPods"], *found["pods"])})
                yield "job", found
        yield "gone", {}

    async def _stream_logs(self, request: web.Request) -> web.StreamResponse:
        key = self._key(request)
        pod, container = request.query.get("pod", ""), request.query.get("container", "")
        uid, job_uid = request.query.get("uid", ""), request.query.get("job", "")
        if job_uid:
            return await self._stream(request, self._archived_logs(archived_lines_of_job, key, job_uid))
        if uid:
            number = request.query.get("run", "")
            run = int(number) if number.isdecimal() else None
            return await self._stream(request, self._archived_logs(archived_lines, key, uid, container, run))
        job = self._jobs.manifests.get(key)
        row = self._jobs.row(key)
        if job is None or row is None:
            raise web.HTTPNotFound(text="the job does not exist")
        if not pod and row["replicas"]["desired"] > MAX_MERGED_PODS:
            raise web.HTTPBadRequest(text=f"the job has more than {MAX_MERGED_PODS} pods: choose one")
        inside = replace(self._cluster, namespace=key[1])
        lines = follow_logs(inside, self._jobs.served[key[0]], dict(job), pod, container)
        events = _events("lines", lines)
        return await self._stream(
            request, events if pod else self._with_earlier_logs(inside, dict(job), events)
        )

    async def _archived_logs(self, read: Callable[..., list[Line]], *what: Any) -> AsyncGenerator[Event]:
        if self._cluster.archive is not None:
            yield "lines", await asyncio.to_thread(read, self._cluster.archive, *what)

    async def _with_earlier_logs(
        self, inside: Cluster, job: Object, following: AsyncGenerator[Event]
    ) -> AsyncGenerator[Event]:
        """Yield the lines of earlier starts before those that follow."""
        async with aclosing(following):
            if inside.archive is not None:
                pods = await inside.list_objects(PODS, labelSelector=f"{JOB_NAME}={job['metadata']['name']}")
                existing = {pod["metadata"]["uid"] for pod in pods}
                yield "lines", await asyncio.to_thread(earlier_lines, inside.archive, job, existing)
            async for event in following:
                yield event

    async def _send_history(self, request: web.Request) -> web.Response:
        rows = await asyncio.to_thread(self._history.rows) if self._history else []
        namespace = self._cluster.namespace
        return _json([row for row in rows if namespace in ("", row["namespace"])])

    async def _send_record(self, request: web.Request) -> web.Response:
        found = (
            await asyncio.to_thread(self._history.read, request.match_info["uid"]) if self._history else None
        )
        if found is None or self._cluster.namespace not in ("", found["namespace"]):
            raise web.HTTPNotFound(text="there is no record of this job")
        return _json(found)

    def _key(self, request: web.Request) -> Key:
        found = request.match_info
        key = found["kind"], found["namespace"], found["name"]
        is_shown = key[0] in self._jobs.served and self._cluster.namespace in ("", key[1])
        if not is_shown or not _NAMESPACE.match(key[1]):
            raise web.HTTPNotFound(text="the job does not exist")
        return key

    async def _stream(self, request: web.Request, *sources: AsyncGenerator[Event]) -> web.StreamResponse:
        """Send server-sent events until the first source ends or the browser leaves. An error becomes the event ``failed``."""
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        events: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)

        async def produce(source: AsyncGenerator[Event]) -> None:
            try:
                async with aclosing(source):
                    async for event in source:
                        await events.put(_encoded(*event))
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                await events.put(_encoded("failed", {"message": _text_of(error)}))
            except Exception as error:
                log.exception("stream of the page failed", path=request.path)
                await events.put(_encoded("failed", {"message": _text_of(error)}))
            else:
                if source is sources[0]:
                    await events.put(_encoded("end", {}))
            if source is sources[0]:
                await events.put(None)

        async def report_failure() -> None:
            await self._failed.wait()
            await events.put(_encoded("failed", {"message": self._failure}))
            await events.put(None)

        with suppress(ConnectionResetError):  # The browser has left.
            async with _first_error(), asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(produce(source)) for source in sources]
                running.append(tasks.create_task(report_failure()))
                try:
                    while (event := await _next(events)) is not None:
                        await response.write(event)
                finally:
                    for task in running:
                        task.cancel()
        return response


def _names_loopback(host: str) -> bool:
    """Return whether the Host header names this machine's loopback: a name that another site owns could lead here too."""
    name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
    return is_loopback(name.strip("[]"))


def _json(content: Any) -> web.Response:
    return web.Response(body=orjson.dumps(content), content_type="application/json")


async def _events(name: str, items: AsyncGenerator[Any]) -> AsyncGenerator[Event]:
    """Yield the items as events of that name."""
    async with aclosing(items):
        async for item in items:
            yield name, item


@asynccontextmanager
async def _first_error() -> AsyncGenerator[None]:
    """Raise the only error of a group of tasks instead of the group."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


def _text_of(error: Exception) -> str:
    """Return what the browser shows of an error."""
    if isinstance(error, Forbidden):
        return error.message
    if isinstance(error, ApiError):
        return f"the cluster does not answer: {error.message}"
    if isinstance(error, aiohttp.ClientError | TimeoutError):
        return f"the cluster does not answer: {unreachable(error)}"
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return f"unexpected error: {type(error).__name__}: {error}"


async def _next(events: "asyncio.Queue[bytes | None]") -> bytes | None:
    """Return the next event; a ping if there is none for a while."""
    try:
        async with asyncio.timeout(PING_SECONDS):
            return await events.get()
    except TimeoutError:
        return _encoded("ping", {})


def _encoded(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))
