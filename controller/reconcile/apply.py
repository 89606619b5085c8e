"""Carries out what a plan says about children. The only writer of children.

Each answer goes into the store at once. Names are fixed by the job, so doing a thing twice is refused by the server and harmless.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
import orjson

from api.children import Owned
from api.meta import Resource
from controller.domain import Child, Doomed, Problem, Upkeep
from controller.kube import errors
from controller.kube.client import Client
from controller.reconcile.expectations import Expectations
from controller.reconcile.patience import Patience
from controller.reconcile.telling import Teller
from controller.runtime.recorder import Subject
from controller.runtime.store import Store

MOST_PER_PASS = 1000
"""Creates of one pass, which is 500 pods with their Services; a larger job takes several passes, so that others get their turn.

Source: kube-controller-manager, MaxPodCreateDeletePerSync.
"""
SLICE_SECONDS = 0.5
"""For so long a pass begins new creates; the next pass sees what has become of the first pods meanwhile, and goes on."""
REMAINS_SECONDS = 5.0
"""When to look again for a name that is about to be free; its being freed is usually heard of before."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A resource whose objects are watched: its store, and how its rows are read."""

    store: Store[Any]
    decode: Callable[[bytes], Any]
    is_labelled: bool = True
    """Whether the objects carry the label of their job's name; others have that name."""


class Refused(Exception):
    """The API server will never take a child as it is: the job cannot be run."""

    def __init__(self, problem: Problem, error: errors.Invalid) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.error = error


class Occupied(errors.ApiError):
    """A child's name is taken by an object that does not belong to the job."""


class Remains(Occupied):
    """The name is taken by what is left of an earlier job of the same name, and will be free soon."""


class Applier:
    """Writes the children of all jobs of one kind."""

    def __init__(
        self,
        client: Client,
        caches: Mapping[Resource, Cache],
        expectations: Expectations,
        teller: Teller,
        *,
        width: int = 32,
    ) -> None:
        self._client = client
        self._caches = caches
        self._expectations = expectations
        self._teller = teller
        self._width = width
        self._wary: set[str] = set()
        """Namespaces where the last create was refused: there one is tried before many are."""
        self._patience = Patience()
        self._kept_equal: defaultdict[tuple[str, str], dict[tuple[str, str, str], int]] = defaultdict(dict)
        """By namespace and job: (job UID, kind, name) → the job's generation that it was last made equal for, negative: removed for."""

    async def apply(
        self, job: Subject, generation: int, create: Sequence[Child], delete: Sequence[Doomed]
    ) -> float | None:
        """Delete, then create. The seconds after which the rest is due, None if everything was done.

        After a failure nothing is tried for a while, ever longer, unless the job's spec changes; passes go on meanwhile.

        Raises:
            Refused: the API server does not take a child.
            ApiError, aiohttp.ClientError, TimeoutError: something else went wrong; what was possible has been done.
        """
        wait = self._patience.left(job.uid, generation)
        if wait and (create or delete):
            return wait
        try:
            done = await self._all(job, generation, create, delete)
        except Remains:
            return REMAINS_SECONDS
        except Exception:
            self._patience.failed(job.uid, generation)
            self._teller.sum_up(job)
            raise
        self._patience.forget(job.uid)
        if not done:
            return 0
        self._teller.sum_up(job)
        return None

    def pause_seconds(self, uid: str, generation: int) -> float:
        """How long nothing is tried after a failure."""
        return self._patience.left(uid, generation)

    async def _all(
        self, job: Subject, generation: int, create: Sequence[Child], delete: Sequence[Doomed]
    ) -> bool:
        """Whether everything was done, or there is more than one pass may do."""
        await self._many(delete, lambda doomed: self._delete(job, generation, doomed))
        fitting = create[:MOST_PER_PASS]
        await self._many(
            [child for child in fitting if child.first], lambda child: self._put_first(job, child)
        )
        # What belongs to the job as a whole goes first: refused, it ends the job before there is a pod. Anything else that is wrong
        # with it, such as somebody else's autoscaler of that name, does not keep the pods from being made.
        whole = [child for child in fitting if child.upkeep is Upkeep.EQUAL]
        failure: Exception | None = None
        try:
            await self._many(whole, lambda child: self._keep_equal(job, generation, child))
        except (errors.ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            failure = error
        begun_all = await self._create_each(
            job, [child for child in fitting if child.upkeep is Upkeep.ONCE and not child.first]
        )
        if failure:
            raise failure
        return begun_all and len(fitting) == len(create)

    def forget(self, namespace: str, name: str, uid: str) -> None:
        """There is no such job any more."""
        self._kept_equal.pop((namespace, name), None)
        self._patience.forget(uid)
        self._teller.forget(uid)

    async def _create_each(self, job: Subject, children: Sequence[Child]) -> bool:
        """Whether all were begun before the slice of time was over."""

        async def create(child: Child) -> None:
            if await self._create(job, child, child.body()):
                self._teller.created(job, child.resource, child.name)
                self._wary.discard(job.namespace)

        until = asyncio.get_running_loop().time() + SLICE_SECONDS
        probes = 1 if job.namespace in self._wary else 0
        try:
            await self._many(children[:probes], create)
            return await self._many(children[probes:], create, until)
        except (errors.Forbidden, Refused):
            self._wary.add(job.namespace)
            raise

    async def _many(
        self, items: Sequence[Any], work: Callable[[Any], Any], until: float = float("inf")
    ) -> bool:
        """Work on all items, so many at once, in order; whether all were begun before the loop time ``until``.

        The first error ends it and is raised once what was begun is over.
        """
        waiting, failures = deque(items), list[Exception]()
        time = asyncio.get_running_loop().time

        async def one_lane() -> None:
            while waiting and not failures and time() < until:
                item = waiting.popleft()
                try:
                    await work(item)
                except Exception as error:  # noqa: BLE001 - raised below, once the other lanes are done
                    failures.append(error)

        await asyncio.gather(*(one_lane() for _ in range(min(self._width, len(items)))))
        if failures:
            raise next((error for error in failures if isinstance(error, Refused)), failures[0])
        return not waiting

    async def _put_first(self, job: Subject, child: Child) -> None:
        """Make or change what the others need. What a scheduler's webhook refuses now, such as a closed queue, it may take later."""
        if child.upkeep is Upkeep.CHANGE:
            await self._change(job, child)
            return
        try:
            await self._create(job, child, child.body())
        except Refused as refused:
            raise refused.error from refused

    async def _change(self, job: Subject, child: Child) -> None:
        """Patch a watched child; that it has gone meanwhile will be heard of."""
        change = orjson.dumps(child.body())
        try:
            answer = await self._client.patch(child.resource, job.namespace, child.name, change)
        except errors.NotFound:
            return
        except errors.ApiError as error:
            self._teller.failed(job, "Update", child.resource, error.message)
            raise
        self._remember(child.resource, answer)

    async def _create(self, job: Subject, child: Child, body: dict[str, Any]) -> bool:
        """Whether it was made now; False if the job had it already."""
        try:
            answer = await self._client.create(child.resource, job.namespace, orjson.dumps(body))
        except errors.AlreadyExists as error:
            await self._adopt_answer(job, child, error)
            return False
        except errors.Invalid as error:
            self._teller.failed(job, "Create", child.resource, error.message)
            raise Refused(_problem(child, error), error) from error
        except errors.ApiError as error:
            self._teller.failed(job, "Create", child.resource, error.message)
            raise
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.CancelledError):
            self._expectations.lost_answer(job.uid)
            raise
        self._remember(child.resource, answer)
        return True

    async def _adopt_answer(self, job: Subject, child: Child, error: errors.AlreadyExists) -> None:
        """A create whose answer was lost has been done: the object of that name is the job's own. Any other is not touched."""
        answer = await self._client.get(child.resource, job.namespace, child.name)
        owner = _controller(answer)
        if owner.get("uid") == job.uid:
            self._remember(child.resource, answer)
            return
        same = owner.get("kind") == job.kind and owner.get("name") == job.name
        if not same:  # not the remains of an earlier job of this name, which go by themselves
            self._teller.failed(job, "Create", child.resource, error.message)
        kind = Remains if same else Occupied
        raise kind(
            error.code, error.reason, f"{error.message}, and belongs to {_described(owner)}"
        ) from error

    async def _keep_equal(self, job: Subject, generation: int, child: Child) -> None:
        """Make an unwatched child equal to what is wanted, once per generation of the job."""
        done, key = self._kept_equal[job.namespace, job.name], (job.uid, child.resource.kind, child.name)
        if done.get(key) == generation:
            return
        try:
            answer = await self._client.get(child.resource, job.namespace, child.name)
        except errors.NotFound:
            await self._create(job, child, child.body())
        else:
            await self._amend(job, child, answer)
        done[key] = generation

    async def _amend(self, job: Subject, child: Child, answer: bytes) -> None:
        """Write what differs, if the object is the job's own."""
        owner, wanted = _controller(answer), child.body()["spec"]
        try:
            if owner.get("uid") != job.uid:
                text = f'{child.resource.plural} "{child.name}" already exists, and belongs to {_described(owner)}'
                raise Occupied(409, "Conflict", text)
            if not _covers(orjson.loads(answer)["spec"], wanted):
                change = orjson.dumps({"spec": wanted})
                await self._client.patch(child.resource, job.namespace, child.name, change)
        except errors.ApiError as error:
            self._teller.failed(job, "Create", child.resource, error.message)
            raise

    async def _delete(self, job: Subject, generation: int, doomed: Doomed) -> None:
        key = (job.uid, doomed.resource.kind, doomed.name)
        done = {} if doomed.uid else self._kept_equal[job.namespace, job.name]
        if done.get(key) == -generation:
            return
        try:
            uid = doomed.uid or await self._uid_of_own(job, doomed)
            if uid:
                await self._client.delete(doomed.resource, job.namespace, doomed.name, uid=uid)
                if doomed.resource in self._caches:
                    self._teller.deleted(job, doomed.resource, doomed.name)
        except (errors.NotFound, errors.Conflict):
            pass  # gone, or another object by now: either way not there any more
        except errors.ApiError as error:
            self._teller.failed(job, "Delete", doomed.resource, error.message)
            raise
        done[key] = -generation
        self._mark_deleting(job, doomed)

    async def _uid_of_own(self, job: Subject, doomed: Doomed) -> str:
        """The UID of an unwatched child, empty if it is not the job's."""
        answer = await self._client.get(doomed.resource, job.namespace, doomed.name)
        own = _controller(answer).get("uid") == job.uid
        return str(orjson.loads(answer)["metadata"]["uid"]) if own else ""

    def _mark_deleting(self, job: Subject, doomed: Doomed) -> None:
        """Until the watch says that it is gone, it is going: nothing of its name is made, and it is not deleted again."""
        cache = self._caches.get(doomed.resource)
        row: Owned | None = cache.store.get(job.namespace, doomed.name) if cache else None
        if cache and row is not None and row.uid == doomed.uid:
            cache.store.amend(msgspec.structs.replace(row, deleting=True))

    def _remember(self, resource: Resource, answer: bytes) -> None:
        cache = self._caches.get(resource)
        if cache is not None:
            cache.store.put(cache.decode(answer))


def _controller(answer: bytes) -> Mapping[str, Any]:
    """The owner reference of an object's controller, empty if it has none."""
    owners: list[dict[str, Any]] = orjson.loads(answer)["metadata"].get("ownerReferences") or []
    return next((one for one in owners if one.get("controller")), {})


def _described(owner: Mapping[str, Any]) -> str:
    return f"{owner.get('kind')} {owner.get('name')}" if owner else "nobody"


def _problem(child: Child, error: errors.ApiError) -> Problem:
    fields = "; ".join(f"{path}: {text}" for path, text in error.causes if path) or error.message
    return Problem(f"{child.resource.kind} {child.name}", fields)


def _covers(live: Any, wanted: Any) -> bool:
    """Whether ``live`` says all that ``wanted`` says; the server adds defaults of its own."""
    match wanted, live:
        case dict(), dict():
            return all(key in live and _covers(live[key], value) for key, value in wanted.items())
        case list(), list():
            return len(live) == len(wanted) and all(map(_covers, live, wanted))
        case _:
            return bool(live == wanted)
