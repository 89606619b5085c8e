"""The reports of the debug server, as clients on loopback get them."""

import asyncio
import contextlib
import gc
import pickle
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from http.client import HTTPConnection
from pathlib import Path

import pytest
import structlog

from controller.server import debug
from controller.server.debug import ROOT, debugging
from controller.server.http import BadAddress, check_loopback

pytestmark = pytest.mark.looptime(False)
"""The server is a thread."""


class Server:
    """A running debug server."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def ask(
        self, path: str, method: str = "GET", *, root: str = ROOT, headers: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Return status and text of an answer, without the event loop."""
        status, body = self.ask_for_bytes(path, method, root=root, headers=headers)
        return status, body.decode(errors="replace")

    def ask_for_bytes(
        self, path: str, method: str = "GET", *, root: str = ROOT, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = HTTPConnection(self.host, self.port, timeout=10)
        try:
            connection.request(method, root + path, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    async def get(self, path: str, method: str = "GET", *, root: str = ROOT) -> tuple[int, str]:
        return await asyncio.to_thread(self.ask, path, method, root=root)


@pytest.fixture(params=["127.0.0.1", "[::1]"])
async def each_server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    async with debugging(f"{request.param}:0") as address:
        yield Server(*address)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with debugging("127.0.0.1:0") as address:
        yield Server(*address)


@pytest.fixture(autouse=True)
def _no_tracing_afterwards() -> Iterator[None]:
    yield
    tracemalloc.stop()


async def test_the_index_lists_each_report(each_server: Server) -> None:
    assert each_server.ask("") == (200, debug.INDEX)
    for line in debug.INDEX.splitlines():
        method, path = line.split()[:2]
        assert each_server.ask(path.partition("?")[0], method)[0] == 200, line


async def test_an_additional_report_is_in_the_index_and_is_made_in_the_event_loop() -> None:
    loops: list[object] = []

    def report() -> bytes:
        loops.append(asyncio.get_running_loop())
        return b"{}"

    async with debugging("127.0.0.1:0", {"shadow": ("as JSON", report)}) as address:
        server = Server(*address)
        assert await server.get("shadow") == (200, "{}")
        (line,) = (line for line in (await server.get(""))[1].splitlines() if "shadow" in line)
        assert line.split() == ["GET", "shadow", "as", "JSON"]
    assert loops == [asyncio.get_running_loop()]


async def test_without_an_additional_report_nothing_names_it(server: Server) -> None:
    status, text = await server.get("shadow")

    assert status == 404
    assert "shadow" not in text
    assert "shadow" not in (await server.get(""))[1]


async def wait_for_nothing() -> None:
    await asyncio.Event().wait()


async def test_stacks_are_those_of_threads_and_tasks(server: Server) -> None:
    tasks = [asyncio.create_task(wait_for_nothing(), name=f"waiting-{number}") for number in range(7)]
    await asyncio.sleep(0)
    status, text = await server.get("stacks")
    for task in tasks:
        task.cancel()

    assert status == 200
    blocks = text.split("\n\n")
    (thread,) = (block for block in blocks if block.startswith("thread debug server\n"))
    assert "controller.server.debug" in thread
    (waiting,) = (block for block in blocks if block.startswith("tasks: 7 (waiting-0, "))
    assert waiting.splitlines()[0].endswith("waiting-4, …)")
    assert [line.split()[1] for line in waiting.splitlines()[1:]] == ["wait_for_nothing", "Event.wait"]


async def test_stacks_show_what_blocks_the_event_loop(server: Server) -> None:
    def blocking_call() -> None:
        answers.append(server.ask("stacks"))

    answers: list[tuple[int, str]] = []
    thread = threading.Thread(target=blocking_call)
    thread.start()
    thread.join(10)  # blocks the loop until the answer is there

    ((status, text),) = answers
    assert status == 200
    assert "test_stacks_show_what_blocks_the_event_loop" in text


async def test_the_garbage_collector_is_described(server: Server) -> None:
    status, text = await server.get("gc")

    assert status == 200
    assert f"thresholds {gc.get_threshold()}" in text
    assert "generation 2: {'collections': " in text
    assert "tracked objects" not in text


class Tracked:
    pass


async def test_the_most_frequent_types_are_counted(server: Server) -> None:
    kept = [Tracked() for _ in range(100_000)]
    for tracked in kept:
        tracked.own = tracked  # type: ignore[attr-defined]  # otherwise the collector need not track it
    status, text = await server.get("gc?types=10000")
    for tracked in kept:
        del tracked.own  # type: ignore[attr-defined]

    assert status == 200
    assert f" {len(kept)} {__name__}.Tracked\n" in text
    assert len((await server.get("gc?types=3"))[1].partition("tracked objects: ")[2].splitlines()) == 4


async def test_memory_allocated_since_the_start_is_shown_by_line(server: Server) -> None:
    assert await server.get("tracemalloc/start", "POST") == (
        200,
        "tracing allocations from now on, frames of each: 1\n",
    )
    kept = bytearray(3 * 2**20)
    status, text = await server.get("tracemalloc?top=1")

    assert (status, len(kept)) == (200, 3 * 2**20)
    used, own, largest = text.splitlines()
    assert used.startswith("allocated since the start and in use: 3.")
    assert own.startswith("memory of tracemalloc itself: ")
    size, unit, _, _, line = largest.split()
    assert (size.partition(".")[0], unit, Path(__file__).name in line) == ("3072", "KiB", True)
    assert await server.get("tracemalloc/stop", "POST") == (200, "stopped\n")
    assert not tracemalloc.is_tracing()


async def test_memory_is_shown_by_traceback(server: Server) -> None:
    await server.get("tracemalloc/start?frames=5", "POST")

    def allocate() -> bytearray:
        return bytearray(3 * 2**20)

    kept = allocate()
    _, text = await server.get("tracemalloc?by=traceback&top=1")

    first, caller = text.splitlines()[2:4]
    assert kept
    assert first.rpartition(":")[0].endswith(Path(__file__).name)
    assert Path(__file__).name in caller


async def test_a_snapshot_can_be_compared_elsewhere(server: Server) -> None:
    await server.get("tracemalloc/start", "POST")
    kept = bytearray(3 * 2**20)
    status, body = await asyncio.to_thread(server.ask_for_bytes, "tracemalloc/snapshot")

    snapshot = pickle.loads(body)
    assert (status, bool(kept)) == (200, True)
    assert isinstance(snapshot, tracemalloc.Snapshot)
    assert snapshot.statistics("lineno")[0].size >= len(kept)


@pytest.mark.parametrize(
    ("method", "path", "complaint"),
    [
        ("GET", "tracemalloc", "is not running: POST tracemalloc/start first"),
        ("GET", "tracemalloc/snapshot", "is not running: POST tracemalloc/start first"),
        ("POST", "tracemalloc/stop", "is not running"),
        ("POST", "tracemalloc/start?frames=0", "frames must be a number from 1 to 100"),
        ("POST", "tracemalloc/start?frames=many", "frames must be a number from 1 to 100"),
        ("GET", "tracemalloc?by=size", "by must be one of lineno, filename, traceback"),
        ("GET", "gc?types=-1", "types must be a number from 1 to 10000"),
    ],
)
async def test_a_request_that_cannot_be_answered_says_why(
    method: str, path: str, complaint: str, server: Server
) -> None:
    status, text = await server.get(path, method)

    assert (status, complaint in text) == (400, True)


async def test_an_error_in_a_report_is_answered_and_logged(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("Set changed size during iteration")

    monkeypatch.setattr(gc, "get_stats", fail)
    with structlog.testing.capture_logs() as logs:
        answer = await server.get("gc")

    assert answer == (500, "RuntimeError: Set changed size during iteration\n")
    assert [(line["event"], line["log_level"], line["path"]) for line in logs] == [
        ("debug report failed", "error", f"{ROOT}gc")
    ]
    assert (await server.get("stacks"))[0] == 200


async def test_a_second_start_says_that_it_runs(server: Server) -> None:
    await server.get("tracemalloc/start", "POST")

    assert (await server.get("tracemalloc/start", "POST"))[0] == 400


@pytest.mark.parametrize(
    ("method", "root", "path"),
    [
        ("GET", ROOT, "heap"),
        ("GET", "/", ""),
        ("GET", "/", "stacks"),
        ("GET", ROOT, "tracemalloc/start"),
        ("POST", ROOT, "stacks"),
    ],
)
async def test_another_path_or_method_is_not_found(method: str, root: str, path: str, server: Server) -> None:
    status, text = await server.get(path, method, root=root)

    assert (status, text) == (404, f"{ROOT} has\n{debug.INDEX}")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:6060"}, 200),
        ({"Host": "[::1]:6060"}, 200),
        pytest.param({"Sec-Fetch-Site": "none"}, 200, id="an address that the user typed"),
        pytest.param({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403, id="an image"),
        pytest.param({"Sec-Fetch-Site": "same-site"}, 403, id="a page of another port"),
        ({"Host": "evil.example:6060"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
async def test_a_web_page_gets_no_report(headers: dict[str, str], status: int, server: Server) -> None:
    answer = await asyncio.to_thread(lambda: server.ask("stacks", headers=headers))

    assert answer[0] == status


async def test_a_client_that_sends_nothing_delays_the_next_one_only(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debug._Handler, "timeout", 0.1)
    with socket.create_connection((server.host, server.port)):
        assert (await server.get("gc"))[0] == 200


async def test_a_client_that_sends_slowly_delays_the_next_one_only_until_the_deadline(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debug._Handler, "timeout", 0.3)
    ended = threading.Event()

    def send_slowly(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not ended.wait(0.05):
                client.send(b"G")

    with socket.create_connection((server.host, server.port)) as client:
        sending = threading.Thread(target=send_slowly, args=(client,))
        sending.start()
        try:
            assert (await server.get("gc"))[0] == 200
        finally:
            ended.set()
            sending.join()


async def test_an_address_in_use_is_named_with_the_flag(server: Server) -> None:
    with pytest.raises(
        OSError, match=f"--pprof-bind-address 127.0.0.1:{server.port}: Address already in use"
    ):
        async with debugging(f"127.0.0.1:{server.port}"):
            pass


async def test_the_port_is_free_after_the_end() -> None:
    async with debugging("127.0.0.1:0") as (_, port):
        pass
    async with debugging(f"127.0.0.1:{port}") as address:
        assert Server(*address).ask("")[0] == 200
    assert "debug server" not in [thread.name for thread in threading.enumerate()]


async def test_a_client_that_sends_nothing_does_not_delay_the_end() -> None:
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(debugging("127.0.0.1:0"))
        with socket.create_connection(address):
            await asyncio.sleep(0.3)  # The server waits for the request.
            started = loop.time()
            await stack.aclose()
            assert loop.time() - started < debug.REQUEST_SECONDS / 2


@pytest.mark.parametrize("address", [":0", "0.0.0.0:0", "[::]:0"])
async def test_the_server_listens_on_loopback_only(address: str) -> None:
    with pytest.raises(BadAddress, match=r"--pprof-bind-address: .* is not on loopback"):
        async with debugging(address):
            pass


@pytest.mark.parametrize("text", ["", "0", "127.0.0.1:6060", "127.1.2.3:1", "[::1]:6060", "localhost:6060"])
def test_addresses_of_loopback_are_accepted(text: str) -> None:
    check_loopback("--flag", text)


@pytest.mark.parametrize(
    "text", [":6060", "0.0.0.0:6060", "[::]:6060", "10.0.0.1:6060", "example.org:6060", "6060", "127.0.0.1:x"]
)
def test_other_addresses_are_refused_with_the_name_of_the_flag(text: str) -> None:
    with pytest.raises(BadAddress, match=r"^--flag: "):
        check_loopback("--flag", text)
