"""``rallypoint exec``: run a command in a container and exit with its status."""

import argparse
import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import sys
import termios
import tty
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any

import aiohttp
import orjson

from controller.kube import remote_command
from controller.kube.remote_command import (
    CLOSE,
    ERROR,
    PROTOCOLS,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    exec_path,
    exit_code,
    split_message,
)
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, CommandError, Object, container_of
from rallypoint.cli.terminal import write_bytes, write_error
from rallypoint.diagnosis.objects import is_pod_terminal, status_of

CHUNK_BYTES = 32 * 1024


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "exec",
        help="run a command in a container of a cluster, local or real",
        usage="rallypoint exec [-h] [-i] [-t] [-c CONTAINER] [flags] POD -- COMMAND [ARGUMENT...]",
        epilog="Exit status: that of the command, or 1 if it cannot be run.",
    )
    parser.add_argument(
        "what", metavar="POD", help="POD, or KIND/NAME of an owner of pods: its first running pod"
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="the command, after --")
    parser.add_argument(
        "--container",
        "-c",
        default="",
        help="name of the container; default: the one that the annotation kubectl.kubernetes.io/default-container names, else the first",
    )
    parser.add_argument("--stdin", "-i", action="store_true", help="pass on standard input")
    parser.add_argument("--tty", "-t", action="store_true", help="allocate a terminal")
    clusters.add_flags(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    return clusters.execute(args, partial(_exec, args))


async def _exec(args: argparse.Namespace, cluster: Cluster) -> int:
    pod = _choose(await cluster.pods([args.what], ""))
    terminal = args.tty and sys.stdin.isatty()
    if args.tty and not terminal:
        write_error("Unable to use a TTY - input is not a terminal or the right kind of file\n")
    metadata, container = pod["metadata"], container_of(pod, args.container)
    path = exec_path(
        metadata["namespace"], metadata["name"], container, args.command, stdin=args.stdin, tty=terminal
    )
    async with cluster.client.socket(path, PROTOCOLS) as socket:
        with _raw_terminal() if terminal and args.stdin else contextlib.nullcontext():
            status = await _relay(socket, stdin=args.stdin, terminal=terminal)
    try:
        code = exit_code(status)
    except remote_command.CommandError as error:
        raise CommandError(str(error)) from error
    if code:
        write_error(f"command terminated with exit code {code}\n")
    return code


def _choose(pods: Sequence[Object]) -> Object:
    """Return the first pod that runs, else the first pod.

    Raises:
        CommandError: that pod has completed.

    Source: kubectl 1.34, pkg/cmd/exec/exec.go, ExecOptions.Run.
    """
    pod = next((pod for pod in pods if status_of(pod).get("phase") == "Running"), pods[0])
    if is_pod_terminal(pod):
        raise CommandError(
            f"cannot exec into a container in a completed pod; current phase is {status_of(pod)['phase']}"
        )
    return pod


async def _relay(
    socket: aiohttp.ClientWebSocketResponse, *, stdin: bool, terminal: bool
) -> Mapping[str, Any]:
    """Relay the streams and return the server's final status; empty if the server sends none."""
    loop = asyncio.get_running_loop()
    sending = asyncio.create_task(_send_input(socket)) if stdin else None
    if terminal:
        resize = partial(_resize, socket)
        loop.add_signal_handler(signal.SIGWINCH, lambda: loop.create_task(resize()))
        await resize()
    try:
        return await _receive(socket)
    finally:
        if sending is not None:
            sending.cancel()
        if terminal:
            loop.remove_signal_handler(signal.SIGWINCH)


async def _receive(socket: aiohttp.ClientWebSocketResponse) -> Mapping[str, Any]:
    status: Mapping[str, Any] = {}
    streams = {STDOUT: sys.stdout.buffer, STDERR: sys.stderr.buffer}
    async for message in socket:
        channel, data = split_message(message)
        if channel == ERROR:
            status = orjson.loads(data)
        elif channel in streams:
            write_bytes(data, streams[channel])
    return status


async def _send_input(socket: aiohttp.ClientWebSocketResponse) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    is_watched = _watch_input(loop, ready)
    try:
        while True:
            if is_watched:
                await ready.wait()
                ready.clear()
            data = os.read(0, CHUNK_BYTES)
            await socket.send_bytes(bytes((STDIN,)) + data) if data else None
            if not data:
                break
    finally:
        if is_watched:
            loop.remove_reader(0)
    if socket.protocol == PROTOCOLS[0]:
        await socket.send_bytes(bytes((CLOSE, STDIN)))


def _watch_input(loop: asyncio.AbstractEventLoop, ready: asyncio.Event) -> bool:
    """Watch standard input and return True; return False for a regular file, which is always readable."""
    try:
        loop.add_reader(0, ready.set)
    except (PermissionError, OSError):
        return False
    return True


async def _resize(socket: aiohttp.ClientWebSocketResponse) -> None:
    rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))
    await socket.send_bytes(bytes((RESIZE,)) + orjson.dumps({"Width": columns, "Height": rows}))


@contextlib.contextmanager
def _raw_terminal() -> Generator[None]:
    """Put the terminal into raw mode: the remote terminal interprets the keys."""
    attributes = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, attributes)
