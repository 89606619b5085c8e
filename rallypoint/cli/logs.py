"""``rallypoint logs``: show the logs of a pod, of a job's pods, or of pods with given labels."""

import argparse
import asyncio
import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import aiohttp

from api.meta import PODS
from controller.kube.errors import ApiError
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, CommandError, container_of

DEFAULT_TAIL_OF_SELECTOR = 10
"""The default number of lines per pod with a selector."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?\Z")


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser("logs", help="show the logs of containers in a cluster, local or real")
    parser.add_argument("what", nargs="?", metavar="POD", help="POD, or KIND/NAME of an owner of pods")
    parser.add_argument("--selector", "-l", default="", help="show the logs of all pods with these labels")
    parser.add_argument(
        "--container", "-c", default="", help="name of the container; default: the first container"
    )
    parser.add_argument(
        "--follow", "-f", action="store_true", help="print new lines until the container ends"
    )
    parser.add_argument(
        "--previous", "-p", action="store_true", help="show the previous run of the container"
    )
    parser.add_argument("--tail", type=int, metavar="LINES", help="only the last LINES lines")
    parser.add_argument("--since", type=_seconds, metavar="TIME", help="only lines newer than 10s, 5m, 1h")
    parser.add_argument("--timestamps", action="store_true", help="print the time of each line")
    parser.add_argument("--prefix", action="store_true", help="print the pod and container of each line")
    clusters.add_flags(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    return clusters.execute(args, partial(_logs, args))


def _seconds(text: str) -> int:
    match = _DURATION.match(text)
    if match is None or not text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 10s, 5m or 1h")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


async def _logs(args: argparse.Namespace, cluster: Cluster) -> int:
    if not args.what and not args.selector:
        raise CommandError("expected 'logs POD', 'logs KIND/NAME' or 'logs -l SELECTOR'")
    pods = await cluster.pods([args.what], args.selector)
    query = _query(args, several=bool(args.selector))
    if not args.follow:
        for pod in pods:
            await _show(args, cluster, pod, query)
        return 0
    try:
        async with asyncio.TaskGroup() as tasks:
            for pod in pods:
                tasks.create_task(_show(args, cluster, pod, query))
    except* (ApiError, aiohttp.ClientError, OSError) as group:
        raise group.exceptions[0] from None
    return 0


def _query(args: argparse.Namespace, *, several: bool) -> dict[str, str]:
    tail = args.tail if args.tail is not None else DEFAULT_TAIL_OF_SELECTOR if several else -1
    given = {
        "follow": args.follow,
        "previous": args.previous,
        "timestamps": args.timestamps,
        "tailLines": tail if tail >= 0 else "",
        "sinceSeconds": args.since or "",
    }
    return {name: str(value).lower() for name, value in given.items() if value is not False}


async def _show(
    args: argparse.Namespace, cluster: Cluster, pod: Mapping[str, Any], query: Mapping[str, str]
) -> None:
    metadata = pod["metadata"]
    container = container_of(pod, args.container)
    prefix = f"[pod/{metadata['name']}/{container}] ".encode() if args.prefix else b""
    path = PODS.path(metadata["namespace"], metadata["name"], "log")
    async with cluster.client.stream(
        path, {**query, "container": container}, accept="*/*", endless=True
    ) as stream:
        rest = b""
        async for chunk in stream.iter_any():
            if not prefix:
                _write(chunk)
                continue
            lines, rest = _split_lines(rest + chunk)
            _write(b"".join(prefix + line for line in lines))
        _write(prefix + rest if rest else b"")


def _split_lines(data: bytes) -> tuple[Iterator[bytes], bytes]:
    """Return the complete lines and the rest."""
    *lines, rest = data.split(b"\n")
    return (line + b"\n" for line in lines), rest


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
