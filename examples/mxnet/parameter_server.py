"""Fit a line between two clouds of points with a scheduler, parameter servers and workers.

MXNet is retired, so this program has no framework: it speaks the protocol that MXNet and other programs on DMLC's ps-lite read from the
environment, with the standard library alone. ``DMLC_ROLE`` says what a process does:

- the scheduler listens at ``DMLC_PS_ROOT_URI``:``DMLC_PS_ROOT_PORT`` until ``DMLC_NUM_SERVER`` servers and ``DMLC_NUM_WORKER`` workers
  have said where they are, and then tells all of them where the servers are;
- each server holds a part of the weights, which workers pull and push gradients to;
- each worker learns from its share of the points.

``MX_CONFIG`` says the same as JSON; here it gives each process its name. The job fails when fewer than ``--target`` of the points that
nobody learned from are on the right side.
"""

import argparse
import asyncio
import json
import math
import os
import random
import sys
from typing import Any

WEIGHTS = 3
"""Two slopes and an offset."""
RATE = 0.1
CONNECT_SECONDS = 60.0

Point = tuple[tuple[float, ...], int]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def points(seed: int, count: int) -> list[Point]:
    """Points around (-1, -1), which are of class 0, and around (1, 1), which are of class 1; the last coordinate is always 1."""
    draw = random.Random(seed)
    labels = [number % 2 for number in range(count)]
    return [
        ((draw.gauss(2 * label - 1, 0.7), draw.gauss(2 * label - 1, 0.7), 1.0), label) for label in labels
    ]


def probability(weights: list[float], point: tuple[float, ...]) -> float:
    score = sum(weight * value for weight, value in zip(weights, point, strict=True))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))


async def receive(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next message: one line of JSON. Raises ConnectionError at the end of the stream."""
    line = await reader.readline()
    if not line:
        raise ConnectionError("the other side has ended")
    message: dict[str, Any] = json.loads(line)
    return message


async def send(writer: asyncio.StreamWriter, **message: Any) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    await writer.drain()


async def call(streams: Streams, **message: Any) -> dict[str, Any]:
    await send(streams[1], **message)
    return await receive(streams[0])


async def connect(host: str, port: int) -> Streams:
    """Connect, and try again until the other side is up."""
    async with asyncio.timeout(CONNECT_SECONDS):
        while True:
            try:
                return await asyncio.open_connection(host, port)
            except OSError:
                await asyncio.sleep(0.2)


async def schedule(args: argparse.Namespace) -> int:
    """What the scheduler does: bring all together, wait for the workers, judge, and let the servers end."""
    expected = {"server": int(os.environ["DMLC_NUM_SERVER"]), "worker": int(os.environ["DMLC_NUM_WORKER"])}
    members: dict[str, list[Streams]] = {"server": [], "worker": []}
    addresses: list[tuple[str, int]] = []
    complete = asyncio.Event()

    async def register(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await receive(reader)
        members[hello["role"]].append((reader, writer))
        if hello["role"] == "server":
            addresses.append((writer.get_extra_info("peername")[0], hello["port"]))
        if all(len(members[role]) == count for role, count in expected.items()):
            complete.set()

    async with await asyncio.start_server(register, "0.0.0.0", int(os.environ["DMLC_PS_ROOT_PORT"])):
        await complete.wait()
        print(f"{expected['server']} servers and {expected['worker']} workers are here", flush=True)
        for _, writer in members["server"] + members["worker"]:
            await send(writer, servers=addresses)
        for reader, _ in members["worker"]:
            await receive(reader)
        servers = [await connect(*address) for address in addresses]
        weights = await pull(servers)
        for _, writer in servers:
            writer.close()
        for _, writer in members["server"]:
            await send(writer, end=True)
    held_out = points(1, 500)
    right = sum((probability(weights, point) > 0.5) == bool(label) for point, label in held_out)
    accuracy = right / len(held_out)
    print(f"accuracy {accuracy:.4f} on {len(held_out)} held-out points (target {args.target})", flush=True)
    return 0 if accuracy >= args.target else 1


async def serve(scheduler: Streams) -> int:
    """What a server does: hold every n-th weight until the scheduler ends it."""
    weights: dict[int, float] = {}
    answers: set[asyncio.Task[None] | None] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.add(asyncio.current_task())
        while (message := json.loads(await reader.readline() or b"null")) is not None:
            for index, gradient in message.get("push", {}).items():
                weights[int(index)] = weights.get(int(index), 0.0) - RATE * gradient
            await send(writer, weights=weights)
        writer.close()

    async with await asyncio.start_server(answer, "0.0.0.0", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await call(scheduler, role="server", port=port)
        await receive(scheduler[0])
        await asyncio.gather(*filter(None, answers))
    return 0


async def work(args: argparse.Namespace, scheduler: Streams) -> int:
    """What a worker does: pull the weights, push the gradients of one point after the other."""
    start = await call(scheduler, role="worker")
    servers = [await connect(*address) for address in start["servers"]]
    index, workers = int(os.environ["DMLC_WORKER_ID"]), int(os.environ["DMLC_NUM_WORKER"])
    share = points(0, 1000)[index::workers]
    for epoch in range(1, args.epochs + 1):
        for point, label in share:
            weights = await pull(servers)
            error = probability(weights, point) - label
            await push(servers, [error * value for value in point])
        print(f"epoch {epoch}/{args.epochs}: {len(share)} points", flush=True)
    await send(scheduler[1], done=True)
    return 0


async def pull(servers: list[Streams]) -> list[float]:
    """All weights, gathered from all servers."""
    answers = [await call(server) for server in servers]
    found = {int(index): value for answer in answers for index, value in answer["weights"].items()}
    return [found.get(index, 0.0) for index in range(WEIGHTS)]


async def push(servers: list[Streams], gradients: list[float]) -> None:
    """Send each gradient to the server that holds its weight."""
    for number, server in enumerate(servers):
        part = {index: value for index, value in enumerate(gradients) if index % len(servers) == number}
        await call(server, push=part)


async def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--target", type=float, default=0.95)
    args = parser.parse_args()
    task = json.loads(os.environ["MX_CONFIG"])["task"]
    print(f"{task['type']} {task['index']} of an MXJob", flush=True)
    role = os.environ["DMLC_ROLE"]
    if role == "scheduler":
        return await schedule(args)
    scheduler = await connect(os.environ["DMLC_PS_ROOT_URI"], int(os.environ["DMLC_PS_ROOT_PORT"]))
    return await (serve(scheduler) if role == "server" else work(args, scheduler))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
