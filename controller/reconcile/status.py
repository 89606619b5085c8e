"""Writes a job's status: one merge patch, only if it differs, and only over the version that was planned for.

The patch contains the resourceVersion, so it changes nothing if the job was modified or replaced by another one of that name. See
docs/decisions/0010-status-writes.md for the reason against a JSON patch.
"""

from typing import Any, NamedTuple

import orjson
import structlog

from api.job import Job, JobStatus
from api.meta import Resource
from controller.kube.client import MERGE_PATCH, Client
from controller.kube.concurrency import PriorityLevel
from controller.kube.errors import Conflict
from controller.reconcile.jobs import JobRow, job_from_json
from controller.runtime.store import Store

TRIES = 5
"""Attempts while somebody keeps writing labels or annotations; then the whole reconcile is retried."""


log = structlog.get_logger()


class StatusChange(NamedTuple):
    """Two different serialized statuses of a job."""

    stored: dict[str, Any]
    wanted: dict[str, Any]


def status_change(job: Job, status: JobStatus | None) -> StatusChange | None:
    """Return the change from the job's status to this one; None if the status is None or the serialized status would not change."""
    if status is None:
        return None
    change = StatusChange((job.status or JobStatus()).to_wire(), status.to_wire())
    return change if change.stored != change.wanted else None


class StatusWriter:
    """Writes the status of all jobs of one kind."""

    def __init__(self, client: Client, resource: Resource, jobs: Store[JobRow]) -> None:
        self._client = client
        self._resource = resource
        self._jobs = jobs
        self.keeps_ledger = True
        """Whether the server stores ``replacing``; it drops fields that the installed CRD lacks."""

    async def write(self, row: JobRow, change: StatusChange) -> None:
        """Write the wanted status over the stored one.

        Raises:
            Conflict: the job's spec or status has changed, or another job has that name by now.
            NotFound: the job was deleted.
        """
        patch = merge_patch(change.stored, change.wanted)
        for _ in range(TRIES - 1):
            try:
                await self._patch(row, patch)
            except Conflict:
                row = await self._same_again(row)
            else:
                return
        await self._patch(row, patch)

    async def _patch(self, row: JobRow, change: dict[str, Any]) -> None:
        body = {"metadata": {"resourceVersion": str(row.resource_version)}, "status": change}
        answer = await self._client.patch(
            self._resource,
            row.namespace,
            row.name,
            orjson.dumps(body),
            content_type=MERGE_PATCH,
            subresource="status",
            level=PriorityLevel.STATUS,
        )
        stored = job_from_json(answer)
        sent = (change.get("replicaStatuses") or {}).values()
        if (
            any(replicas and replicas.get("replacing") for replicas in sent)
            and b'"replacing"' not in stored.status
        ):
            self.keeps_ledger = False
            log.warning("restarts of replaced pods are not counted", reason="apply the CRD of this version")
        self._jobs.put(stored)

    async def _same_again(self, row: JobRow) -> JobRow:
        """Return the job's newest version, if spec and status are still those that were planned for."""
        newest = job_from_json(await self._client.get(self._resource, row.namespace, row.name))
        self._jobs.put(newest)
        if (newest.uid, newest.generation, newest.status) != (row.uid, row.generation, row.status):
            raise Conflict(409, "Conflict", f"{self._resource.plural} {row.name!r} has been modified")
        return newest


def merge_patch(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7386) from ``before`` to ``after``; lists are replaced as a whole."""
    change: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := merge_patch(old, value):
                change[key] = inner
        elif key not in before or old != value:
            change[key] = value
    return change
