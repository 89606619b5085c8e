"""Carries out what a plan says about children. The only writer of children.

Each answer goes into the store at once. Names are fixed by the job, so doing a thing twice is refused by the server and harmless.
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
from api.meta import PODS, Resource
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

MOST_PER_RECONCILE = 1000
"""Creates of one pass, which is 500 pods with their Services; a larger job takes several passes, so that others get their turn.

Source: kube-controller-manager, MaxPodCreateDeletePerSync.
"""
TIME_BUDGET_SECONDS = 0.5
"""For so long a pass begins new creates; the next pass sees what has become of the first pods meanwhile, and goes on."""


def by_label(job: str) -> Mapping[str, str]:
    return {"labelSelector": f"{JOB_NAME}={job}"}


@dataclass(frozen=True, slots=True)
class Cache:
    """A resource whose objects are watched: its store, and how its rows are read."""

    store: Store[Any]
    decode: Callable[[bytes], Any]
    selector: Callable[[str], Mapping[str, str]] = by_label
    """The parameters of a list of those of the job of that name, and few others."""
    label: str = ""
    """The label that an object needs for the watch to report it; empty where it reports all."""

    def adopt(self, answer: bytes) -> Change[Owned] | None:
        """Take an object that was read by its name; what that has changed.

        The watch does not report one whose label somebody has removed, nor one whose events it has lost. The store keeps such a row apart,
        and it is read again from time to time.
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
"""Of children that need their names for themselves."""


class Applier:
    """Writes the children of all jobs of one kind."""

    def __init__(
        self,
        client: Client,
        caches: Mapping[Resource, Cache],
        events: EventRecorder,
        *,
        width: int = 32,
    ) -> None:
        self._caches = caches
        self._events = events
        self._writer = Writer(client, events)
        self._uncached = UncachedChildren(self._writer, caches)
        self._width = width
        self._slow_start: set[str] = set()
        """Namespaces where the last create was refused: there one is tried before many are."""

    async def apply(
        self, parent: Parent, create: Sequence[Child], delete: Sequence[Deletion]
    ) -> float | None:
        """Delete, then create. The seconds after which the rest is due, None if everything was done; 0 if others have changed children.

        After a failure nothing is tried for a while, ever longer, unless the job's spec changes; passes go on meanwhile. A name that
        the store shows as taken is not tried at all: what has it is watched, and all other children are created. In a namespace that is
        being terminated, children are deleted and none is created.

        Source of that: kube-controller-manager, which takes HasStatusCause(err, NamespaceTerminatingCause) for no error.

        Raises:
            Refused: the API server does not take a child.
            ApiError, aiohttp.ClientError, TimeoutError: something else went wrong; what was possible has been done.
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
                return LONGEST_SECONDS
            memory.write_backoff.record_failure(parent.generation)
            return memory.write_backoff.remaining_seconds(parent.generation) or 0
        except errors.NamespaceTerminating:
            return RETRY_SECONDS  # no failure of the job: the namespace takes it away with all that it has
        except Exception:
            memory.write_backoff.record_failure(parent.generation)
            self._events.record_summaries(memory.events)
            raise
        memory.write_backoff.reset()
        if not done:
            return 0
        self._events.record_summaries(memory.events)
        return 0 if memory.is_child_outdated else None

    async def find(self, parent: Parent, missing: Sequence[Child]) -> bool:
        """Read pods by their names that the store does not have; whether any of them is there and the job's own.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: it is unknown.
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
        """Whether any of those children was made, and is gone by now or was changed by somebody."""
        return self._uncached.restores(parent, children)

    def next_check_in(self, parent: Parent, children: Sequence[Child]) -> float:
        """Seconds until one of those children has to be looked at though nothing has been heard of it; infinite if none has."""
        return self._uncached.next_check_in(parent, children)

    async def _all(self, parent: Parent, create: Sequence[Child], delete: Sequence[Deletion]) -> bool:
        """Whether everything was done, or there is more than one pass may do."""
        await self._many(delete, lambda deletion: self._delete(parent, deletion))
        for wave in sorted({child.first for child in create if child.first}):
            going = [child for child in create if child.first == wave]
            await self._many(going, lambda child: self._put_first(parent, child))
        # What belongs to the job as a whole goes first: refused, it ends the job before there is a pod. Anything else that is wrong
        # with it, such as somebody else's autoscaler of that name, does not keep the pods from being made.
        rest = [child for child in create if not child.first]
        each = [child for child in rest if self._is_each(child)]
        whole = [child for child in rest if not self._is_each(child)]
        free = [child for child in each if not self._holder(parent, child)]
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
            begun_all = False  # a name may have become free meanwhile, and nobody else reports that
        if failures:
            raise _gravest(failures)
        return begun_all

    def _holder(self, parent: Parent, child: Child) -> Owned | None:
        """The object that has the child's name and is not the job's own, as far as the store knows."""
        cache = self._caches.get(child.resource)
        row: Owned | None = cache.store.get(parent.subject.namespace, child.name) if cache else None
        return row if row and row.owner_uid != parent.subject.uid else None

    def _conflicts(self, parent: Parent, children: Iterable[Child]) -> list[Occupied]:
        """Conflicts of children whose names are taken, as many as one round of requests would find."""
        found = ((child, row) for child in children if (row := self._holder(parent, child)))
        return [self._writer.conflict_with(parent, child, row) for child, row in islice(found, self._width)]

    def _is_each(self, child: Child) -> bool:
        """Whether a child is one of many, such as a pod, and not the job's as a whole."""
        return child.write_mode is WriteMode.CREATE and child.resource in self._caches

    async def revoke(self, parent: Parent) -> None:
        """Take away the rights that children of a job give that is gone or going."""
        await self._uncached.revoke(parent)

    async def _create_each(self, parent: Parent, children: Sequence[Child]) -> bool:
        """Whether all were begun before the slice of time was over."""
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
        """Work on all items, so many at once, in order; whether all were begun before the loop time ``until``.

        The first error ends it. Once what was begun is over, the gravest is raised: what ends the job, then all that somebody has to do
        away with, then what was first.
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
                except Exception as error:  # noqa: BLE001 - raised below, once the other lanes are done
                    failures.append(error)

        await asyncio.gather(*(run_worker() for _ in range(min(self._width, len(items)))))
        if failures:
            raise _gravest(failures)
        return not waiting

    async def _put_first(self, parent: Parent, child: Child) -> None:
        """Make or change what the others need. What a scheduler's webhook refuses now, such as a closed queue, it may take later."""
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
            await self._create_watched(parent, child)
        else:
            await self._uncached.ensure(parent, child)

    async def _check_name(self, parent: Parent, child: Child) -> None:
        """Find out before anything is made that somebody else has a name that is needed later. Most often the cache knows."""
        cache, namespace = self._caches.get(child.resource), parent.subject.namespace
        if cache and not cache.label and cache.store.get(namespace, child.name) is None:
            return
        with contextlib.suppress(errors.NotFound):
            self._writer.check_owner(parent, child, await self._writer.get(parent, child))

    async def _change(self, parent: Parent, child: Child) -> None:
        """Patch a watched child; that it has gone meanwhile will be heard of."""
        with contextlib.suppress(errors.NotFound):
            self._take_in(parent, child, await self._writer.patch(parent, child, child.body()))

    async def _create_watched(self, parent: Parent, child: Child) -> bool:
        """Whether it was made now; False if the job had it already."""
        try:
            answer = await self._writer.create(parent, child)
        except errors.AlreadyExists as error:
            # A create whose answer was lost has been done: then the object of that name is the job's own. Any other is not touched.
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
        """Until the watch says that it is gone, it is going: nothing of its name is made, and it is not deleted again."""
        cache = self._caches.get(deletion.resource)
        row: Owned | None = cache.store.get(job.namespace, deletion.name) if cache else None
        if cache and row is not None and row.uid == deletion.uid:
            cache.store.amend(msgspec.structs.replace(row, deleting=True))

    def _adopt(self, parent: Parent, child: Child, answer: bytes) -> None:
        """Remember a child that the store did not have although the job made it; then the job needs another reconcile."""
        if self._caches[child.resource].adopt(answer):
            parent.memory.is_child_outdated = True

    def _take_in(self, parent: Parent, child: Child, answer: bytes) -> None:
        """Remember a child that others may have changed since it was last seen; then the job needs another reconcile."""
        change = self._remember(child, answer)
        if change and not is_same(*change):
            parent.memory.is_child_outdated = True

    def _remember(self, child: Child, answer: bytes) -> Change[Owned] | None:
        """What that has changed in the store, if anything."""
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
    # What goes by itself counts least, and of that what is heard of.
    return min(
        failures,
        key=lambda failure: (
            isinstance(failure, Remains) + (isinstance(failure, Remains) and failure.is_watched)
        ),
    )
