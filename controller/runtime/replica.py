"""One replica from its start to its end: it fills its caches, waits for its turn, works, and hands over.

What is worked on is its parts' business; here is in which order they begin and end.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from controller.runtime.informer import Informer
from controller.runtime.leader import Election
from controller.runtime.queue import Queue
from controller.runtime.recorder import Recorder
from controller.runtime.workers import Workers

DRAIN_SECONDS = 10.0
"""How long passes that are under way may go on when the replica is told to stop."""
FLUSH_SECONDS = 2.5
"""How long the last events may take to be sent then; the next replica waits for the Lease meanwhile."""

log = structlog.get_logger()


def _nothing() -> None: ...


class Replica:
    """The parts are made by others and begin here. Without an ``election`` it is always this replica's turn."""

    def __init__(
        self,
        informers: Sequence[Informer[Any]],
        queues: Sequence[Queue[Any]],
        workers: Sequence[Workers[Any]],
        recorder: Recorder,
        election: Election | None,
        *,
        take_over: Callable[[], None] = _nothing,
        hand_over: Callable[[], None] = _nothing,
        on_ready: Callable[[], None] = _nothing,
        errands: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        """``take_over`` fills the queues when work begins; ``hand_over`` says what is still to be told when it is over.

        ``on_ready`` is called once, when the caches are filled first. ``errands`` run beside the work, each to its own end.
        """
        self.ready = asyncio.Event()
        """Set once the caches have been filled. It stays so: nothing would be better if nobody came here any more."""
        self._informers = informers
        self._queues = queues
        self._workers = workers
        self._recorder = recorder
        self._election = election
        self._take_over = take_over
        self._hand_over = hand_over
        self._on_ready = on_ready
        self._errands = errands
        self._watching: list[asyncio.Task[None]] = []
        for queue in queues:
            queue.close()  # or they would grow until it is this replica's turn, while nobody empties them

    def unfilled(self) -> list[str]:
        """The resources whose caches are not filled yet."""
        if self.ready.is_set():
            return []
        return [one.resource.plural for one in self._informers if not one.synced.is_set()]

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop`` is set and all is handed over. Cancelled, it ends at once and hands nothing over.

        Raises:
            ExceptionGroup: with a NotLeading in it: it may be another's turn by now.
        """
        async with asyncio.TaskGroup() as group:
            electing = group.create_task(self._election.run()) if self._election else None
            if await _unless(stop, self._turn(group)):
                await self._work(stop)
            if self._election and electing:
                await _end([electing])
                await self._election.release()
            # Last, so that whoever looks meanwhile sees a replica that is well.
            await _end(self._watching)

    async def _turn(self, group: asyncio.TaskGroup) -> None:
        """Return when the caches are filled and it is this replica's turn."""
        has_waited = False
        if self._election:
            await self._election.tried.wait()
            has_waited = not self._election.won.is_set()
        await self._fill(group)
        log.info("caches filled")
        self.ready.set()
        self._on_ready()
        if self._election and has_waited:
            await self._election.won.wait()
            # The caches may lag behind the last writes of whoever worked before. Most of what could come of that is refused by the
            # server; but a failure that was counted and cleared away must not be counted again.
            await self._fill(group)

    async def _fill(self, group: asyncio.TaskGroup) -> None:
        """Have the caches hold at least what is true now."""
        await _end(self._watching)
        for one in self._informers:
            one.forget_place()
        self._watching = [group.create_task(one.run()) for one in self._informers]
        await asyncio.gather(*(one.synced.wait() for one in self._informers))

    async def _work(self, stop: asyncio.Event) -> None:
        """Until ``stop`` is set, and then until passes that are under way are over and their events are sent."""
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(self._recorder.run())
            for queue in self._queues:
                queue.open()
            self._take_over()
            working = [group.create_task(one.run()) for one in self._workers]
            errands = [group.create_task(errand()) for errand in self._errands]
            log.info("working")
            await stop.wait()
            for queue in self._queues:
                queue.close()
            _, late = await asyncio.wait(working, timeout=DRAIN_SECONDS)
            if late:
                log.warning("passes cut off that took too long")
                await _end(late)
            await _end(errands)
            self._hand_over()
            await self._flush()
            await _end([sending])

    async def _flush(self) -> None:
        """Let the last events go out."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._recorder.flushed()
        except TimeoutError:
            log.warning("some events were not sent in time")


async def _unless(stop: asyncio.Event, waiting: Coroutine[Any, Any, None]) -> bool:
    """Whether it came to its end before ``stop`` was set; else it is cancelled."""
    async with asyncio.TaskGroup() as group:
        task, stopping = group.create_task(waiting), group.create_task(stop.wait())
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        stopping.cancel()
    return not task.cancelled()


async def _end(tasks: "set[asyncio.Task[None]] | list[asyncio.Task[None]]") -> None:
    """Cancel them and wait for their end."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
