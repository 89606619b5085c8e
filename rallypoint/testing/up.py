"""``rallypoint up`` as a process of its own, and a client of it."""

import asyncio
import shlex
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from rallypoint.testing.http_trace import RawClient, Step

RALLYPOINT = [sys.executable, "-P", "-c", "import sys; from rallypoint.cli import main; sys.exit(main())"]
COMMAND = [*RALLYPOINT, "up"]
TIMEOUT_SECONDS = 60.0


class Up:
    """One process of ``rallypoint up``."""

    def __init__(self, process: Process, client: RawClient, kubeconfig: Path, page: str = "") -> None:
        self.process = process
        self.client = client
        self.kubeconfig = kubeconfig
        self.page = page
        """The URL of the page with its token."""

    async def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal, wait for the end and return the exit status."""
        self.process.send_signal(number)
        return await self.process.wait()

    async def until(self, path: str, wanted: Callable[[Any], bool]) -> Any:
        """GET the path until ``wanted`` is true of the answer, and return it.

        Raises:
            TimeoutError: it was not within a minute.
        """
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reply = await self.client.send(Step("GET", path))
            while reply.code != 200 or not wanted(reply.body or reply.text):
                await asyncio.sleep(0.05)
                reply = await self.client.send(Step("GET", path))
        return reply.body


@asynccontextmanager
async def up(*arguments: str, folder: Path, command: Sequence[str] = COMMAND) -> AsyncGenerator[Up]:
    """Start ``rallypoint up`` in ``folder`` and yield it when it is up; the end of the block kills it.

    ``command`` may be another command that prints the path of its kubeconfig.
    """
    process = await asyncio.create_subprocess_exec(*command, *arguments, cwd=folder, stdout=PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            page = ""
            while not (line := (await process.stdout.readline()).decode()).startswith("export KUBECONFIG="):
                assert line, "it has ended before it was up"
                page = line.removeprefix("web UI: ").strip() if line.startswith("web UI: ") else page
        kubeconfig = Path(*shlex.split(line.partition("=")[2]))
        config = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
        async with RawClient.from_kubeconfig(config) as client:
            yield Up(process, client, kubeconfig, page)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def has(condition: str) -> Callable[[Any], bool]:
    """Return a check whether a job has this condition."""
    return lambda found: any(
        entry["type"] == condition and entry["status"] == "True"
        for entry in (found.get("status") or {}).get("conditions") or ()
    )
