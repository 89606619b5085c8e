"""Runs ``rallypoint port-forward``."""

import asyncio
import re
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rallypoint.testing.up import RALLYPOINT


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Forwarding:
    """A process of the command, which forwards one port."""

    process: Process
    local_port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.local_port}/"

    async def error(self) -> str:
        """Return the next line of standard error; empty at its end."""
        assert self.process.stderr is not None
        async with asyncio.timeout(60):
            return (await self.process.stderr.readline()).decode().rstrip()


@asynccontextmanager
async def forwarding(kubeconfig: Path, pod: str, port: int) -> AsyncGenerator[Forwarding]:
    """Forward any free local port to a port of the pod; kill the process at the end of the block."""
    command = [*RALLYPOINT, "port-forward", pod, f":{port}", "--kubeconfig", str(kubeconfig)]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
        match = re.fullmatch(rf"Forwarding from 127\.0\.0\.1:(\d+) -> {port}\n", line)
        assert match is not None, line
        yield Forwarding(process, int(match[1]))
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
