"""Writes a job's status: one patch, only where it differs, only on the very job that it was decided for.

Source: the JSON patch and its ``test`` follow the notes in docs/architecture.md, "One status write".
"""

from typing import Any

import orjson

from api.job import Job, JobStatus
from api.meta import Resource
from controller.kube.client import JSON_PATCH, Client
from controller.reconcile.jobs import JobRow, job_from_json
from controller.runtime.store import Store


class StatusWriter:
    """Writes the status of all jobs of one kind."""

    def __init__(self, client: Client, resource: Resource, jobs: Store[JobRow]) -> None:
        self._client = client
        self._resource = resource
        self._jobs = jobs

    async def write(self, job: Job, status: JobStatus | None) -> bool:
        """Whether anything had to be written.

        Raises:
            Invalid: another job of that name is there by now.
            NotFound: the job is gone.
        """
        if status is None or not differs(job, status):
            return False
        patch: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": job.metadata.uid},
            {"op": "add", "path": "/status", "value": status.to_wire()},
        ]
        answer = await self._client.patch(
            self._resource,
            job.metadata.namespace,
            job.metadata.name,
            orjson.dumps(patch),
            content_type=JSON_PATCH,
            subresource="status",
        )
        self._jobs.put(job_from_json(answer))
        return True


def differs(job: Job, status: JobStatus) -> bool:
    """Whether the status on the wire would change."""
    return status.to_wire() != (job.status.to_wire() if job.status else {})
