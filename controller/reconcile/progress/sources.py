"""Reads the progress of one pod from the API server. The size of each answer is limited, however much a pod writes.

Source: the Kubernetes API, core/v1, PodLogOptions; kubelet, pkg/kubelet/kuberuntime/logs/logs.go.
"""

import asyncio
from itertools import count
from typing import Any, Final, Protocol

import orjson

from api.meta import PODS
from api.progress import ExecProgress, LogProgress, Progress
from api.times import parse_time
from controller.kube import remote_command
from controller.kube.client import METADATA_ONLY, Client
from controller.kube.concurrency import PriorityLevel
from controller.policy.hangs import Reading, RunningPod, compiled

LONGEST_STAMP_BYTES: Final = 64
"""Contains the timestamp at the begin of a line, and nothing else is needed of it."""
MOST_LINES: Final = 2000
MOST_BYTES: Final = 1024 * 1024
"""A pattern is searched in so many of the last lines and bytes."""

COMMAND_SECONDS: Final = 10.0
MOST_OUTPUT_BYTES: Final = 4096


class Unread(Exception):
    """A read that does not show whether there was progress; the message says why."""


class Source(Protocol):
    """Reads the progress of pods of one job."""

    async def read(self, namespace: str, pod: RunningPod) -> Reading:
        """Read the progress of one pod.

        Raises:
            Unread, CommandError: the answer does not show it.
            ApiError, aiohttp.ClientError, TimeoutError, OSError: the read failed.
        """
        ...


def source_for(client: Client, progress: Progress, commands: asyncio.Semaphore) -> Source:
    """Return the source that the job names. ``commands`` limits how many run at once: the client limits requests, not WebSockets."""
    if progress.exec is not None:
        return Command(client, progress.exec, commands)
    if progress.annotation is not None:
        return Annotation(client, progress.annotation)
    logs = progress.logs or LogProgress()
    return Pattern(client, logs, logs.pattern) if logs.pattern else LastLine(client, logs)


class LastLine:
    """Each new line in the log is progress. Reads the time of the last line, which the node wrote; only whether it changes matters."""

    def __init__(self, client: Client, logs: LogProgress) -> None:
        self._client = client
        self._logs = logs

    async def read(self, namespace: str, pod: RunningPod) -> Reading:
        options = {"tailLines": "1", "limitBytes": str(LONGEST_STAMP_BYTES)}
        answer = await log_of(self._client, namespace, pod, self._logs.container, options)
        stamp = answer.partition(b" ")[0].decode(errors="replace")
        return Reading(stamp, _seconds(stamp)) if stamp else Reading("")


class Pattern:
    """Each new line in the log that contains a match is progress. Reads the lines since the last read."""

    def __init__(self, client: Client, logs: LogProgress, pattern: str) -> None:
        self._client = client
        self._logs = logs
        self._search = compiled(pattern).search
        self._stamps: dict[str, str] = {}
        """The timestamp of the last line that was read, by the pod's UID."""
        self._incomplete: set[str] = set()
        """UIDs of pods whose last read missed lines, of which one may match."""

    async def read(self, namespace: str, pod: RunningPod) -> Reading:
        before = self._stamps.get(pod.uid, "")
        options = {"tailLines": str(MOST_LINES), "limitBytes": str(MOST_BYTES), "sinceTime": before}
        answer = await log_of(self._client, namespace, pod, self._logs.container, options)
        since = _seconds(before) if before else 0.0
        found = Reading("")
        stamp = before
        lines = answer.splitlines()
        if is_cut := len(answer) >= MOST_BYTES:
            lines = lines[:-1] or lines
        for line in lines:
            time, _, text = line.partition(b" ")
            stamp = time.decode(errors="replace")
            # The server rounds sinceTime to seconds.
            if stamp != before and _seconds(stamp) >= since and self._search(text):
                found = Reading(stamp, _seconds(stamp))
        self._stamps[pod.uid] = stamp
        if found.token:
            self._incomplete.discard(pod.uid)
            return found
        # A cut answer that ends with the line of the last read shows that the log has not grown.
        is_cut = is_cut and stamp != before
        if is_cut or (before and len(lines) >= MOST_LINES and _stamp_of(lines[0]) > since):
            self._incomplete.add(pod.uid)
            raise Unread(f"more than {MOST_LINES} lines or {MOST_BYTES} bytes were written between two reads")
        if pod.uid in self._incomplete:
            # A line that was missed may have been progress: silence counts from the last line that was read.
            self._incomplete.discard(pod.uid)
            return Reading(before, since)
        return found


class Annotation:
    """Each new value of an annotation is progress. Reads the pod from the server, because a watch that is down would look like silence."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    async def read(self, namespace: str, pod: RunningPod) -> Reading:
        answer = await self._client.get(
            PODS, namespace, pod.name, accept=METADATA_ONLY, level=PriorityLevel.EVENT
        )
        metadata: dict[str, Any] = orjson.loads(answer)["metadata"]
        if metadata["uid"] != pod.uid:
            raise Unread("the pod was replaced")
        value = (metadata.get("annotations") or {}).get(self._name)
        return Reading("") if value is None else Reading(f"={value}", self._written_at(metadata))

    def _written_at(self, metadata: dict[str, Any]) -> float | None:
        """Return when the annotation was written, by the API server's clock."""
        key = f"f:{self._name}"
        times = [
            entry.get("time", "")
            for entry in metadata.get("managedFields") or ()
            if key in entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:annotations", {})
        ]
        return _seconds(max(times)) if times else None


class Command:
    """A command that exits with 0 reports progress if it prints something else than before, or nothing. One that does not end reports none."""

    def __init__(self, client: Client, given: ExecProgress, free: asyncio.Semaphore) -> None:
        self._client = client
        self._given = given
        self._free = free
        self._runs = count()

    async def read(self, namespace: str, pod: RunningPod) -> Reading:
        async with self._free:
            output = await remote_command.run(
                self._client,
                namespace,
                pod.name,
                self._given.container or pod.container,
                self._given.command,
                timeout_seconds=COMMAND_SECONDS,
                most_bytes=MOST_OUTPUT_BYTES,
            )
        if output is None or output.exit_code:
            return Reading("")
        text = output.stdout.strip()
        return Reading(f"={text!r}" if text else f"run {next(self._runs)}")


async def log_of(
    client: Client, namespace: str, pod: RunningPod, container: str | None, options: dict[str, str]
) -> bytes:
    """Return a part of the pod's log, with the timestamp of each line.

    Raises:
        ApiError, aiohttp.ClientError, TimeoutError, OSError: the read failed.
    """
    params = {"container": container or pod.container, "timestamps": "true", **options}
    path = PODS.path(namespace, pod.name, "log")
    return await client.request(
        "GET",
        path,
        resource="pods/log",
        params=params,
        accept="*/*",
        level=PriorityLevel.EVENT,
        group=namespace,
    )


def _stamp_of(line: bytes) -> float:
    """Return the time of a line in seconds since 1970."""
    return _seconds(line.partition(b" ")[0].decode(errors="replace"))


def _seconds(stamp: str) -> float:
    """Return the seconds since 1970.

    Raises:
        Unread: this is no timestamp. The kubelet answers so if it cannot read the file.
    """
    try:
        return parse_time(stamp).timestamp()
    except ValueError:
        raise Unread(f"the log has no timestamps: {stamp[:64]!r}") from None
