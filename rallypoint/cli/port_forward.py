"""``rallypoint port-forward``: forward local ports to a pod, or to a replica of a job.

Each local connection is a WebSocket of its own, with the protocol ``v4.channel.k8s.io``, which all supported versions of
Kubernetes accept. It cannot end the data of one direction alone.

Source: Kubernetes, cri-streaming pkg/streaming/portforward/websocket.go.
"""

import argparse
import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import aiohttp

from api import labels
from api.meta import PODS
from controller.kube.client import Client
from controller.kube.errors import ApiError, unreachable
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, CommandError, Object
from rallypoint.cli.terminal import write, write_error
from rallypoint.diagnosis.objects import name_of, status_of

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = b"\0", b"\1"
HEAD_BYTES = 2
"""The data of each channel starts with the number of the port."""
CHUNK_BYTES = 32 * 1024
LINGER_SECONDS = 10.0
"""The silence of the pod after which a connection closes whose local client sends no more. It may have gone away."""
BAD_REQUEST = 400


@dataclass(frozen=True, slots=True)
class PortPair:
    local: int | None
    """None for the same number, 0 for any free port."""
    remote: int | str
    """A number, or the name of a port of a container."""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "port-forward",
        help="forward local ports to a pod of a cluster, local or real",
        epilog="It runs until it is interrupted, and continues with the next pod of the same name.",
    )
    parser.add_argument(
        "what",
        metavar="POD",
        help="POD, or KIND/NAME of a job: its running pod that declares the port, else the first one",
    )
    parser.add_argument(
        "ports",
        nargs="+",
        type=port_pair,
        metavar="[LOCAL:]PORT",
        help="PORT is a number or the name of a container's port; LOCAL is the same by default; "
        "an empty LOCAL or 0 is any free port",
    )
    parser.add_argument(
        "--replica", default="", metavar="ROLE-INDEX", help="the replica of a job, such as worker-1 or master"
    )
    parser.add_argument(
        "--address",
        type=_addresses,
        default=["127.0.0.1"],
        metavar="ADDRESSES",
        help="local addresses to listen on, separated by commas; default: 127.0.0.1",
    )
    clusters.add_flags(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    return clusters.execute(args, partial(_port_forward, args))


def _addresses(text: str) -> list[str]:
    addresses = text.split(",")
    if not all(addresses):  # An empty one would be all of this machine's.
        raise argparse.ArgumentTypeError(f"{text!r} has an empty address")
    return addresses


def port_pair(text: str) -> PortPair:
    """Parse ``[LOCAL:]PORT``; raise ArgumentTypeError if it is something else."""
    local, colon, remote = text.rpartition(":")
    try:
        port = _number(remote, range(1, 65536)) if remote.isdecimal() else remote
        if port:
            return PortPair(_number(local or "0", range(65536)) if colon else None, port)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not [LOCAL:]PORT with ports from 1 to 65535")


def _number(text: str, numbers: range) -> int:
    """Raises:
    ValueError: the text is none of these numbers.
    """
    number = int(text)
    if number not in numbers:
        raise ValueError(text)
    return number


async def _port_forward(args: argparse.Namespace, cluster: Cluster) -> int:
    pod = choose(args.what, await cluster.pods([args.what], ""), args.replica, args.ports)
    remotes = [_resolve(pod, pair.remote) for pair in args.ports]
    path = PODS.path(pod["metadata"]["namespace"], name_of(pod), "portforward")
    if (refusal := await _refusal(cluster.client, path, remotes[0])) is not None:
        raise refusal

    def accept(remote: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.create_task(_serve(cluster.client, path, remote, reader, writer))

    with contextlib.ExitStack() as stack:
        servers: list[tuple[asyncio.Server, int]] = []
        for pair, remote in zip(args.ports, remotes, strict=True):
            local = remote if pair.local is None else pair.local
            for address in args.address:
                server = await _bind(address, local, partial(accept, remote))
                local = server.sockets[0].getsockname()[
                    1
                ]  # The free port of the first address is that of all.
                stack.callback(server.close)
                servers.append((server, remote))
        async with asyncio.TaskGroup() as tasks:
            for server, remote in servers:
                await server.start_serving()
                for listener in server.sockets:
                    write(f"Forwarding from {_endpoint(listener.getsockname())} -> {remote}\n")
            await asyncio.Event().wait()
    return 0


def choose(what: str, pods: Sequence[Object], replica: str, pairs: Sequence[PortPair]) -> Object:
    """Return the pod that runs and declares one of the ports; else the first one that runs, the leading role's before others.

    Raises:
        CommandError: no such pod runs.
    """
    if replica:
        name = f"{what.rpartition('/')[2]}-{replica}"
        found = [pod for pod in pods if name_of(pod) == name or name_of(pod).startswith(f"{name}-")]
        if not found:
            raise CommandError(
                f"{what} has no replica {replica}: its pods are {', '.join(map(name_of, pods))}"
            )
        pods = found
    running = [pod for pod in pods if status_of(pod).get("phase") == "Running"]
    if not running and len(pods) == 1:
        phase = status_of(pods[0]).get("phase")
        raise CommandError(f"unable to forward port because pod is not running. Current status={phase}")
    if not running:
        raise CommandError(f"unable to forward port because no pod of {what} is running")
    wanted = {pair.remote for pair in pairs}

    def order(pod: Object) -> tuple[bool, bool, str]:
        declared = _declared(pod)
        declares = not wanted.isdisjoint({*declared, *declared.values()})
        return not declares, labels.JOB_ROLE not in (pod["metadata"].get("labels") or {}), name_of(pod)

    return min(running, key=order)


def _declared(pod: Object) -> dict[str, int]:
    """Return the ports that containers declare, by name; ports without a name by their number."""
    spec = pod["spec"]
    ports = [
        port
        for container in (*(spec.get("initContainers") or ()), *spec["containers"])
        for port in container.get("ports") or ()
    ]
    return {port.get("name") or str(port["containerPort"]): port["containerPort"] for port in ports}


def _resolve(pod: Object, port: int | str) -> int:
    """Raises:
    CommandError: no container of the pod declares a port of that name.
    """
    number = port if isinstance(port, int) else _declared(pod).get(port)
    if number is None:
        raise CommandError(f"pod {name_of(pod)} does not have a named port '{port}'")
    return number


async def _refusal(client: Client, path: str, port: int) -> ApiError | None:
    """Return the error with which the server refuses to forward a port, with its text; a handshake would hide that."""
    try:
        await client.request("GET", f"{path}?ports={port}")
    except ApiError as error:
        if error.code != BAD_REQUEST or "Upgrade" not in error.message:
            return error
    return None  # Only the upgrade to a WebSocket is missing.


@contextlib.asynccontextmanager
async def forwarding(client: Client, pod: Object, port: int) -> AsyncGenerator[int]:
    """Forward a free port of loopback to a port of a pod while the block runs; yield its number.

    Raises:
        ApiError: the server refuses to forward the port.
    """
    path = PODS.path(pod["metadata"]["namespace"], name_of(pod), "portforward")
    if (refusal := await _refusal(client, path, port)) is not None:
        raise refusal
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.create_task(_serve(client, path, port, reader, writer)))

    server = await _bind("127.0.0.1", 0, accept)
    try:
        await server.start_serving()
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


_Accept: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


async def _bind(address: str, port: int, accept: _Accept) -> asyncio.Server:
    """Return a server on a local port, which does not listen yet.

    Raises:
        CommandError: the port is in use, or the address is none of this machine.
    """
    try:
        return await asyncio.start_server(accept, address, port, start_serving=False)
    except OSError as error:
        raise CommandError(f"unable to listen on port {port}: {error}") from error


def _endpoint(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _serve(
    client: Client, path: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Forward one local connection."""
    local_port = writer.get_extra_info("sockname")[1]
    problem = ""
    try:
        try:
            async with client.socket(f"{path}?ports={port}", [PROTOCOL]) as socket:
                problem = await _relay(socket, reader, writer)
        except ApiError as error:
            problem = (await _refusal(client, path, port) or error).message
    except* (aiohttp.ClientError, OSError) as group:
        problem = unreachable(group.exceptions[0])
    finally:
        writer.close()
    if problem:
        write_error(f"an error occurred forwarding {local_port} -> {port}: {problem}\n")


async def _relay(
    socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> str:
    """Copy in both directions until one ends; return the error that the server reports, empty if there is none."""
    time = asyncio.get_running_loop().time
    unread_head_bytes = {DATA: HEAD_BYTES, ERROR: HEAD_BYTES}
    problem = b""
    is_unanswered = is_draining = False

    async def send() -> None:
        nonlocal is_unanswered
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                is_unanswered = True
                await socket.send_bytes(DATA + chunk)
        if not is_draining:
            silence.reschedule(time() + LINGER_SECONDS)

    try:
        async with asyncio.timeout(None) as silence, asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(send())
            async for message in socket:
                if message.type is aiohttp.WSMsgType.ERROR:
                    problem += unreachable(message.data).encode()
                if message.type is not aiohttp.WSMsgType.BINARY:
                    continue
                channel, data = message.data[:1], message.data[1:]
                if channel not in unread_head_bytes:
                    continue
                head_bytes = min(unread_head_bytes[channel], len(data))
                unread_head_bytes[channel] -= head_bytes
                if channel == ERROR:
                    problem += data[head_bytes:]
                    continue
                if not (data := data[head_bytes:]):
                    continue
                silence.reschedule(None)  # A local client that reads slowly is no silence of the pod.
                is_draining = True
                try:
                    writer.write(data)
                    await writer.drain()
                except OSError:
                    break
                is_draining = False
                is_unanswered = sending.done()
                if sending.done():
                    silence.reschedule(time() + LINGER_SECONDS)
            sending.cancel()
    except TimeoutError:
        if is_unanswered:  # Otherwise the local client has probably closed a connection that it had kept.
            problem += (
                f"closed: the pod sent nothing for {LINGER_SECONDS:g} s after the end of the input".encode()
            )
    return problem.decode(errors="replace")
