"""Reads the Volcano queues of waiting PodGroups, so that the status of a job can say why its queue does not take the group.

Queues are not watched: a change of the group's phase triggers the reconcile that matters. A queue is read only while a group waits in
it, and once for all groups of it.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec
import orjson

from api.children import PodGroup
from api.queues import VOLCANO_QUEUES, queue_of
from controller.kube import errors
from controller.kube.client import Client
from controller.policy.gang import is_unadmitted, report_due_in
from controller.reconcile.jobs import JobRow
from controller.reconcile.load import LoadedJob
from controller.runtime.bounded_dict import BoundedDict
from controller.runtime.store import Store

READ_AGAIN_SECONDS: Final = 25.0
"""Less than the time after which a waiting gang is reported, so that the report has a fresh queue."""
REMEMBERED_QUEUES: Final = 1024


class _Answer(NamedTuple):
    at: float
    """Loop time."""
    queue: Mapping[str, Any] | None


class GangQueues:
    """The queues of waiting groups, as last read. If they are lost, as at a restart, they are read again."""

    def __init__(self, client: Client, groups: Store[PodGroup] | None) -> None:
        """Without ``groups``, no queue is ever read."""
        self._client = client
        self._groups = groups
        self._answers: BoundedDict[str, _Answer] = BoundedDict(REMEMBERED_QUEUES)
        self._lock = asyncio.Lock()
        """Held during a read, so that jobs that wait in one queue share it."""

    async def refresh(self, loaded: LoadedJob, now: datetime) -> bool:
        """Read the queue of the job's group if the group has waited long enough to be reported and the last answer is old.

        A refusal or a failure leaves the queue unknown until the next read: it must not delay the job.

        Returns:
            Whether this took time. Caches may have changed meanwhile.
        """
        name = self._queue_of(loaded.row)
        if name is None or report_due_in(loaded.job.status, now) > 0:
            return False
        if self._is_fresh(name):
            return False
        async with self._lock:
            if not self._is_fresh(name):
                queue = await self._read(name)
                self._answers[name] = _Answer(asyncio.get_running_loop().time(), queue)
        return True

    def get(self, row: JobRow) -> Mapping[str, Any] | None:
        """Return the queue of the job's waiting group: empty if it does not exist, None if it is unknown."""
        name = self._queue_of(row)
        answer = self._answers.get(name) if name else None
        return answer.queue if answer else None

    def _is_fresh(self, name: str) -> bool:
        last = self._answers.get(name)
        return last is not None and asyncio.get_running_loop().time() - last.at < READ_AGAIN_SECONDS

    async def _read(self, name: str) -> Mapping[str, Any] | None:
        try:
            queue: dict[str, Any] = orjson.loads(await self._client.get(VOLCANO_QUEUES, "", name))
        except errors.NotFound as error:
            # A server without queues, such as local mode's, names no object.
            return {} if f'"{name}" not found' in error.message else None
        except (errors.ApiError, aiohttp.ClientError, TimeoutError, OSError):
            return None
        return queue

    def _queue_of(self, row: JobRow) -> str | None:
        """Return the queue of the job's own group, None unless the group waits."""
        group = self._groups.get(row.namespace, row.name) if self._groups is not None else None
        if group is None or group.owner_uid != row.uid or not is_unadmitted(group):
            return None
        return queue_of(msgspec.json.decode(group.spec) or {})
