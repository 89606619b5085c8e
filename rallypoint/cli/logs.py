"""``rallypoint logs``: show the logs of a pod, of a job's pods, or of pods with given labels.

The output of several pods is written in whole lines, that of a job's pods with the pod's name before each line.
"""

import argparse
import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import aiohttp

from api.messages import first_of
from api.meta import PODS
from api.pod_problems import read_status, reason_and_message, unscheduled
from controller.kube.errors import ApiError, NotFound
from controller.runtime import clock
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import (
    Cluster,
    CommandError,
    Object,
    ServedResource,
    container_of,
)
from rallypoint.cli.log_follower import BAD_REQUEST, MAX_LINE_BYTES, JobLogFollower, owns_pods
from rallypoint.cli.terminal import OutputError, write_bytes, write_error
from rallypoint.diagnosis.objects import is_finished, name_of
from rallypoint.local.apiserver.apimachinery.selectors import parse_label_selector
from rallypoint.local.log_archive import ArchivedPod, default_container
from rallypoint.local.node.streams.logs import Log, Selection

DEFAULT_TAIL_OF_SELECTOR = 10
"""The default number of lines per pod with a selector."""

NAMED_PODS = 3
"""The largest number of deleted pods that a note names."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?\Z")


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser("logs", help="show the logs of containers in a cluster, local or real")
    parser.add_argument("what", nargs="?", metavar="POD", help="POD, or KIND/NAME of a job")
    parser.add_argument("--selector", "-l", default="", help="show the logs of all pods with these labels")
    parser.add_argument(
        "--container",
        "-c",
        default="",
        help="name of the container; default: the one that the annotation kubectl.kubernetes.io/default-container names, else the first",
    )
    parser.add_argument(
        "--follow",
        "-f",
        action="store_true",
        help="print new lines until the container ends; of a job, also of its later pods, until the job has finished",
    )
    parser.add_argument(
        "--previous", "-p", action="store_true", help="show the previous run of the container"
    )
    parser.add_argument("--tail", type=int, metavar="LINES", help="only the last LINES lines")
    parser.add_argument("--since", type=_seconds, metavar="TIME", help="only lines newer than 10s, 5m, 1h")
    parser.add_argument("--timestamps", action="store_true", help="print the time of each line")
    parser.add_argument(
        "--prefix",
        action=argparse.BooleanOptionalAction,
        help="print the pod and container of each line; default: the pod, for the pods of a job",
    )
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
    query = _query(args, several=bool(args.selector))
    if args.selector:
        pods = await _selected_pods(args, cluster)
    else:
        kind, _, name = args.what.rpartition("/")
        served = cluster.find(kind or PODS.plural)
        if served.resource != PODS:
            return await _show_job(args, cluster, served, name, query)
        try:
            pods = [await cluster.get(served, name)]
        except NotFound:
            if not (gone := _deleted_pods(cluster, served, name)):
                raise
            if error := await _show_archived(args, gone[-1], of_job=False):
                raise CommandError(error) from None
            return 0
    if not args.follow:
        for pod in pods:
            if not args.selector and (error := _scheduling_error(pod)):
                raise CommandError(error)
            await _show(args, cluster, pod, query)
        return 0
    async with _first_error(), asyncio.TaskGroup() as tasks:
        for pod in pods:
            tasks.create_task(_show(args, cluster, pod, query, whole_lines=len(pods) > 1))
    return 0


async def _selected_pods(args: argparse.Namespace, cluster: Cluster) -> list[Object]:
    """Return the pods with the labels; note deleted ones, which are not shown: they may be those of any earlier job.

    Raises:
        CommandError: there is none.
    """
    pods = await cluster.list_objects(PODS, labelSelector=args.selector)
    matches = parse_label_selector(args.selector)
    uids = {pod["metadata"]["uid"] for pod in pods}
    archived = cluster.archive.pods(cluster.namespace) if cluster.archive else ()
    gone = [pod.name for pod in archived if matches and matches(dict(pod.manifest)) and pod.uid not in uids]
    if gone:
        named = first_of(gone, NAMED_PODS)
        write_error(f"deleted pods with these labels: {named}; 'rallypoint logs POD' shows their logs\n")
    if not pods:
        raise CommandError("no pods found")
    return pods


async def _show_job(
    args: argparse.Namespace, cluster: Cluster, served: ServedResource, name: str, query: Mapping[str, str]
) -> int:
    """Show the logs of all pods of a job, or of another owner of pods; in a local cluster first those of its deleted pods.

    Pods without the requested container are left out. Return 1 if no pod has a log to show.
    """
    owner, pods = None, list[Object]()
    try:
        owner = await cluster.get(served, name)
    except NotFound:
        gone = _deleted_pods(cluster, served, name)
        if not gone:
            raise
    else:
        pods = sorted(await cluster.owned_pods(served, owner), key=name_of)
        gone = _deleted_pods(cluster, served, name, owner, pods)
    has_pods_later = args.follow and owner is not None and owns_pods(served) and not is_finished(owner)
    hint = f"'rallypoint why {served.resource.kind.lower()}/{name}' says why" if owns_pods(served) else ""
    if not (pods or gone or has_pods_later):
        raise CommandError("; ".join(filter(None, ("no pods found", hint))))
    manifests = [*(archived.manifest for archived in gone), *pods]
    if manifests and not any(_container_of_member(args, pod) for pod in manifests):
        raise CommandError(f"container {args.container} is not valid for any pod of {args.what}")
    if has_pods_later and not manifests:
        write_error(f"waiting for the first pod; {hint}\n")
    errors = {archived.name: await _show_archived(args, archived, of_job=True) for archived in gone}
    if args.follow and owner is not None:
        _report(errors)
        follower = JobLogFollower(
            cluster,
            served,
            owner,
            query,
            container_of=lambda pod: _container_of_member(args, pod),
            writer_of=lambda pod, container: LineWriter(_prefix(args, pod, container, of_job=True)).add,
            timestamps=args.timestamps,
        )
        async with _first_error():
            await follower.run()
        return 0
    for pod in pods:
        if not _container_of_member(args, pod):
            continue
        try:
            error = _scheduling_error(pod)
            if not error:
                await _show(args, cluster, pod, query, of_job=True)
        except NotFound:
            continue  # The pod has been deleted since.
        except ApiError as refusal:
            if refusal.code != BAD_REQUEST:
                raise
            error = refusal.message
        errors[name_of(pod)] = error
    _report(errors)
    if hint and owner is not None and not args.previous and any(errors.values()):
        write_error(f"{hint}\n")
    return 1 if errors and all(errors.values()) else 0


def _scheduling_error(pod: Object) -> str:
    """Return why the pod has no node, for which a cluster returns an empty log; empty if it has one or nothing says why."""
    scheduled = unscheduled(read_status(pod))
    reason = reason_and_message(scheduled) if scheduled else ""
    return f'pod "{name_of(pod)}" is waiting to start: {reason}' if reason else ""


def _report(errors: Mapping[str, str]) -> None:
    write_error("".join(f"{pod}: {error}\n" for pod, error in errors.items() if error))


def _deleted_pods(
    cluster: Cluster,
    served: ServedResource,
    name: str,
    owner: Object | None = None,
    existing: Iterable[Object] = (),
) -> list[ArchivedPod]:
    """Return the pods of a job, or those with a name, whose logs a local cluster keeps; the oldest first."""
    if cluster.archive is None:
        return []
    if served.resource == PODS:
        named = (pod for pod in cluster.archive.pods(cluster.namespace) if pod.name == name)
        return [pod for pod in named if pod.has_logs]
    uids = {pod["metadata"]["uid"] for pod in existing}
    found = cluster.archive.pods_of_job(cluster.namespace, served.resource.kind, name, owner)
    return [archived for archived in found if archived.uid not in uids and archived.has_logs]


async def _show_archived(args: argparse.Namespace, pod: ArchivedPod, *, of_job: bool) -> str:
    """Show the log of a deleted pod: its newest run, or the one before with ``--previous``. Return why there is none; else empty text.

    A job's pod without the requested container is left out. A note says if the times of the lines are lost.

    Raises:
        CommandError: the pod has no container of that name.
    """
    container = _container_of_member(args, pod.manifest) if of_job else _container_of(args, pod.manifest)
    if container is None:
        return ""
    runs = pod.runs(container)
    if args.previous:
        if len(runs) < 2:
            return f'previous terminated container "{container}" in pod "{pod.name}" not found'
        runs = runs[:-1]
    if not runs:
        return ""
    prefix = _prefix(args, pod.manifest, container, of_job=of_job)
    write = LineWriter(prefix).add if prefix or of_job else write_bytes
    since = None if not args.since else clock.now() - timedelta(seconds=args.since)
    tail = None if args.tail is None or args.tail < 0 else args.tail
    try:
        log = Log(runs[-1], ended=True)
        if args.timestamps and not log.has_times:
            write_error(f"{pod.name}: the times of its lines are lost; all have that of the last one\n")
        async for chunk in log.read(Selection(tail_lines=tail, since=since, timestamps=args.timestamps)):
            write(chunk)
    except (BrokenPipeError, OutputError):
        raise
    except OSError as error:
        return f"{runs[-1]}: {error.strerror}"
    write(b"")
    return ""


@asynccontextmanager
async def _first_error() -> AsyncGenerator[None]:
    """Raise the first error of a group of tasks instead of the group."""
    try:
        yield
    except* (ApiError, CommandError, aiohttp.ClientError, OSError) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


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
    args: argparse.Namespace,
    cluster: Cluster,
    pod: Object,
    query: Mapping[str, str],
    *,
    of_job: bool = False,
    whole_lines: bool = False,
) -> None:
    container = _container_of(args, pod) if of_job else container_of(pod, args.container)
    prefix = _prefix(args, pod, container, of_job=of_job)
    write = LineWriter(prefix).add if prefix or of_job or whole_lines else write_bytes
    path = PODS.path(pod["metadata"]["namespace"], name_of(pod), "log")
    async with cluster.client.stream(
        path, {**query, "container": container}, accept="*/*", endless=True
    ) as stream:
        async for chunk in stream.iter_any():
            write(chunk)
    write(b"")


def _container_of(args: argparse.Namespace, pod: Mapping[str, Any]) -> str:
    """Return the requested container, else the pod's default one; of a job's pods, without a note about the choice.

    Raises:
        CommandError: the pod has no container of that name.
    """
    default = default_container(pod) or str(pod["spec"]["containers"][0]["name"])
    return container_of(pod, args.container or default)


def _container_of_member(args: argparse.Namespace, pod: Mapping[str, Any]) -> str | None:
    """Return the container as ``_container_of`` does; None if a pod of a job does not have the requested one."""
    try:
        return _container_of(args, pod)
    except CommandError:
        return None


def _prefix(args: argparse.Namespace, pod: Mapping[str, Any], container: str, *, of_job: bool) -> bytes:
    """Return ``[pod/NAME/CONTAINER]`` if the flag requests it, ``[NAME]`` for a job's pod, or nothing."""
    if args.prefix:
        return f"[pod/{name_of(pod)}/{container}] ".encode()
    return f"[{name_of(pod)}] ".encode() if of_job and args.prefix is None else b""


class LineWriter:
    """Writes whole lines to standard output, each after the prefix. A line without an end gets one when its container ends."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._rest = b""

    def add(self, data: bytes) -> None:
        """Write the lines that ``data`` completes; empty ``data`` ends the last line."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._rest and (not data or len(self._rest) > MAX_LINE_BYTES):
            lines.append(self._rest)
            self._rest = b""
        if lines:
            write_bytes(b"".join(self._prefix + line + b"\n" for line in lines))
