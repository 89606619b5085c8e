"""Everything that the page shows of one job."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson

from api.job import ConditionType
from api.labels import REPLICA_INDEX, REPLICA_TYPE
from api.messages import first_of
from controller.kube.errors import NotFound
from controller.policy.limits import was_exceeded
from rallypoint.cli import why
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.job_reader import JobReader
from rallypoint.cli.ui.job_list import Document, JobList, Key, row_of
from rallypoint.diagnosis import Cause, JobSnapshot, diagnose
from rallypoint.diagnosis.objects import (
    FINISHED,
    Object,
    all_container_statuses,
    condition,
    container_statuses,
    event_time,
    name_of,
    parse_timestamp,
    spec_of,
    status_of,
)
from rallypoint.local.apiserver.resources.columns import pod_status
from rallypoint.local.log_archive import ArchivedPod, default_container

PAUSE_SECONDS = 2.0
"""Between two reads of a job that does not change."""
SHORTEST_PAUSE_SECONDS = 0.3
"""Between two reads of a job that changes."""
PAUSE_FACTOR = 10
"""After a read the page waits at least this many times as long as the read took, so that a large job costs the API server a tenth of its time."""
MAX_EVENTS = 500
MAX_PODS = 2000
_OWN_PORT_SUFFIX = "job-port"
"""The port that the operator adds for the rendezvous, such as ``pytorchjob-port``."""


async def read_job(
    cluster: Cluster, jobs: JobList, key: Key, deleted: Object | None = None, *, for_history: bool = False
) -> Document:
    """Return the document of a job, of one that no longer exists from what is left of ``deleted``.

    ``for_history``: it is read once the job has been deleted.

    Raises:
        NotFound: it does not exist.
        ApiError: the server refused a read.
    """
    kind, namespace, name = key
    inside = replace(cluster, namespace=namespace)
    if deleted:
        # Without the mark of a deletion that waits for finalizers.
        metadata = {**deleted["metadata"], "deletionTimestamp": None}
        job = {**deleted, "metadata": metadata}
    else:
        job = await inside.get(jobs.served[kind], name)
    reader = JobReader(inside)
    async with jobs.event_watches.open(namespace) as watch:
        await reader.read_related([job], by_label=True, events=watch.find(namespace, name))
    snapshot = await reader.snapshot(job)
    snapshot = replace(
        snapshot,
        is_deleted=for_history,
        pods_known=snapshot.pods_known and not deleted,  # That they are gone is no cause.
    )
    # A job of 1,000 pods takes longer than the loop of a local cluster should wait.
    found = await asyncio.to_thread(document, snapshot, reader.forbidden, reader.archived_pods(job))
    if found["state"] == ConditionType.FAILED:
        jobs.set_failure(key, found["uid"], found["message"])
    return found


def document(
    snapshot: JobSnapshot, forbidden: Sequence[str], archived: Sequence[ArchivedPod] = ()
) -> Document:
    """Return the document of a job. ``archived`` are pods of it that have logs in the archive."""
    diagnosis = diagnose(snapshot)
    report = why.Report(snapshot, diagnosis, forbidden)
    logs = {pod.uid: pod for pod in archived}
    there = {pod["metadata"]["uid"] for pod in snapshot.pods}
    row = row_of(snapshot.job)
    if row["state"] in FINISHED and snapshot.pods_known:
        running = sum(status_of(pod).get("phase") == "Running" for pod in snapshot.pods)
        row["replicas"] = {**row["replicas"], "active": running}
    if row["state"] == ConditionType.FAILED:
        row["message"] = _failure_message(row["message"], snapshot, diagnosis.causes)
    return {
        **row,
        "now": snapshot.now,
        "why": why.document(report),
        "conditions": status_of(snapshot.job).get("conditions") or (),
        "pods": [
            {**_pod(pod), "runs": _runs(logs.get(pod["metadata"]["uid"]))} for pod in snapshot.pods[:MAX_PODS]
        ],
        "deletedPods": [
            {**_deleted_pod(pod), "runs": _runs(pod)} for pod in archived if pod.uid not in there
        ],
        "events": [_event(event) for event in snapshot.newest_events[:MAX_EVENTS]],
    }


def _failure_message(message: str, snapshot: JobSnapshot, causes: Sequence[Cause]) -> str:
    """Return the message of a failed job with the pod that failed first, and what that logged last. The message of a limit names its own."""
    first = next((cause for cause in causes if cause.blocks and cause.about), None)
    reported = condition(snapshot.job, ConditionType.FAILED).get("message")
    if first and not was_exceeded(name_of(snapshot.job), reported):
        message = f"{message.rstrip('.')}; {first_of(first.about, why.SHOWN_NAMES)}: {first.text}"
    names = first.about if first else ()
    said = [
        lines.lines[-1] for (pod, _), lines in snapshot.last_lines.items() if pod in names and lines.lines
    ]
    quotes = (cause.quote for cause in causes[:2] if cause.blocks)
    quote = next(filter(None, (*quotes, *said, *map(snapshot.last_line_of_deleted_pod, names))), "")
    return message if not quote or message.endswith(quote) else f"{message}: {quote}"


async def follow_job(cluster: Cluster, jobs: JobList, key: Key) -> AsyncGenerator[Document]:
    """Yield the document of a job whenever it has changed. Return when the job no longer exists."""
    loop, last = asyncio.get_running_loop(), b""
    async with jobs.event_watches.open(key[1]):
        while True:
            began, before = loop.time(), jobs.row(key)
            try:
                found = await read_job(cluster, jobs, key)
            except NotFound:
                return
            pause = max(SHORTEST_PAUSE_SECONDS, PAUSE_FACTOR * (loop.time() - began))
            content = orjson.dumps({**found, "now": None})
            if content != last:
                last = content
                yield found
            await asyncio.sleep(pause)
            await jobs.wait_for_change(key, before, PAUSE_SECONDS - pause)


def _pod(pod: Object) -> Document:
    metadata, labels = pod["metadata"], pod["metadata"].get("labels") or {}
    statuses = container_statuses(pod)
    return {
        "name": name_of(pod),
        "uid": metadata["uid"],
        "role": labels.get(REPLICA_TYPE, ""),
        "index": labels.get(REPLICA_INDEX, ""),
        "state": pod_status(dict(pod)),
        "ready": bool(statuses) and all(status.get("ready") for status in statuses),
        "restarts": sum(status.get("restartCount") or 0 for status in statuses),
        "node": spec_of(pod).get("nodeName") or "",
        "created": parse_timestamp(metadata.get("creationTimestamp")),
        "containers": container_names(pod),
        "ended": [
            status["name"]
            for status in all_container_statuses(pod)
            if (status.get("state") or {}).get("terminated")
        ],
        "ports": list(_ports(pod)),
    }


def _deleted_pod(pod: ArchivedPod) -> Document:
    names = container_names(pod.manifest)
    return {
        "name": pod.name,
        "uid": pod.uid,
        "created": parse_timestamp(pod.created),
        "containers": names,
        "started": any(pod.runs(name) for name in names),
    }


def _runs(pod: ArchivedPod | None) -> dict[str, int]:
    """Return how many runs of each container of the pod have a log, of those that have several."""
    counts = {name: len(pod.runs(name)) for name in container_names(pod.manifest)} if pod else {}
    return {name: count for name, count in counts.items() if count > 1}


def container_names(pod: Object) -> list[str]:
    """Return the names of the containers, the default one first, init containers last."""
    spec, default = spec_of(pod), default_container(pod)
    names = [str(container["name"]) for container in spec.get("containers") or ()]
    names.sort(key=lambda name: name != default)
    return [*names, *(str(container["name"]) for container in spec.get("initContainers") or ())]


def _ports(pod: Object) -> Iterator[dict[str, Any]]:
    """Yield the ports that the manifest declares. On loopback a local pod's own address can be linked."""
    address = str(status_of(pod).get("podIP") or "")
    for container in spec_of(pod).get("containers") or ():
        for port in container.get("ports") or ():
            if str(port.get("name") or "").endswith(_OWN_PORT_SUFFIX) or port.get("protocol", "TCP") != "TCP":
                continue
            number = int(port["containerPort"])
            yield {
                "name": str(port.get("name") or ""),
                "port": number,
                "url": f"http://{address}:{number}/" if address.startswith("127.") else "",
            }


def _event(event: Object) -> Document:
    about = event["involvedObject"]
    return {
        "at": parse_timestamp(event_time(event)),
        "type": event.get("type") or "",
        "reason": event.get("reason") or "",
        "message": str(event.get("message") or "").strip(),
        "about": f"{about.get('kind', '')}/{about.get('name', '')}",
        "count": event.get("count") or 1,
    }
