"""``/debug/pprof/`` on loopback: stacks, memory and garbage collection of the running process.

The server is a thread that answers one request at a time. So it answers while a callback blocks the event loop, and the loop continues
while a report is made, except for the time in which the interpreter copies its traces or lists its objects.

Source of the path and of the flag: Go's net/http/pprof, as controller-runtime serves it. The reports are Python's own.
"""

import asyncio
import contextlib
import gc
import pickle
import socket
import socketserver
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import structlog
from typing_extensions import override

from controller.server.http import check_loopback, is_loopback, parse_address
from controller.telemetry import stacks

log = structlog.get_logger()

ROOT = "/debug/pprof/"
REQUEST_SECONDS = 5.0
"""How long the server waits for a request, and for the client to take the answer, before it serves the next one."""
STOP_SECONDS = 0.5
"""How long the end waits for a request in progress. The thread ends with the process."""
POLL_SECONDS = 0.1
MAX_FRAMES = 100
GROUPINGS = ("lineno", "filename", "traceback")
INDEX = """GET  stacks                              all threads and tasks
GET  gc                                  counts and thresholds of the garbage collector
GET  gc?types=25                         also the most frequent types among the objects that it tracks
POST tracemalloc/start?frames=1          trace allocations from now on, with that many frames of each
GET  tracemalloc?top=25&by=lineno        memory allocated since then and still in use; by=filename, by=traceback
GET  tracemalloc/snapshot                the same as a file for tracemalloc.Snapshot.load
POST tracemalloc/stop                    stop, and free the memory that tracing takes
"""

Report = Callable[[Mapping[str, str]], str | bytes]


class BadRequest(ValueError):
    """A parameter cannot be used, or tracemalloc is not in the state that the request needs."""


@asynccontextmanager
async def debugging(
    address: str, extra: Mapping[str, tuple[str, Callable[[], bytes]]] | None = None
) -> AsyncGenerator[tuple[str, int]]:
    """Serve until the block ends; yield host and port.

    Args:
        extra: additional reports by name, each with its line in the index and a function that is called in the event loop.

    Raises:
        BadAddress: the address is not host:port, or not on loopback.
        OSError: it is in use.
    """
    check_loopback("--pprof-bind-address", address)
    host, port = parse_address(address)
    try:
        server = _Server((host or "", port), *_reports(asyncio.get_running_loop(), extra or {}))
    except OSError as error:
        raise OSError(error.errno, f"--pprof-bind-address {address}: {error.strerror}") from error
    thread = threading.Thread(
        target=server.serve_forever, args=(POLL_SECONDS,), name="debug server", daemon=True
    )
    thread.start()
    try:
        found = server.socket.getsockname()
        yield found[0], found[1]
    finally:
        stopping = threading.Thread(target=server.stop, name="end of the debug server", daemon=True)
        stopping.start()
        await asyncio.to_thread(stopping.join, STOP_SECONDS)


def _reports(
    loop: asyncio.AbstractEventLoop, extra: Mapping[str, tuple[str, Callable[[], bytes]]]
) -> tuple[dict[tuple[str, str], Report], str]:
    """Return the reports by method and path, and the index."""
    index = INDEX + "".join(f"GET  {name:<36}{about}\n" for name, (about, _) in extra.items())
    added: dict[tuple[str, str], Report] = {
        ("GET", name): partial(_in_loop, loop, report) for name, (_, report) in extra.items()
    }
    return added | {
        ("GET", ""): lambda query: index,
        ("GET", "stacks"): lambda query: stacks.text(loop),
        ("GET", "gc"): _garbage_collection,
        ("POST", "tracemalloc/start"): _start_tracing,
        ("POST", "tracemalloc/stop"): _stop_tracing,
        ("GET", "tracemalloc"): _allocations,
        ("GET", "tracemalloc/snapshot"): lambda query: pickle.dumps(_snapshot(), pickle.HIGHEST_PROTOCOL),
    }, index


def _in_loop(loop: asyncio.AbstractEventLoop, report: Callable[[], bytes], query: Mapping[str, str]) -> bytes:
    """Call a report in the event loop, whose objects it reads.

    Raises:
        TimeoutError: the event loop is blocked.
    """

    async def call() -> bytes:
        return report()

    return asyncio.run_coroutine_threadsafe(call(), loop).result(REQUEST_SECONDS)


def _garbage_collection(query: Mapping[str, str]) -> str:
    state = "enabled" if gc.isenabled() else "disabled"
    lines = [
        f"{state}, thresholds {gc.get_threshold()}, counts {gc.get_count()}",
        f"objects that it never visits again: {gc.get_freeze_count()}",
        *(f"generation {number}: {stats}" for number, stats in enumerate(gc.get_stats())),
    ]
    if "types" in query:
        objects = gc.get_objects()
        counts = Counter(f"{type(tracked).__module__}.{type(tracked).__qualname__}" for tracked in objects)
        lines.append(f"tracked objects: {len(objects)}")
        lines += [f"{count:10} {name}" for name, count in counts.most_common(_number(query, "types", 25))]
    return "\n".join(lines) + "\n"


def _start_tracing(query: Mapping[str, str]) -> str:
    frames = _number(query, "frames", 1, MAX_FRAMES)
    if tracemalloc.is_tracing():
        raise BadRequest("tracemalloc is already running: POST tracemalloc/stop first")
    tracemalloc.start(frames)
    return f"tracing allocations from now on, frames of each: {frames}\n"


def _stop_tracing(query: Mapping[str, str]) -> str:
    if not tracemalloc.is_tracing():
        raise BadRequest("tracemalloc is not running")
    tracemalloc.stop()
    return "stopped\n"


def _snapshot() -> tracemalloc.Snapshot:
    if not tracemalloc.is_tracing():
        raise BadRequest("tracemalloc is not running: POST tracemalloc/start first")
    return tracemalloc.take_snapshot()


def _allocations(query: Mapping[str, str]) -> str:
    grouping, top = query.get("by", GROUPINGS[0]), _number(query, "top", 25)
    if grouping not in GROUPINGS:
        raise BadRequest(f"by must be one of {', '.join(GROUPINGS)}")
    used, peak = tracemalloc.get_traced_memory()
    statistics = _snapshot().statistics(grouping)
    lines = [
        f"allocated since the start and in use: {used / 2**20:.1f} MiB, at most {peak / 2**20:.1f} MiB",
        f"memory of tracemalloc itself: {tracemalloc.get_tracemalloc_memory() / 2**20:.1f} MiB",
    ]
    for statistic in statistics[:top]:
        lines.append(
            f"{statistic.size / 1024:10.1f} KiB {statistic.count:8} blocks  {statistic.traceback[-1]}"
        )
        lines += [f"{'':32}{frame}" for frame in reversed(statistic.traceback[:-1])]
    return "\n".join(lines) + "\n"


def _number(query: Mapping[str, str], name: str, default: int, most: int = 10_000) -> int:
    text = query.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise BadRequest(f"{name} must be a number from 1 to {most}")
    return int(text)


class _Server(socketserver.TCPServer):
    allow_reuse_address = True

    def __init__(
        self, address: tuple[str, int], reports: Mapping[tuple[str, str], Report], index: str
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.reports = reports
        self.index = index
        super().__init__(address, _Handler)

    def stop(self) -> None:
        """Close the socket after the request in progress."""
        self.shutdown()
        self.server_close()

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log all errors except those of a client that disconnects."""
        error = sys.exception()
        if not isinstance(error, OSError):
            log.error("debug request failed", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS

    @override
    def setup(self) -> None:
        super().setup()
        self._deadline = threading.Timer(REQUEST_SECONDS, self._disconnect)
        self._deadline.daemon = True
        self._deadline.start()

    @override
    def finish(self) -> None:
        self._deadline.cancel()
        super().finish()

    def _disconnect(self) -> None:
        """End the request of a client that sends it too slowly; the timeout of the socket starts again with each byte."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_GET  # noqa: N815 - the same

    def _answer(self) -> None:
        self._deadline.cancel()
        url = urlsplit(self.path)
        assert isinstance(self.server, _Server)
        report = self.server.reports.get((self.command, url.path.removeprefix(ROOT)))
        if not self._is_local():
            self._send(403, "only for clients of this machine that are not web pages\n")
        elif report is None or not url.path.startswith(ROOT):
            self._send(404, f"{ROOT} has\n{self.server.index}")
        else:
            self._send(*self._report(report, url.query))

    def _report(self, report: Report, query: str) -> tuple[int, str | bytes]:
        """Return status and body. An error in a report is one of the answer, and of the log."""
        try:
            return 200, report(dict(parse_qsl(query, keep_blank_values=True)))
        except BadRequest as error:
            return 400, f"{error}\n"
        except Exception as error:
            log.exception("debug report failed", path=self.path)
            return 500, f"{type(error).__name__}: {error}\n"

    def _is_local(self) -> bool:
        """Return whether no web page has sent the request.

        A page's browser sends ``Origin`` with POST and with requests whose answer the page may read, and ``Sec-Fetch-Site``
        other than ``none``, which is the user's own, with all others. A page whose server's name resolves to loopback
        sends that name as ``Host``. Source: W3C, Fetch Metadata Request Headers; browsers since 2023.
        """
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        return (
            "Origin" not in self.headers
            and self.headers.get("Sec-Fetch-Site", "none") == "none"
            and host is not None
            and is_loopback(host)
        )

    def _send(self, status: int, body: str | bytes) -> None:
        content, kind = (
            (body, "application/octet-stream") if isinstance(body, bytes) else (body.encode(), "text/plain")
        )
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
