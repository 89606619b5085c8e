"""Stacks of the running process."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
from structlog.testing import capture_logs

from controller.telemetry import stacks


async def outer() -> None:
    await inner()


async def inner() -> None:
    await asyncio.Event().wait()


async def test_a_line_holds_the_whole_stack_of_all_tasks_that_share_it() -> None:
    tasks = [asyncio.create_task(outer(), name=f"waiting-{number}") for number in range(7)]
    await asyncio.sleep(0)
    with capture_logs() as logs:
        stacks.log_tasks()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    (line,) = (line for line in logs if "waiting-0" in line["names"])
    assert (line["event"], line["tasks"], len(line["names"])) == ("task stack", 7, stacks.NAMED)
    functions = [frame.split(" ")[1] for frame in line["stack"]]
    assert functions == ["outer", "inner", "Event.wait"]
    assert line["stack"][0].startswith(f"{__name__}:")


async def numbers() -> AsyncIterator[int]:
    await inner()
    yield 1


async def loop_over_numbers() -> None:
    async for _ in numbers():
        pass


async def request(server: asyncio.Server) -> None:
    host, port = server.sockets[0].getsockname()[:2]
    async with aiohttp.ClientSession() as session:
        await session.get(f"http://{host}:{port}/")


async def functions_of(task: "asyncio.Task[None]") -> list[str]:
    """The functions in the stack that the log shows of a waiting task."""
    with capture_logs() as logs:
        stacks.log_tasks()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    (stack,) = (line["stack"] for line in logs if task.get_name() in line["names"])
    return [frame.split(" ")[1] for frame in stack]


async def test_a_stack_continues_in_an_asynchronous_generator() -> None:
    task = asyncio.create_task(loop_over_numbers())
    await asyncio.sleep(0)

    assert await functions_of(task) == ["loop_over_numbers", "numbers", "inner", "Event.wait"]


@pytest.mark.looptime(False)
async def test_a_stack_continues_in_a_request() -> None:
    connected, done = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        connected.set()
        await done.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        task = asyncio.create_task(request(server))
        await connected.wait()
        functions = await functions_of(task)
        done.set()

    assert functions[:2] == ["request", "ClientSession._request"]
    assert "ClientResponse.start" in functions


BLOCKED = """
import asyncio, signal, sys, time
from controller.telemetry import logs, stacks

async def main():
    stacks.dump_on(signal.SIGUSR1, sys.stderr)
    waiting = asyncio.create_task(asyncio.Event().wait(), name="waiting")
    blocking_call()
    await asyncio.sleep(0.1)

def blocking_call():
    print("ready", flush=True)
    sys.stdin.readline()

logs.configure("json", "info")
{run}(main())
"""


@pytest.mark.looptime(False)
@pytest.mark.parametrize(
    "run",
    ["asyncio.run", "__import__('uvloop').run"],
    ids=["asyncio", "uvloop"],
)
def test_a_signal_dumps_the_threads_of_a_blocked_loop_and_then_its_tasks(run: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED.replace("{run}", run)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        dumped = ""
        while "in main" not in dumped:
            line = process.stderr.readline()
            assert line, dumped
            dumped += line
        process.stdin.write("\n")
        process.stdin.flush()
        rest = process.stderr.read()

    assert "in blocking_call" in dumped
    assert '"msg": "task stack"' in rest
    assert '"names": ["waiting"]' in rest
    assert process.returncode == 0
