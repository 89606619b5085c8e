"""A descriptor that is given to a loop is closed, and closed once."""

import asyncio
import os
import threading
from collections.abc import Callable

import pytest
import uvloop

from rallypoint.local.node.streams.pipes import Pipe

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.SelectorEventLoop, uvloop.new_event_loop]


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
def test_nobody_elses_is_closed(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Another thread opens and closes all the while; what it has open stays open."""
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
