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
from controller.runtime import clock
from controller.runtime.store import Store

TRIES = 5
"""Attempts while somebody keeps writing labels or annotations; then the whole reconcile is retried."""
LEDGER_RETRY_SECONDS = 600.0
"""After this time, the field ``replacing`` is tried again: somebody may have applied a newer CRD."""

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
        self._ledger_dropped_at: float | None = None
        """When the server last dropped ``replacing``, as it does while the installed CRD lacks the field."""

    @property
    def keeps_ledger(self) -> bool:
        """Whether the server is believed to store ``replacing``."""
        at = self._ledger_dropped_at
        return at is None or clock.uptime() - at >= LEDGER_RETRY_SECONDS

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
        if _has_ledger(change):
            is_dropped = not _has_ledger(orjson.loads(stored.status))
            self._ledger_dropped_at = clock.uptime() if is_dropped else None
            if is_dropped:
                log.warning(
                    "CRD drops replicaStatuses.replacing, so restarts of replaced pods do not count towards backoffLimit",
                    resource=self._resource.plural,
                    hint="apply the CRD of this version",
                )
        self._jobs.put(stored)

    async def _same_again(self, row: JobRow) -> JobRow:
        """Return the job's newest version, if spec and status are still those that were planned for."""
        newest = job_from_json(await self._client.get(self._resource, row.namespace, row.name))
        self._jobs.put(newest)
        if (newest.uid, newest.generation, newest.status) != (row.uid, row.generation, row.status):
            raise Conflict(409, "Conflict", f"{self._resource.plural} {row.name!r} has been modified")
        return newest


def _has_ledger(status: dict[str, Any]) -> bool:
    """Return whether a status, or a change of one, has ``replacing`` for any role."""
    return any(
        replicas and replicas.get("replacing") for replicas in (status.get("replicaStatuses") or {}).values()
    )


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
