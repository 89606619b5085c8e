"""Reads the Volcano queues of waiting PodGroups, so that the status of a job can say why its queue does not take the group.

Queues are not watched: a change of the group's phase triggers the reconcile that matters. A queue is read only while a group waits in
it, and once for all groups of it.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import aiohttp
import msgspec
import orjson
import structlog

from api import conditions
from api.children import PodGroup
from api.queues import VOLCANO_QUEUES, queue_of
from controller.kube import errors
from controller.kube.bounded_dict import BoundedDict
from controller.kube.client import Client
from controller.kube.concurrency import PriorityLevel
from controller.kube.failure_log import FailureLog
from controller.policy.gang import is_unadmitted, report_due_in
from controller.reconcile.jobs import JobRow
from controller.reconcile.load import LoadedJob
from controller.runtime.store import Store

READ_AGAIN_SECONDS: Final = 25.0
"""Less than the time after which a waiting gang is reported, so that the report has a fresh queue."""
TIMEOUT_SECONDS: Final = 2.0
"""For a read: the explanation must not delay the job."""
REMEMBERED_QUEUES: Final = 1024

log = structlog.get_logger()


@dataclass(slots=True)
class _QueueRead:
    """The last read of a queue. ``lock`` is held during a read, so that jobs that wait in one queue share it."""

    at: float = -math.inf
    """Loop time at which it began."""
    queue: Mapping[str, Any] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_fresh(self) -> bool:
        return asyncio.get_running_loop().time() - self.at < READ_AGAIN_SECONDS


class GangQueues:
    """The queues of waiting groups, as last read. If they are lost, as at a restart, they are read again."""

    def __init__(self, client: Client, groups: Store[PodGroup] | None) -> None:
        """Without ``groups``, no queue is ever read."""
        self._client = client
        self._groups = groups
        self._reads: BoundedDict[str, _QueueRead] = BoundedDict(REMEMBERED_QUEUES)
        self._failures = FailureLog[str]()

    async def refresh(self, loaded: LoadedJob, now: datetime) -> bool:
        """Read the queue of the job's group if the group has waited long enough to be reported and the last read is old.

        A refusal or a failure leaves the queue unknown until the next read.

        Returns:
            Whether this took time. Caches may have changed meanwhile.
        """
        job, name = loaded.job, self._queue_of(loaded.row)
        if name is None or job.spec.policy.suspend or conditions.is_finished(job.status):
            return False
        last = self._reads.setdefault(name, _QueueRead())
        if (last.is_fresh and not last.lock.locked()) or report_due_in(job.kind, job.status, now) > 0:
            return False
        async with last.lock:
            if not last.is_fresh:
                last.at = asyncio.get_running_loop().time()
                last.queue = await self._read(name)
        return True

    def get(self, row: JobRow) -> Mapping[str, Any] | None:
        """Return the queue of the job's waiting group: empty if it does not exist, None if it is unknown."""
        name = self._queue_of(row)
        last = self._reads.get(name) if name else None
        return last.queue if last else None

    async def _read(self, name: str) -> Mapping[str, Any] | None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                answer = await self._client.get(VOLCANO_QUEUES, "", name, level=PriorityLevel.EVENT)
        except errors.NotFound as error:
            return {} if error.name == name else None  # a server without queues names no object
        except (errors.ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            text = errors.describe(error)
            if (fields := self._failures.record_fields(name, text, READ_AGAIN_SECONDS)) is not None:
                log.warning("queue of a waiting group not read", queue=name, error=text, **fields)
            return None
        queue: dict[str, Any] = orjson.loads(answer)
        return queue

    def _queue_of(self, row: JobRow) -> str | None:
        """Return the queue of the job's own group, None unless the group waits."""
        group = self._groups.get(row.namespace, row.name) if self._groups is not None else None
        if group is None or group.owner_uid != row.uid or not is_unadmitted(group):
            return None
        return queue_of(msgspec.json.decode(group.spec) or {})
