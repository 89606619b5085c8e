"""Runs a command in a container of a pod, over a WebSocket.

Source: Kubernetes, apimachinery, pkg/util/remotecommand/constants.go; client-go, tools/remotecommand/websocket.go.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
import orjson

from api.meta import PODS
from controller.kube import errors
from controller.kube.client import Client

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""In order of preference. The first one can signal the end of standard input."""
_PROTOCOLS_WITHOUT_INPUT: Final = ("v4.channel.k8s.io",)
"""API servers accept a connection with v5 before they have reached the container.

Source: Kubernetes 1.30, apiserver/pkg/util/proxy/streamtranslator.go, ServeHTTP.
"""
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
"""The first byte of each message."""


class CommandError(Exception):
    """The command was not run, or its end is unknown; the message says why."""


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a command. Its output may be truncated."""

    exit_code: int
    stdout: bytes


def exec_path(
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    *,
    stdin: bool = False,
    tty: bool = False,
) -> str:
    """Return the path of the request, with its query."""
    query: list[tuple[str, str]] = [("command", part) for part in command]
    query += [("container", container), ("stdout", "true")]
    query += [("stdin", "true")] if stdin else []
    query += [("tty", "true")] if tty else [("stderr", "true")]
    return f"{PODS.path(namespace, pod, 'exec')}?{urlencode(query)}"


def exit_code(status: Mapping[str, Any]) -> int:
    """Return the exit code from the status that ends a command.

    Raises:
        CommandError: the command was not run, or there is no status.
    """
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise CommandError(status.get("message") or "the connection ended before the command did")


def split_message(message: aiohttp.WSMessage) -> tuple[int, bytes]:
    """Return the channel of a message, and its data; an empty one is of no channel.

    Raises:
        CommandError: the connection broke.
    """
    if message.type is aiohttp.WSMsgType.ERROR:
        raise CommandError(f"the connection to the container broke: {message.data!r}")
    data: bytes = message.data.encode() if isinstance(message.data, str) else message.data
    return (data[0], data[1:]) if data else (-1, b"")


async def run(
    client: Client,
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    *,
    timeout_seconds: float,
    most_bytes: int,
) -> Output | None:
    """Run a command without input, and return its end; None if it has not ended in time. Output beyond ``most_bytes`` is discarded.

    The connection counts towards the time. A command that does not end is left behind: the API has no means to end it.

    Raises:
        CommandError: the command was not run.
        ApiError: the server refused the request.
        aiohttp.ClientError, TimeoutError, OSError: there was no connection to the container, in time.
    """
    path = exec_path(namespace, pod, container, command)
    stdout, status = bytearray(), dict[str, Any]()
    limit, is_connected = asyncio.timeout(timeout_seconds), False
    try:
        async with limit, client.socket(path, _PROTOCOLS_WITHOUT_INPUT) as socket:
            is_connected = True
            async for message in socket:
                channel, data = split_message(message)
                if channel == STDOUT:
                    stdout += data[: most_bytes - len(stdout)]
                elif channel == ERROR:
                    status = orjson.loads(data)
    except TimeoutError:
        if limit.expired() and is_connected:
            return None
        raise
    except orjson.JSONDecodeError as error:
        raise CommandError(f"the status of the command is not JSON: {error}") from error
    except errors.Forbidden as error:
        # The answer to the handshake of a WebSocket is lost.
        text = f"pods/exec is forbidden in namespace {namespace}"
        raise errors.Forbidden(error.code, error.reason, text) from error
    return Output(exit_code(status), bytes(stdout))
