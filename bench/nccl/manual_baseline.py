"""The worker without the operator: torchrun or mpirun starts it on this machine."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from pathlib import Path
from typing import Any

from bench.nccl import manifest, worker_files
from bench.nccl.log_parser import LogParser
from bench.nccl.schema import RunConfig
from rallypoint.local.node.containers.launch import user_environment


async def measure(
    python: str, config: RunConfig, task: dict[str, Any], timeout_seconds: float, stop: asyncio.Event
) -> tuple[LogParser, str]:
    """Return the results, and why they are incomplete (empty if complete). Raises OSError if the starter is missing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        worker_files.write(folder, task)
        log_parser = LogParser(config)
        # The same environment as in pods of local mode: ``python`` is the same.
        started = await asyncio.create_subprocess_exec(
            *command(python, config, folder, free_port()),
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
            env=user_environment(os.environ, sys.executable, is_root=os.geteuid() == 0),
        )
        reading = asyncio.create_task(_read(started, log_parser))
        stop_task = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait(
                (reading, stop_task), timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for pending in (reading, stop_task):
                pending.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            await asyncio.shield(started.wait())
    if log_parser.is_complete:
        return log_parser, ""
    if reading not in done:
        return log_parser, "interrupted" if done else f"not done after {timeout_seconds:g} s"
    return log_parser, "; ".join(
        [*log_parser.errors, f"exit code {started.returncode}", *log_parser.last_lines]
    )


async def _read(started: Process, log_parser: LogParser) -> None:
    assert started.stdout is not None
    async for line in started.stdout:
        log_parser.feed(line.decode(errors="replace"))
    await started.wait()


def command(python: str, config: RunConfig, folder: Path, port: int) -> list[str]:
    ranks, work = (
        config.nodes * config.gpus,
        [str(folder / worker_files.START), str(folder / worker_files.TASK)],
    )
    if config.via == "mpijob":
        # Without a hostfile mpirun limits the ranks to the number of cores.
        return [*manifest.mpirun(ranks), "--oversubscribe", python, *work, "--master", f"127.0.0.1:{port}"]
    single_node = ["--nnodes", "1", "--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1"]
    return [python, "-m", "torch.distributed.run", *single_node, "--master-port", str(port), *work]


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
