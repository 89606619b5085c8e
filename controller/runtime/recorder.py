"""Events about objects, sent in the background: none is lost to a burst, and none holds up a pass.

An event that repeats an earlier one raises that one's count instead. Source: client-go, tools/record.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import aiohttp
import orjson
import structlog

from api.meta import EVENTS
from controller.kube.client import Client
from controller.kube.errors import (
    AlreadyExists,
    ApiError,
    NamespaceTerminating,
    NotFound,
    NotLeading,
    ServerError,
    TooManyRequests,
)
from controller.kube.gate import Lane
from controller.runtime import clock
from controller.runtime.recent import Recent

LONGEST_MESSAGE = 1024
"""Characters; the API server refuses longer ones."""
REMEMBERED = 8192
"""Events that can still be counted up; about 4 MiB."""
WAITING = 100_000
"""Events that may wait to be sent; beyond it the oldest is dropped, and counted."""
PATIENCE_SECONDS = 1.0
"""How long an event that is not pressing waits beyond its turn. Who follows a job takes it for at rest after little more."""
IN_TURN_PER_SECOND = 400
"""Events that an idle server takes one after the other: by their number, those that wait know when their turn should come."""
SENDERS_IN_A_HURRY = 32
"""Events sent at once when the service stops: whoever takes over waits for the last of them."""
TRIES = 12
PAUSE_SECONDS = 5.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about, and who says so."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    source: str


@dataclass(slots=True)
class _Told:
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class _Note:
    subject: Subject
    severity: str
    reason: str
    message: str
    at: datetime
    since: float
    """By the event loop's clock."""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return self.subject.uid, self.severity, self.reason, self.message


class Recorder:
    """Takes events at any time, sends them while ``run`` runs.

    What happens as it should, such as the creation of each pod of many jobs, goes out one at a time: as fast as an idle server answers,
    and slower the more it has to do, so that it takes nothing from the pods that start. What has waited much longer than all that wait
    would take with an idle one waits no more, and what is ``pressing`` not at all.
    """

    def __init__(self, client: Client, *, senders: int = 4, enabled: bool = True) -> None:
        self._client = client
        self._senders = senders
        self._enabled = enabled
        self._pressing: deque[_Note] = deque(maxlen=WAITING)
        self._waiting: deque[_Note] = deque(maxlen=WAITING)
        self._is_taken = False
        """The one place for what is not pressing."""
        self._hurries = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._busy = 0
        self._told = Recent[tuple[str, str, str, str], _Told](REMEMBERED)
        self.dropped = 0
        """Events that nobody will ever read: too many waited, the server did not take them in time, or another process leads by now."""

    def record(
        self, subject: Subject, severity: str, reason: str, message: str, *, pressing: bool = True
    ) -> None:
        """Send an event soon."""
        if not self._enabled:
            return
        line = self._pressing if pressing else self._waiting
        if len(line) == WAITING:
            self.dropped += 1
        text = message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"
        line.append(_Note(subject, severity, reason, text, clock.now(), asyncio.get_running_loop().time()))
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._senders):
                group.create_task(self._run_one())

    async def flushed(self) -> None:
        """Wait until everything recorded so far is sent or given up; meanwhile nothing waits for its turn."""
        self._hurries = True
        try:
            await asyncio.gather(*(self._send_what_waits() for _ in range(SENDERS_IN_A_HURRY)))
            await self._idle.wait()
        finally:
            self._hurries = False

    async def _run_one(self) -> None:
        while True:
            await self._send_what_waits()
            self._wake.clear()
            await self._wake.wait()

    async def _send_what_waits(self) -> None:
        while (turn := self._next()) is not None:
            self._busy += 1
            try:
                await self._send(*turn)
            finally:
                self._busy -= 1
                if not (self._busy or self._waiting or self._pressing):
                    self._idle.set()

    def _next(self) -> tuple[_Note, bool] | None:
        """What is to be sent now, and whether it takes the one place."""
        if self._pressing:
            return self._pressing.popleft(), False
        if not self._waiting:
            return None
        if self._hurries or self._is_overdue():
            return self._waiting.popleft(), False
        if self._is_taken:
            return None
        self._is_taken = True
        return self._waiting.popleft(), True

    def _is_overdue(self) -> bool:
        """Whether the first of those that wait has waited beyond its turn."""
        waited_seconds = asyncio.get_running_loop().time() - self._waiting[0].since
        return waited_seconds >= PATIENCE_SECONDS + len(self._waiting) / IN_TURN_PER_SECOND

    async def _send(self, note: _Note, takes_place: bool) -> None:
        told = self._told.get(note.identity) or _Told(f"{note.subject.name}.{secrets.token_hex(8)}", 0)
        # Remembered before it is sent, so that a repeat which overtakes this one is counted and not sent twice.
        told.count += 1
        self._told[note.identity] = told
        for attempt in range(1, TRIES + 1):
            try:
                await self._write(note, told)
                return
            except (TooManyRequests, ServerError, aiohttp.ClientError, TimeoutError, OSError) as error:
                if attempt == TRIES:
                    self.dropped += 1
                    log.warning("event given up", reason=note.reason, error=repr(error))
                    return
            except NamespaceTerminating:
                return  # nobody is left to read it
            except ApiError as error:
                # A namespace that is gone takes no events: nobody is left to read them.
                log.info("event refused", reason=note.reason, code=error.code, error=error.message)
                return
            except NotLeading:
                self.dropped += 1
                return
            finally:
                if takes_place:  # also before a pause: what has to be tried again holds up nothing else
                    takes_place = self._is_taken = False
                    self._wake.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _write(self, note: _Note, told: _Told) -> None:
        """Make the event, or raise its count. The name is fixed, so that doing it twice changes nothing."""
        namespace = note.subject.namespace
        if told.count > 1:
            change = orjson.dumps({"count": told.count, "lastTimestamp": _wire(note.at)})
            try:
                await self._client.patch(EVENTS, namespace, told.name, change, lane=Lane.EVENT)
            except NotFound:
                pass  # it has expired on the server, or was never made
            else:
                return
        # There already: made by a try whose answer was lost, or by a repeat that was quicker.
        with contextlib.suppress(AlreadyExists):
            await self._client.create(EVENTS, namespace, orjson.dumps(_body(told, note)), lane=Lane.EVENT)


def _body(told: _Told, note: _Note) -> dict[str, Any]:
    subject, at = note.subject, _wire(note.at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": told.name, "namespace": subject.namespace},
        "involvedObject": {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
        "type": note.severity,
        "reason": note.reason,
        "message": note.message,
        "source": {"component": subject.source},
        "reportingComponent": subject.source,
        "reportingInstance": "",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": told.count,
    }


def _wire(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
