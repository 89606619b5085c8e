"""Loads a job for a reconcile: from the cache, after reading from the server what the caches may lack."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog
from structlog.contextvars import bind_contextvars

from api.job import Job
from api.meta import Resource
from controller.domain import Key, Problem
from controller.kind import JobKind
from controller.kind.idle import is_blocked
from controller.kube import errors
from controller.kube.client import Client
from controller.reconcile.apply import Applier, Cache
from controller.reconcile.jobs import JobParser, JobRow, job_from_json
from controller.reconcile.memory import JobMemories, JobMemory
from controller.reconcile.observe import Sources
from controller.reconcile.parent import Parent, Pods
from controller.reconcile.suspensions import suspended
from controller.runtime.listwatch import list_items
from controller.runtime.recorder import Subject
from controller.runtime.store import Store

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """A job as one reconcile reads it."""

    kind: JobKind[Any]
    """The variant of the kind whose behavior the job gets."""
    row: JobRow
    job: Job
    malformed: tuple[Problem, ...]
    """Fields that could not be parsed; ``job`` lacks them."""
    memory: JobMemory
    is_first: bool
    """Whether this process reconciles the job for the first time."""

    def as_planned(self) -> Job:
        """The job with the status that waits to be written, if there is one. Planning treats it as already written."""
        pending = self.memory.status.pending(self.row.status)
        return self.job if pending is None else self.job.model_copy(update={"status": pending})

    def parent(self, pods: Pods = Pods.NONE) -> Parent:
        """The job as children and events refer to it."""
        key = Key(self.row.namespace, self.row.name)
        subject = _subject(self.kind, key, self.row.uid)
        return Parent(subject, self.memory, self.row.generation, self.kind.event_messages, pods)


class Loader:
    """Loads the jobs of one kind."""

    def __init__(
        self,
        kind: JobKind[Any],
        client: Client,
        jobs: Store[JobRow],
        caches: Mapping[Resource, Cache],
        sources: Sources,
        applier: Applier,
        memories: JobMemories,
        is_held: Callable[[JobRow], bool] = lambda row: False,
    ) -> None:
        """``is_held`` returns whether a job must be treated as suspended although its spec does not suspend it."""
        self._is_held = is_held
        self._kind = kind
        self._parser = JobParser(kind.model, kind.resource.kind)
        self._client = client
        self._jobs = jobs
        self._caches = caches
        self._sources = sources
        self._applier = applier
        self._memories = memories

    async def load(self, key: Key) -> LoadedJob | None:
        """Return the job, None if it is deleted or being deleted.

        There is no ``await`` between the read of the job and the return, so children that the caller reads next are from the same moment.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: the caches may lack objects, and a read from the server failed.
        """
        row, memory = self._jobs.get(key.namespace, key.name), self._memories.current(key)
        bind_contextvars(
            controller=self._kind.controller_name,
            kind=self._kind.resource.kind,
            namespace=key.namespace,
            name=key.name,
            uid=row.uid if row else memory.uid if memory else "",
        )
        # Before the children are read: a child that arrives in between would be missing from the snapshot and be created twice.
        if row is not None and memory is not None and memory.uid == row.uid and memory.has_unknown_write:
            await self._list_children(row)
            memory.has_unknown_write = False
            row = self._jobs.get(key.namespace, key.name)
        if await self._revoke_rights(key, row, memory):
            row = self._jobs.get(key.namespace, key.name)
        is_gone = memory is not None and (row is None or row.deleting or row.uid != memory.uid)
        if memory is not None and is_gone and memory.is_managed:
            log.info("job deleted", uid=memory.uid)
        if memory is not None and is_gone:
            self._parser.discard(memory.uid)
        if row is None or row.deleting:
            self._memories.discard(key)
            return None
        return self._begin(key, row)

    async def read(self, row: JobRow) -> JobRow | None:
        """Read the job from the server into the store, even if its watch lags; None if it is deleted.

        Raises:
            Conflict: the server was restored to a state before the watch's position, and the watch has not noticed yet.
        """
        try:
            newest = job_from_json(await self._client.get(self._kind.resource, row.namespace, row.name))
        except errors.NotFound:
            self._jobs.remove(row)
            return None
        if newest.resource_version < row.resource_version:
            text = f"the resourceVersion of {self._kind.resource.plural} {row.name!r} went back on the server"
            raise errors.Conflict(409, "Conflict", text)
        self._jobs.put(newest)
        return newest

    def reload(self, loaded: LoadedJob) -> LoadedJob | None:
        """Return the same job in its newest cached version, None if it is deleted or being deleted."""
        row = self._jobs.get(loaded.row.namespace, loaded.row.name)
        if row is None or row.deleting or row.uid != loaded.row.uid:
            return None
        return self._parse(row, loaded.memory, is_first=loaded.is_first)

    def _begin(self, key: Key, row: JobRow) -> LoadedJob:
        memory = self._memories.begin(key, row.uid)
        loaded = self._parse(row, memory, is_first=not memory.is_reconciled)
        if loaded.is_first:
            memory.is_blocked = is_blocked(loaded.job.kind, loaded.job.status)
            memory.is_reconciled = True
        return loaded

    def _parse(self, row: JobRow, memory: JobMemory, *, is_first: bool) -> LoadedJob:
        job, malformed = self._parser.parse(row)
        if self._is_held(row):
            job = suspended(job)
        kind = self._kind.variant(job, self._sources.of(row.uid, row.namespace))
        return LoadedJob(kind, row, job, malformed, memory, is_first)

    async def _list_children(self, row: JobRow) -> None:
        """Read the job's children from the server into the caches."""
        for resource, cache in self._caches.items():
            answer = await self._client.list(resource, row.namespace, params=cache.selector(row.name))
            for raw in list_items(answer):
                try:
                    cache.store.put(cache.decode(raw))
                except (msgspec.DecodeError, ValueError) as error:
                    log.error("object cannot be decoded", resource=resource.plural, error=str(error))

    async def _revoke_rights(self, key: Key, row: JobRow | None, memory: JobMemory | None) -> bool:
        """Remove the rules of the Roles of a deleted job, and return whether this process has known such a job.

        Permissions must not outlive their job, whether or not the garbage collector will delete the Role. A process that has known the
        job empties its Role by UID. Another process can do that while the Role still names its owner.
        """
        is_gone = memory is not None and (row is None or row.uid != memory.uid or row.leaves_children)
        try:
            if memory is not None and is_gone:
                subject = _subject(self._kind, key, memory.uid)
                await self._applier.revoke(Parent(subject, memory, generation=0))
            elif row is not None and row.leaves_children:
                loaded = self._parse(row, JobMemory(row.uid), is_first=True)
                await self._applier.apply(loaded.parent(), tuple(loaded.kind.while_idle(loaded.job)), ())
        except errors.Forbidden as error:
            log.warning("rules of a deleted job's Role cannot be removed", error=error.message)
        return is_gone


def _subject(kind: JobKind[Any], key: Key, uid: str) -> Subject:
    """Return the job as events refer to it."""
    resource, source = kind.resource, kind.event_messages.source or kind.controller_name
    return Subject(resource.api_version, resource.kind, key.namespace, key.name, uid, source)
