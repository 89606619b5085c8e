"""Executes the part of a plan that concerns children. Only this package writes children.

Each answer goes into the store at once. Names are determined by the job, so the server refuses a repeated create, which is harmless.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import aiohttp
import msgspec

from api.children import Owned
from api.labels import JOB_NAME
from api.meta import PODS, SERVICES, Resource
from controller.domain import Child, Deletion, WriteMode
from controller.kube import errors
from controller.kube.client import Client
from controller.kube.namespaces import RETRY_SECONDS
from controller.reconcile.events import EventRecorder
from controller.reconcile.parent import Parent
from controller.reconcile.triggers import is_same
from controller.reconcile.uncached import UncachedChildren
from controller.reconcile.writes import Occupied, Refused, Remains, Writer, controller_of
from controller.runtime.backoff import LONGEST_SECONDS
from controller.runtime.recorder import Subject
from controller.runtime.store import Change, Store
from controller.settings import IN_FLIGHT

MOST_PER_RECONCILE = 1000
"""Creates per reconcile, which is 500 pods with their Services. A larger job takes several reconciles, so that other jobs get their turn.

Source: kube-controller-manager, MaxPodCreateDeletePerSync.
"""
TIME_BUDGET_SECONDS = 0.5
"""A reconcile starts no more creates after this time. The next reconcile observes the first pods and continues."""


def by_label(job: str) -> Mapping[str, str]:
    return {"labelSelector": f"{JOB_NAME}={job}"}


@dataclass(frozen=True, slots=True)
class Cache:
    """A watched resource: its store, and how to decode its rows."""

    store: Store[Any]
    decode: Callable[[bytes], Any]
    selector: Callable[[str], Mapping[str, str]] = by_label
    """Returns the parameters of a list of the named job's objects, with few others."""
    label: str = ""
    """The label that an object needs to be reported by the watch; empty if the watch reports all objects."""

    def adopt(self, answer: bytes) -> Change[Owned] | None:
        """Store an object that was read by name, and return the change.

        The watch does not report an object whose label somebody removed, or whose events were lost. The store marks such a row, and the
        relister reads it periodically.
        """
        row: Owned = self.decode(answer)
        is_selected = not self.label or self.label in (_decode_labels(answer).metadata.labels or {})
        change = self.store.put(row) if is_selected else None
        if self.store.get(row.namespace, row.name) is None:
            change = self.store.put_unselected(row)
        return change


class _Labels(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labeled(msgspec.Struct):
    metadata: _Labels


_decode_labels = msgspec.json.Decoder(_Labeled).decode


_OWN = frozenset({WriteMode.CREATE, WriteMode.APPLY, WriteMode.CHECK_NAME})
"""Write modes of children that cannot use an existing object of another owner."""


class Applier:
    """Writes the children of all jobs of one kind."""

    def __init__(
        self,
        client: Client,
        caches: Mapping[Resource, Cache],
        events: EventRecorder,
        *,
        width: int = IN_FLIGHT,
    ) -> None:
        self._caches = caches
        self._events = events
        self._writer = Writer(client, events)
        self._uncached = UncachedChildren(self._writer, caches)
        self._width = width
        self._slow_start: set[str] = set()
        """Namespaces where the last create was refused. There a single create goes first."""

    async def apply(
        self,
        parent: Parent,
        create: Sequence[Child],
        delete: Sequence[Deletion],
        *,
        is_partial: bool = False,
    ) -> float | None:
        """Delete, then create. Return the seconds until the rest is due, None if everything is done; 0 if others have changed children.

        ``is_partial`` says that more children are missing than those to create.

        After a failure, writes pause for an increasing time, unless the job's spec changes; reconciles continue. Children whose
        names are taken according to the store are not tried: the objects that have these names are watched, and all other children are created.
        In a terminating namespace, children are deleted and none is created.

        Source of that: kube-controller-manager, which ignores errors with HasStatusCause(err, NamespaceTerminatingCause).

        Raises:
            Refused: the API server does not accept a child.
            ApiError, aiohttp.ClientError, TimeoutError: another write failed; all others were tried.
        """
        memory = parent.memory
        memory.is_child_outdated = False
        create = [child for child in create if not self._uncached.is_up_to_date(parent, child)]
        wait = memory.write_backoff.remaining_seconds(parent.generation)
        if wait and (create or delete):
            return wait
        try:
            done = await self._all(parent, create, delete)
        except Remains as remains:
            if remains.is_watched:
                memory.write_backoff.reset()
                return 0 if is_partial else LONGEST_SECONDS
            memory.write_backoff.record_failure(parent.generation)
            return memory.write_backoff.remaining_seconds(parent.generation) or 0
        except errors.NamespaceTerminating:
            return RETRY_SECONDS  # not a failure of the job: the namespace controller deletes the job and its children
        except Exception:
            memory.write_backoff.record_failure(parent.generation)
            self._events.record_summaries(memory.events)
            raise
        memory.write_backoff.reset()
        if not done or is_partial:
            return 0
        self._events.record_summaries(memory.events)
        return 0 if memory.is_child_outdated else None

    async def find(self, parent: Parent, missing: Sequence[Child]) -> bool:
        """Read pods that the store lacks by name, and return whether any of them exists and belongs to the job.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: a read failed.
        """
        parent.memory.is_child_outdated = False

        async def find(child: Child) -> None:
            with contextlib.suppress(errors.NotFound):
                answer = await self._writer.get(parent, child)
                if controller_of(answer).get("uid") == parent.subject.uid:
                    self._adopt(parent, child, answer)

        await self._many([child for child in missing if child.resource == PODS], find)
        return parent.memory.is_child_outdated

    def restores(self, parent: Parent, children: Sequence[Child]) -> bool:
        """Return whether any of these children was created, and has been deleted or changed by somebody else."""
        return self._uncached.restores(parent, children)

    def next_check_in(self, parent: Parent, children: Sequence[Child]) -> float:
        """Return the seconds until one of these children must be checked even without a watch event; infinite if none must."""
        return self._uncached.next_check_in(parent, children)

    async def _all(self, parent: Parent, create: Sequence[Child], delete: Sequence[Deletion]) -> bool:
        """Return whether everything was done; False if the rest exceeds the limits of one reconcile."""
        await self._many(delete, lambda deletion: self._delete(parent, deletion))
        for wave in sorted({child.first for child in create if child.first}):
            going = [child for child in create if child.first == wave]
            await self._many(going, lambda child: self._put_first(parent, child))
        # Children of the job as a whole go first: if the server refuses one, the job ends before there is a pod. Other errors,
        # such as a name conflict of the autoscaler, do not prevent the creation of pods.
        rest = [child for child in create if not child.first]
        each = [child for child in rest if self._is_each(child)]
        whole = [child for child in rest if not self._is_each(child)]
        free = [child for child in each if not self._holder(parent, child)]
        parent.memory.has_taken_names = len(free) < len(each)
        fitting = free[:MOST_PER_RECONCILE]
        failures = list[Exception]()
        begun_all = False
        try:
            await self._many(whole, lambda child: self._put(parent, child))
        except (errors.ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            failures.append(error)
        try:
            begun_all = await self._create_each(parent, fitting) and len(fitting) == len(free)
        except (errors.ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            failures.insert(0, error)
        if begun_all and len(free) < len(each):
            failures += self._conflicts(parent, each)
            begun_all = False  # a name may be free by now, which no watch event shows
        if failures:
            raise _gravest(failures)
        return begun_all

    def _holder(self, parent: Parent, child: Child) -> Owned | None:
        """Return the object that has the child's name without belonging to the job, according to the store."""
        cache = self._caches.get(child.resource)
        row: Owned | None = cache.store.get(parent.subject.namespace, child.name) if cache else None
        return row if row and row.owner_uid != parent.subject.uid else None

    def _conflicts(self, parent: Parent, children: Iterable[Child]) -> list[Occupied]:
        """Return the conflicts of children whose names are taken, as many as one round of requests would find."""
        found = ((child, row) for child in children if (row := self._holder(parent, child)))
        return [self._writer.conflict_with(parent, child, row) for child, row in islice(found, self._width)]

    def _is_each(self, child: Child) -> bool:
        """Return whether a child belongs to one replica, such as a pod, and not to the job as a whole."""
        return child.write_mode is WriteMode.CREATE and child.resource in self._caches

    async def revoke(self, parent: Parent) -> None:
        """Remove the rules that the Roles of a deleted job grant."""
        await self._uncached.revoke(parent)

    async def _create_each(self, parent: Parent, children: Sequence[Child]) -> bool:
        """Return whether all creates were started before the time budget ended."""
        namespace = parent.subject.namespace

        async def create(child: Child) -> None:
            if await self._create_watched(parent, child):
                self._events.record_created(parent, child.resource, child.name)
                self._slow_start.discard(namespace)

        until = asyncio.get_running_loop().time() + TIME_BUDGET_SECONDS
        probes = 1 if namespace in self._slow_start else 0
        try:
            await self._many(children[:probes], create)
            return await self._many(children[probes:], create, until)
        except (errors.Forbidden, errors.Invalid, Refused):
            self._slow_start.add(namespace)
            raise

    async def _many(
        self, items: Sequence[Any], work: Callable[[Any], Any], until: float = float("inf")
    ) -> bool:
        """Process all items in order, a limited number at once. Return whether all were started before the loop time ``until``.

        The first error stops it. When the running calls are finished, it raises the most serious error: one that ends the job, then all that
        somebody must resolve, then the first.
        """
        if not items:
            return True
        waiting, failures = deque(items), list[Exception]()
        time = asyncio.get_running_loop().time

        async def run_worker() -> None:
            while waiting and not failures and time() < until:
                item = waiting.popleft()
                try:
                    await work(item)
                except Exception as error:  # noqa: BLE001 - raised below, when the other calls are done
                    failures.append(error)

        await asyncio.gather(*(run_worker() for _ in range(min(self._width, len(items)))))
        if failures:
            raise _gravest(failures)
        return not waiting

    async def _put_first(self, parent: Parent, child: Child) -> None:
        """Create or update a child that others need. A scheduler's webhook may accept later what it refuses now, such as a closed queue."""
        try:
            await self._put(parent, child)
        except Refused as refused:
            raise refused.error from refused

    async def _put(self, parent: Parent, child: Child) -> None:
        if child.write_mode in _OWN and (row := self._holder(parent, child)):
            raise self._writer.conflict_with(parent, child, row)
        if child.write_mode is WriteMode.PATCH:
            await self._change(parent, child)
        elif child.write_mode is WriteMode.CHECK_NAME:
            await self._check_name(parent, child)
        elif child.write_mode is WriteMode.CREATE and child.resource in self._caches:
            if await self._create_watched(parent, child) and child.resource == SERVICES:
                self._events.record_created(parent, child.resource, child.name)
        else:
            await self._uncached.ensure(parent, child)

    async def _check_name(self, parent: Parent, child: Child) -> None:
        """Detect conflicts about the name of a later child before anything is created. Usually the cache shows them."""
        cache, namespace = self._caches.get(child.resource), parent.subject.namespace
        if cache and not cache.label and cache.store.get(namespace, child.name) is None:
            return
        with contextlib.suppress(errors.NotFound):
            self._writer.check_owner(parent, child, await self._writer.get(parent, child))

    async def _change(self, parent: Parent, child: Child) -> None:
        """Patch a watched child. If it was deleted, its watch will report that."""
        with contextlib.suppress(errors.NotFound):
            self._take_in(parent, child, await self._writer.patch(parent, child, child.body()))

    async def _create_watched(self, parent: Parent, child: Child) -> bool:
        """Return whether the child was created now; False if the job had it already."""
        try:
            answer = await self._writer.create(parent, child)
        except errors.AlreadyExists as error:
            # If a create took effect but its response was lost, the existing object belongs to the job. Any other object stays unchanged.
            answer = await self._writer.get(parent, child)
            self._writer.check_owner(parent, child, answer, error)
            self._adopt(parent, child, answer)
            return False
        self._remember(child, answer)
        return True

    async def _delete(self, parent: Parent, deletion: Deletion) -> None:
        if not deletion.uid:
            await self._uncached.delete(parent, deletion)
            return
        if await self._writer.delete(parent, deletion, deletion.uid):
            self._events.record_deleted(parent, deletion.resource, deletion.name)
        self._mark_deleting(parent.subject, deletion)

    def _mark_deleting(self, job: Subject, deletion: Deletion) -> None:
        """Mark a child as being deleted until the watch reports it, so that nothing of its name is created and it is not deleted again."""
        cache = self._caches.get(deletion.resource)
        row: Owned | None = cache.store.get(job.namespace, deletion.name) if cache else None
        if cache and row is not None and row.uid == deletion.uid:
            cache.store.amend(msgspec.structs.replace(row, deleting=True))

    def _adopt(self, parent: Parent, child: Child, answer: bytes) -> None:
        """Store a child that the store lacked although the job had created it; the job then needs another reconcile."""
        if self._caches[child.resource].adopt(answer):
            parent.memory.is_child_outdated = True

    def _take_in(self, parent: Parent, child: Child, answer: bytes) -> None:
        """Store a child that others may have changed meanwhile; the job then needs another reconcile."""
        change = self._remember(child, answer)
        if change and not is_same(*change):
            parent.memory.is_child_outdated = True

    def _remember(self, child: Child, answer: bytes) -> Change[Owned] | None:
        """Store an answer, and return the change of the store."""
        cache = self._caches.get(child.resource)
        try:
            return cache.store.put(cache.decode(answer)) if cache is not None else None
        except (msgspec.DecodeError, ValueError) as error:
            text = f'{child.resource.plural} "{child.name}" cannot be read: {error}'
            raise Occupied(child, text, is_foreign=False) from error


def _gravest(failures: Sequence[Exception]) -> Exception:
    if refused := next((failure for failure in failures if isinstance(failure, Refused)), None):
        return refused
    occupied = [
        failure for failure in failures if isinstance(failure, Occupied) and not isinstance(failure, Remains)
    ]
    if occupied:
        occupied[0].beside = tuple(
            other for failure in occupied for other in (failure, *failure.beside) if other is not occupied[0]
        )
        return occupied[0]
    # Conflicts that end by themselves come last, and among them those whose end the watch reports.
    return min(
        failures,
        key=lambda failure: (
            isinstance(failure, Remains) + (isinstance(failure, Remains) and failure.is_watched)
        ),
    )
