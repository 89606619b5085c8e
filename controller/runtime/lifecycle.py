"""The life cycle of one controller process: it fills its caches, waits for leadership, reconciles, and hands over.

This module decides only in which order the parts start and stop.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from controller.runtime.backoff import Reconnect
from controller.runtime.informer import Informer
from controller.runtime.leader import Election
from controller.runtime.queue import Queue
from controller.runtime.recorder import Recorder
from controller.runtime.workers import Workers

DRAIN_SECONDS = 10.0
"""How long running reconciles may continue after the process was told to stop."""
FLUSH_SECONDS = 2.5
"""How long the process then sends its last events. The next leader waits for the Lease meanwhile."""
UNSERVED_SECONDS = 15.0
"""A leader that could not serve any kind for this long exits and releases its Leases. Replacing the CRDs takes less time."""
CHECK_SECONDS = 1.0
"""The interval of that check."""

log = structlog.get_logger()


class NothingServed(Exception):
    """The API server serves none of the kinds any more, or lacks a resource that all of them need."""


def _nothing() -> None: ...


@dataclass(frozen=True)
class Controller:
    """The controller of one kind. ``take_over`` adds all of its jobs to its queue; ``pause`` is called when it stops to reconcile them.
    ``hand_over`` records what the next leader would not record. ``needed`` are the informers that only this kind requires.
    """

    jobs: Informer[Any]
    queue: Queue[Any]
    workers: Workers[Any]
    take_over: Callable[[], None]
    pause: Callable[[], None]
    hand_over: Callable[[], None]
    needed: Sequence[Informer[Any]] = ()

    @property
    def informers(self) -> list[Informer[Any]]:
        return [*self.needed, self.jobs]

    @property
    def is_unserved(self) -> bool:
        """Return whether the API server does not serve the jobs, or a resource that they need."""
        return any(informer.unserved.is_set() for informer in self.informers)

    async def synced(self) -> None:
        """Return when all of its stores are filled."""
        while not all(informer.synced.is_set() for informer in self.informers):
            for informer in self.informers:
                await informer.synced.wait()

    async def unserved(self) -> None:
        """Return when it is unserved."""
        waiting = [asyncio.ensure_future(informer.unserved.wait()) for informer in self.informers]
        await _first_of(waiting)


class ControllerProcess:
    """Starts and stops parts that others have created. Without an ``election`` this process always leads."""

    def __init__(
        self,
        needed: Sequence[Informer[Any]],
        optional: Sequence[Informer[Any]],
        controllers: Sequence[Controller],
        recorder: Recorder,
        election: Election | None,
        *,
        take_over: Callable[[], None] = _nothing,
        on_ready: Callable[[], None] = _nothing,
        repair_tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
        background_tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
        knows_its_writes: Callable[[], bool] = lambda: False,
    ) -> None:
        """The controllers start when the ``needed`` informers have filled their stores and the ``optional`` ones have or are unserved. Each
        controller runs while its jobs and the resources that only it needs are served.

        ``take_over`` is called when the controllers start. ``on_ready`` is called once, when the caches are filled for the first time.
        ``repair_tasks`` repair the caches from when they are filled, also while this process waits to lead. ``background_tasks`` run beside
        the controllers, each to its own end. ``knows_its_writes`` is called after the last write, and returns whether the caches contain every
        write of this process, or will when the watches have reported all deletions.
        """
        self.ready = asyncio.Event()
        """Set once the caches have been filled and at least one kind is served."""
        self._needed = needed
        own = (informer for controller in controllers for informer in controller.needed)
        jobs = (controller.jobs for controller in controllers)
        self._optional = list(dict.fromkeys([*own, *optional, *jobs]))
        self._informers = [*self._needed, *self._optional]
        self._controllers = controllers
        self._recorder = recorder
        self._election = election
        self._take_over = take_over
        self._on_ready = on_ready
        self._repair_tasks = repair_tasks
        self._background_tasks = background_tasks
        self._knows_its_writes = knows_its_writes
        self._watching: dict[Informer[Any], asyncio.Task[None]] = {}
        self._latest_changes: dict[str, int] = {}
        """What the next leader's caches must contain, by resource, once this process has finished its work."""
        for controller in controllers:
            controller.queue.close()  # otherwise the queues would grow until this process leads, because nothing drains them

    @property
    def is_serving(self) -> bool:
        """Whether the caches have been filled and at least one kind is served. A silent API server does not change it."""
        return self.ready.is_set() and not all(controller.is_unserved for controller in self._controllers)

    def unfilled(self) -> list[str]:
        """Return the resources whose caches are being filled for the first time."""
        if self.ready.is_set() or not self._watching:
            return []
        return _names(informer for informer in self._informers if not informer.settled.is_set())

    def unserved(self) -> list[str]:
        """Return the resources that the API server does not serve."""
        return _names(informer for informer in self._informers if informer.unserved.is_set())

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set and everything is handed over. If canceled, end immediately without handing over.

        With an election, take part in it only while at least one kind is served.

        Raises:
            NothingServed: this process took part in the election and no kind was served for ``UNSERVED_SECONDS``; everything is handed over.
            ExceptionGroup: contains a NotLeading: another process may lead by now.
        """
        if self._election is None:
            await self._run(stop)
            return
        if not await _unless(stop, self._something_to_do()):
            return
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            guards = [
                group.create_task(_then(waiter, over)) for waiter in (stop.wait(), self._nothing_to_do())
            ]
            await self._run(over)
            await _end(guards)
        if not stop.is_set():
            raise NothingServed(f"{', '.join(self.unserved())}: not served")

    async def _run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            electing = group.create_task(self._election.run()) if self._election else None
            repairs = list[asyncio.Task[None]]()
            if await _unless(stop, self._turn(group, repairs)):
                await self._work(stop)
            await _end(repairs)
            if self._election and electing:
                await _end([electing])
                await self._election.release(self._latest_changes)
            # Last, so that readiness probes succeed until then.
            await _end(self._watching.values())

    async def _something_to_do(self) -> None:
        """Return when the API server serves what all kinds need, and at least one kind with the resources that it needs."""
        reconnect = Reconnect(asyncio.get_running_loop().time)
        while True:
            answers = await asyncio.gather(*(informer.probe() for informer in self._informers))
            listed = {
                informer for informer, is_listed in zip(self._informers, answers, strict=True) if is_listed
            }
            if listed.issuperset(self._needed) and any(
                listed.issuperset(controller.informers) for controller in self._controllers
            ):
                return
            await asyncio.sleep(reconnect.record_failure())

    async def _nothing_to_do(self) -> None:
        """Return when no kind was served for ``UNSERVED_SECONDS``."""
        time = asyncio.get_running_loop().time
        last = time()
        while time() - last < UNSERVED_SECONDS:
            await asyncio.sleep(CHECK_SECONDS)
            if not (
                any(informer.unserved.is_set() for informer in self._needed)
                or all(controller.is_unserved for controller in self._controllers)
            ):
                last = time()

    async def _turn(self, group: asyncio.TaskGroup, repairs: list[asyncio.Task[None]]) -> None:
        """Return when the caches are filled and this process leads; add the tasks that repair the caches."""
        has_waited = False
        if self._election:
            await self._election.tried.wait()
            has_waited = not self._election.won.is_set()
        await self._fill(group, self._informers)
        log.info("caches synced")
        self.ready.set()
        self._on_ready()
        repairs += [group.create_task(repair()) for repair in self._repair_tasks]
        if self._election and has_waited:
            await self._election.won.wait()
            # The caches may lag behind the last writes of the previous leader. The server refuses most writes that result from that; but a
            # failure that the previous leader counted and deleted must not be counted again.
            await self._catch_up(group, self._election.handover())

    async def _catch_up(self, group: asyncio.TaskGroup, latest_changes: Mapping[str, int]) -> None:
        """Let the caches contain all earlier changes: wait for the watches, and fill again what they do not prove to be current."""
        informers = [informer for informer in self._informers if not informer.unserved.is_set()]
        caught_up = await asyncio.gather(
            *(informer.catch_up(latest_changes.get(_name(informer))) for informer in informers)
        )
        rest = [informer for informer, is_current in zip(informers, caught_up, strict=True) if not is_current]
        if rest:
            log.info("caches are filled again", resources=_names(rest))
            await self._fill(group, rest)
        log.info("caches current")

    async def _fill(self, group: asyncio.TaskGroup, informers: Sequence[Informer[Any]]) -> None:
        """Fill the caches of these informers with the current state or a later one."""
        await _end([self._watching[informer] for informer in informers if informer in self._watching])
        for informer in informers:
            informer.discard_position()
            self._watching[informer] = group.create_task(informer.run())
        await asyncio.gather(
            *(informer.synced.wait() for informer in self._needed),
            *(informer.settled.wait() for informer in self._optional),
        )
        await _first_of([asyncio.ensure_future(controller.synced()) for controller in self._controllers])

    async def _work(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set, the running reconciles are finished and their events are sent."""
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(self._recorder.run())
            self._take_over()
            working = [group.create_task(_control(controller, stop)) for controller in self._controllers]
            running = [group.create_task(start()) for start in self._background_tasks]
            log.info("controllers started")
            await stop.wait()
            _, late = await asyncio.wait(working, timeout=DRAIN_SECONDS)
            if late:
                log.warning("reconciles canceled after the shutdown timeout")
                await _end(late)
            await _end(running)
            for controller in self._controllers:
                controller.hand_over()
            await self._flush()
            await _end([sending])
            if not late and self._knows_its_writes():
                self._latest_changes = {
                    _name(informer): change
                    for informer in self._informers
                    if informer.synced.is_set() and (change := informer.store.latest_change) is not None
                }

    async def _flush(self) -> None:
        """Send the last events."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._recorder.flushed()
        except TimeoutError:
            log.warning("events dropped after the shutdown timeout")


def _name(informer: Informer[Any]) -> str:
    resource = informer.resource
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _names(informers: Iterable[Informer[Any]]) -> list[str]:
    return [informer.resource.plural for informer in informers]


async def _first_of(waiting: "Sequence[asyncio.Future[Any]]") -> None:
    """Return when the first of them is done, and cancel the others."""
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


async def _control(controller: Controller, stop: asyncio.Event) -> None:
    """Run one controller while its jobs and their resources are served, until ``stop`` is set and the running reconciles are finished.

    While they are not served the queue is closed, because the rows in the store may be outdated.
    """
    while not stop.is_set() and await _unless(stop, controller.synced()):
        controller.queue.open()
        controller.take_over()
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.workers.run())
            await _unless(stop, controller.unserved())
            controller.queue.close()
        controller.pause()


async def _then(waiting: Coroutine[Any, Any, object], event: asyncio.Event) -> None:
    """Set ``event`` when ``waiting`` is done."""
    await waiting
    event.set()


async def _unless(stop: asyncio.Event, waiting: Coroutine[Any, Any, object]) -> bool:
    """Return whether it finished before ``stop`` was set; cancel it otherwise."""
    async with asyncio.TaskGroup() as group:
        task, stopping = group.create_task(waiting), group.create_task(stop.wait())
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        stopping.cancel()
    return not task.cancelled()


async def _end(tasks: "Collection[asyncio.Task[None]]") -> None:
    """Cancel the tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
