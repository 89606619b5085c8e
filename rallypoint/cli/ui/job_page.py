"""Everything that the page shows of one job."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson

from api.labels import REPLICA_INDEX, REPLICA_TYPE
from controller.kube.errors import NotFound
from rallypoint.cli import why
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.job_reader import JobReader
from rallypoint.cli.ui.job_list import Document, JobList, Key, row_of
from rallypoint.diagnosis import JobSnapshot, diagnose
from rallypoint.diagnosis.objects import (
    Object,
    all_container_statuses,
    container_statuses,
    event_time,
    is_being_deleted,
    name_of,
    parse_timestamp,
    spec_of,
    state_of,
    status_of,
)
from rallypoint.local.log_archive import DEFAULT_CONTAINER

SHORTEST_PAUSE_SECONDS = 2.0
PAUSE_FACTOR = 10
"""After a read the page waits this many times as long as the read took, so that a large job costs the API server a tenth of its time."""
MAX_EVENTS = 500
MAX_PODS = 2000
_OWN_PORT_SUFFIX = "job-port"
"""The port that the operator adds for the rendezvous, such as ``pytorchjob-port``."""


async def read_job(cluster: Cluster, jobs: JobList, key: Key) -> Document:
    """Return the document of a job.

    Raises:
        NotFound: it does not exist.
        ApiError: the server refused a read.
    """
    kind, namespace, name = key
    inside = replace(cluster, namespace=namespace)
    job = await inside.get(jobs.served[kind], name)
    reader = JobReader(inside)
    await reader.read_related([job], by_label=True)
    snapshot = await reader.snapshot(job)
    archive = cluster.archive
    archived = archive.pods_of_job(namespace, kind, name, job) if archive else []
    there = {pod["metadata"]["uid"] for pod in snapshot.pods}
    gone = [pod.manifest for pod in archived if pod.uid not in there]
    return document(snapshot, reader.forbidden, gone)


def document(snapshot: JobSnapshot, forbidden: Sequence[str], gone: Sequence[Object] = ()) -> Document:
    """Return the document of a job. ``gone`` are pods of it that no longer exist and have logs."""
    report = why.Report(snapshot, diagnose(snapshot), forbidden)
    return {
        **row_of(snapshot.job),
        "now": snapshot.now,
        "why": why.document(report),
        "conditions": status_of(snapshot.job).get("conditions") or (),
        "pods": [_pod(pod) for pod in snapshot.pods[:MAX_PODS]],
        "deletedPods": [_deleted_pod(pod) for pod in gone],
        "events": [_event(event) for event in snapshot.newest_events[:MAX_EVENTS]],
    }


async def follow_job(cluster: Cluster, jobs: JobList, key: Key) -> AsyncGenerator[Document]:
    """Yield the document of a job whenever it has changed. Return when the job no longer exists."""
    loop, last = asyncio.get_running_loop(), b""
    while True:
        began = loop.time()
        try:
            found = await read_job(cluster, jobs, key)
        except NotFound:
            return
        content = orjson.dumps({**found, "now": None})
        if content != last:
            last = content
            yield found
        pause = max(SHORTEST_PAUSE_SECONDS, PAUSE_FACTOR * (loop.time() - began))
        await jobs.wait_for_change(key, pause)


def _pod(pod: Object) -> Document:
    metadata, labels = pod["metadata"], pod["metadata"].get("labels") or {}
    statuses = container_statuses(pod)
    return {
        "name": name_of(pod),
        "uid": metadata["uid"],
        "role": labels.get(REPLICA_TYPE, ""),
        "index": labels.get(REPLICA_INDEX, ""),
        "state": _state(pod),
        "ready": bool(statuses) and all(status.get("ready") for status in statuses),
        "restarts": sum(status.get("restartCount") or 0 for status in statuses),
        "node": spec_of(pod).get("nodeName") or "",
        "created": parse_timestamp(metadata.get("creationTimestamp")),
        "containers": container_names(pod),
        "ports": list(_ports(pod)),
    }


def _deleted_pod(pod: Object) -> Document:
    metadata = pod["metadata"]
    return {
        "name": name_of(pod),
        "uid": metadata["uid"],
        "created": parse_timestamp(metadata.get("creationTimestamp")),
        "containers": container_names(pod),
    }


def container_names(pod: Object) -> list[str]:
    """Return the names of the containers, the default one first, init containers last."""
    spec = spec_of(pod)
    default = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER)
    names = [str(container["name"]) for container in spec.get("containers") or ()]
    names.sort(key=lambda name: name != default)
    return [*names, *(str(container["name"]) for container in spec.get("initContainers") or ())]


def _state(pod: Object) -> str:
    """Return what kubectl shows as STATUS, nearly: the phase, or why a container does not run."""
    if is_being_deleted(pod):
        return "Terminating"
    status = status_of(pod)
    phase = str(status.get("reason") or status.get("phase") or "Unknown")
    for container in all_container_statuses(pod):
        reason = state_of(container, "waiting").get("reason")
        ended = state_of(container, "terminated")
        if reason and reason not in {"PodInitializing", "ContainerCreating"}:
            return str(reason)
        if ended.get("exitCode"):
            return f"{ended.get('reason') or phase} (exit code {ended['exitCode']})"
    return phase


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
