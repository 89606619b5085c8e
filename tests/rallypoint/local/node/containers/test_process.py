"""Real processes: found, started, read, signalled, and gone with their children; descriptors closed once."""

import asyncio
import errno
import os
import pty
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
import uvloop

from rallypoint.local.node.containers import guard
from rallypoint.local.node.containers.process import (
    CapturedProcess,
    GuardClient,
    Launch,
    Pipe,
    ProcessGroup,
    Streams,
)
from rallypoint.local.node.containers.program import CannotStart, find_program

pytestmark = pytest.mark.looptime(False)

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.SelectorEventLoop, uvloop.new_event_loop]


@pytest.fixture
async def watch(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[GuardClient]:
    watch = await GuardClient.start(f"test-{os.getpid()}-{request.node.name}", tmp_path / "volumes")
    yield watch
    await watch.stop()


def shell(text: str, folder: str = "/", **env: str) -> Launch:
    return Launch(["sh", "-c", text], {"PATH": os.environ["PATH"], **env}, folder)


async def ran(launch: Launch, watch: GuardClient) -> tuple[int, str]:
    output: list[bytes] = []
    process = await captured(launch, watch, output.append)
    return await process.wait(), b"".join(output).decode()


async def captured(launch: Launch, watch: GuardClient, output: Callable[[bytes], None]) -> CapturedProcess:
    return await CapturedProcess.start(lambda streams: ProcessGroup.start(launch, watch, streams), output)


async def test_output_of_both_streams_and_exit_code(watch: GuardClient) -> None:
    assert await ran(shell("echo out; echo err >&2; exit 3"), watch) == (3, "out\nerr\n")


async def test_environment_and_folder(watch: GuardClient, tmp_path: Path) -> None:
    assert await ran(shell("echo $X; pwd", str(tmp_path), X="1"), watch) == (0, f"1\n{tmp_path}\n")


async def test_a_signal_is_an_exit_code_above_128(watch: GuardClient) -> None:
    assert await ran(shell("kill -TERM $$"), watch) == (143, "")


async def test_a_signal_reaches_the_whole_group(watch: GuardClient) -> None:
    output: asyncio.Queue[bytes] = asyncio.Queue()
    group = await captured(shell("sleep 1000 & echo $!; wait"), watch, output.put_nowait)
    child = int(await output.get())
    group.send(signal.SIGTERM)

    assert await group.wait() == 143
    assert await gone(child)


async def test_children_end_with_the_first_process(watch: GuardClient) -> None:
    """As in a container, which ends with its first process."""
    code, output = await ran(shell("sleep 1000 & echo $!"), watch)

    assert code == 0
    assert await gone(int(output))


async def test_a_cancelled_wait_leaves_nothing(watch: GuardClient) -> None:
    group = await ProcessGroup.start(shell("sleep 1000"), watch, Streams(0, 1, 2))
    waiting = asyncio.create_task(group.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert await gone(group.pid)


async def test_the_guard_terminates_processes_of_a_killed_node(tmp_path: Path) -> None:
    """Also what has left the process group, and what was never told; and it takes the volumes away."""
    volume = tmp_path / "volumes" / "v"
    volume.mkdir(parents=True)
    watch = await GuardClient.start(f"test-{os.getpid()}-killed", volume.parent)
    marked = {"PATH": os.environ["PATH"], guard.MARK: watch.node}
    in_group = await asyncio.create_subprocess_exec("sleep", "1000", env={}, start_new_session=True)
    escaped = await asyncio.create_subprocess_exec("sleep", "1000", env=marked, start_new_session=True)
    watch.add_group(in_group.pid)
    await watch.stop()

    assert await in_group.wait() == -signal.SIGKILL
    assert await escaped.wait() == -signal.SIGKILL
    assert not volume.parent.exists()


async def test_a_terminal_controls_the_process_that_asks_for_it(watch: GuardClient) -> None:
    ours, its = pty.openpty()
    group = await ProcessGroup.start(
        shell("tty < /dev/tty; exit 4"), watch, Streams(its, its, its, terminal=True)
    )
    os.close(its)

    assert await group.wait() == 4
    assert os.read(ours, 100).startswith(b"/dev/")
    os.close(ours)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param(["nosuch"], 'exec: "nosuch": executable file not found in $PATH', id="not on PATH"),
        pytest.param(
            ["/nosuch"], 'exec: "/nosuch": stat /nosuch: no such file or directory', id="no such file"
        ),
        pytest.param(["/etc/passwd"], 'exec: "/etc/passwd": permission denied', id="not executable"),
    ],
)
def test_a_failed_start_is_named(argv: list[str], words: str) -> None:
    with pytest.raises(CannotStart) as raised:
        find_program(argv[0], "/", os.environ["PATH"])

    assert str(raised.value) == words


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="no such file or directory") as raised:
        find_program("sh", str(tmp_path / "none"), os.environ["PATH"])

    assert str(tmp_path / "none") in str(raised.value)


def test_a_program_is_found_on_the_path_of_its_own_environment() -> None:
    python = Path(sys.executable)

    assert find_program(python.name, "/", str(python.parent)) == str(python)


async def gone(pid: int) -> bool:
    """Whether a process ends; whoever reaps it may be a moment late."""
    for _ in range(500):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        await asyncio.sleep(0.01)
    return False


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("loop", LOOPS)
def test_the_transport_closes_it(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def use() -> list[bool]:
        read, write = os.pipe()
        reader, _ = await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, Pipe(read))
        writer, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, Pipe(write))
        before = [is_open(read), is_open(write)]
        writer.close()
        reader.close()
        for _ in range(10):
            await asyncio.sleep(0)
        return [*before, is_open(read), is_open(write)]

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(use()) == [True, True, False, False]


@pytest.mark.parametrize("loop", LOOPS)
def test_descriptors_of_other_threads_stay_open(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Other threads open and close descriptors meanwhile; their descriptors stay open."""
    ended, lost = threading.Event(), list[int]()

    def open_and_close() -> None:
        while not ended.is_set():
            descriptor = os.open(os.devnull, os.O_RDONLY)
            try:
                os.close(descriptor)
            except OSError:
                lost.append(descriptor)

    async def use() -> None:
        for _ in range(500):
            read, write = os.pipe()
            reader, _ = await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, Pipe(read))
            os.close(write)
            reader.close()
            await asyncio.sleep(0)

    threads = [threading.Thread(target=open_and_close) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(use())
    finally:
        ended.set()
        for thread in threads:
            thread.join()

    assert lost == []


@pytest.mark.parametrize("loop", LOOPS)
def test_output_that_cannot_be_kept_does_not_end_the_process(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """As when the disk is full. uvloop closes a pipe whose protocol raises."""
    kept: list[bytes] = []

    def output(data: bytes) -> None:
        kept.append(data)
        if len(kept) == 1:
            raise OSError(errno.ENOSPC, "no space left on device")

    async def use() -> int:
        guard_client = await GuardClient.start(f"test-{os.getpid()}-output", tmp_path / "volumes")
        try:
            process = await captured(shell("echo one; sleep 0.2; echo two"), guard_client, output)
            return await process.wait()
        finally:
            await guard_client.stop()

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(use()) == 0
    assert kept == [b"one\n", b"two\n"]
