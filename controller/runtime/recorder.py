"""Events about objects, sent in the background: none is lost to a burst, and none holds up a reconcile or another namespace's events.

An event that repeats an earlier one raises that one's count instead. Reports about pods are combined and limited per object, so that a
job of thousands of pods in trouble writes a few events. Source: client-go, tools/record.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any

import aiohttp
import orjson
import structlog

from api.meta import EVENTS
from controller.kube.client import Client
from controller.kube.concurrency import PriorityLevel
from controller.kube.errors import (
    AlreadyExists,
    ApiError,
    NamespaceTerminating,
    NotFound,
    NotLeading,
    ServerError,
    TooManyRequests,
)
from controller.kube.fair_queue import FairQueue
from controller.kube.token_bucket import TokenBucket
from controller.runtime import clock
from controller.runtime.bounded_dict import BoundedDict

LONGEST_MESSAGE = 1024
"""Characters; the API server refuses longer ones."""
REMEMBERED = 8192
"""Events that can still be counted up; about 4 MiB."""
WAITING = 100_000
"""Events that may wait to be sent; beyond it the oldest of the namespace with most of them is dropped, and counted."""
LATE_SECONDS = 1.0
"""How long an event that is not pressing waits beyond its turn. Who follows a job takes it for at rest after little more."""
IN_TURN_PER_SECOND = 400
"""Events that an idle server takes one after the other: by their number, those that wait know when their turn should come."""
SENDERS_IN_A_HURRY = 32
"""Events sent at once when the service stops: whoever takes over waits for the last of them."""
TRIES = 12
PAUSE_SECONDS = 5.0

REPORTED_SINGLY = 9
"""Similar reports about one object that have an event each; the others share one. Source: client-go, defaultAggregateMaxEvents."""
SIMILAR_SECONDS = 600.0
"""Reports that come later than this after the last similar one begin anew. Source: client-go, defaultAggregateIntervalInSeconds."""
REPORTS_AT_ONCE = 25
"""Writes of reports about one object. Source: client-go, defaultSpamBurst."""
REPORTS_PER_SECOND = 1 / 300
"""How fast an object regains writes of reports. Source: client-go, defaultSpamQPS."""
LIMITED_OBJECTS = 4096
"""Objects whose reports are known. Source: client-go, maxLruCacheEntries."""
GROUPS_OF_REPORTS = 32
"""Groups of similar reports that are known of one object."""
COMBINED = "(combined from similar events): "
"""What the message of an event that several reports share begins with. Source: client-go, EventAggregate."""

log = structlog.get_logger()


class EventPriority(IntEnum):
    """What an event tells of; higher goes first."""

    CHILD = 0
    """A child was created or deleted. These go out one at a time."""
    REPORT = 1
    """What pods and API calls report. Similar ones are combined, and those of one object are limited."""
    STATE = 2
    """The object's own state, such as the end of a job. Neither combined nor limited."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about, and who says so."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    source: str


@dataclass(slots=True, eq=False)
class _Series:
    """One Event object. Repeats raise its count; however many come while it waits or is being sent, one write follows."""

    subject: Subject
    severity: str
    reason: str
    message: str
    priority: EventPriority
    is_combined: bool = False
    name: str = ""
    count: int = 0
    at: datetime = field(default_factory=clock.now)
    """When it last happened."""
    since: float = 0.0
    """Loop time since which it waits."""
    tries: int = 0
    is_made: bool = False
    """Whether the API server has the object, as far as is known."""
    is_due: bool = False
    """Whether a write is to follow, which may be the retry of the last one."""
    is_sending: bool = False
    """Whether a write is under way, or pauses before it is retried. There is one at a time, so no lower count overtakes a higher one."""


@dataclass(slots=True)
class _Group:
    """Similar reports about one object."""

    singly: int = 0
    last: float = 0.0


@dataclass(slots=True)
class _Limits:
    """What the reports about one object have used up."""

    bucket: TokenBucket = field(default_factory=lambda: TokenBucket(REPORTS_PER_SECOND, REPORTS_AT_ONCE))
    groups: BoundedDict[tuple[str, str, str], _Group] = field(
        default_factory=lambda: BoundedDict(GROUPS_OF_REPORTS)
    )


class Recorder:
    """Takes events at any time, sends them while ``run`` runs. Namespaces take turns.

    What happens as it should, such as the creation of each pod of many jobs, goes out one at a time: as fast as an idle server answers,
    and slower the more it has to do, so that it takes nothing from the pods that start. What has waited much longer than all that wait
    would take with an idle one waits no more, and what has a higher priority not at all.

    Differs: client-go limits all events about an object; here what tells of its state is neither combined nor limited.
    See docs/decisions/0011-events.md.
    """

    def __init__(
        self,
        client: Client,
        *,
        senders: int = 4,
        enabled: bool = True,
        now: Callable[[], datetime] = lambda: clock.now(),
    ) -> None:
        self._now = now
        self._client = client
        self._senders = senders
        self._enabled = enabled
        self._urgent = FairQueue[_Series]()
        """Reports and changes of state, by namespace."""
        self._children = FairQueue[_Series]()
        self._is_taken = False
        """The one place for what tells of children."""
        self._hurries = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._busy = 0
        """Series that are being sent, or pause before the next try."""
        self._series = BoundedDict[tuple[str, str, str, str], _Series](REMEMBERED)
        self._limits = BoundedDict[str, _Limits](LIMITED_OBJECTS)
        """By UID."""
        self.dropped = 0
        """Events that nobody will ever read: too many waited, the server did not take them in time, or another process leads by now."""
        self.limited = 0
        """Reports over their object's limit. They raise the count of their event only when it is next written."""

    def record(
        self,
        subject: Subject,
        severity: str,
        reason: str,
        message: str,
        *,
        priority: EventPriority = EventPriority.STATE,
        similar: str = "",
    ) -> None:
        """Send an event soon.

        ``similar`` is for reports: those about one object that are equal in it, and in severity and reason, are combined.
        """
        if not self._enabled:
            return
        now = asyncio.get_running_loop().time()
        text = message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"
        if priority is EventPriority.REPORT:
            limits = self._limits[subject.uid] = self._limits.get(subject.uid) or _Limits()
            series = self._combined(limits, subject, severity, reason, text, similar, now)
        else:
            limits, series = None, self._series_of(subject, severity, reason, text, priority)
        series.count += 1
        series.at = self._now()
        if series.is_due:
            return
        if limits and limits.bucket.take(now):
            self.limited += 1
            return
        series.is_due = True
        series.since = now
        if not series.is_sending:
            self._push(series)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._senders):
                group.create_task(self._run_worker())

    async def flushed(self) -> None:
        """Wait until everything recorded so far is sent or given up; meanwhile nothing waits for its turn."""
        self._hurries = True
        try:
            await asyncio.gather(*(self._send_what_waits() for _ in range(SENDERS_IN_A_HURRY)))
            await self._idle.wait()
        finally:
            self._hurries = False

    def _combined(
        self,
        limits: _Limits,
        subject: Subject,
        severity: str,
        reason: str,
        text: str,
        similar: str,
        now: float,
    ) -> _Series:
        """The event of a report: one of its own for the first of a group, one that they share for the others."""
        key = (severity, reason, similar)
        group = limits.groups.get(key)
        if group is None or now - group.last > SIMILAR_SECONDS:
            group = _Group()
        group.last = now
        limits.groups[key] = group
        if (subject.uid, severity, reason, text) not in self._series:
            if group.singly >= REPORTED_SINGLY:
                shared = self._series_of(subject, severity, reason, COMBINED + similar, EventPriority.REPORT)
                shared.is_combined = True
                shared.message = (COMBINED + text)[:LONGEST_MESSAGE]
                return shared
            group.singly += 1
        return self._series_of(subject, severity, reason, text, EventPriority.REPORT)

    def _series_of(
        self, subject: Subject, severity: str, reason: str, text: str, priority: EventPriority
    ) -> _Series:
        key = (subject.uid, severity, reason, text)
        series = self._series.get(key) or _Series(subject, severity, reason, text, priority)
        series.name = series.name or f"{subject.name}.{secrets.token_hex(8)}"
        self._series[key] = series
        return series

    def _push(self, series: _Series) -> None:
        """Let it wait for its turn."""
        if len(self._urgent) + len(self._children) >= WAITING:
            fullest = self._children if len(self._children) else self._urgent
            fullest.pop_from_longest().is_due = False
            self.dropped += 1
        line = self._children if series.priority is EventPriority.CHILD else self._urgent
        line.push(series, level=series.priority, group=series.subject.namespace)
        self._idle.clear()
        self._wake.set()

    async def _run_worker(self) -> None:
        while True:
            await self._send_what_waits()
            self._wake.clear()
            await self._wake.wait()

    async def _send_what_waits(self) -> None:
        while (turn := self._next()) is not None:
            await self._send(*turn)

    def _next(self) -> tuple[_Series, bool] | None:
        """What is to be sent now, and whether it takes the one place."""
        if len(self._urgent):
            return self._urgent.pop(), False
        if not len(self._children):
            return None
        if self._hurries or self._is_overdue():
            return self._children.pop(), False
        if self._is_taken:
            return None
        self._is_taken = True
        return self._children.pop(), True

    def _is_overdue(self) -> bool:
        """Whether the first of those that wait has waited beyond its turn."""
        waited_seconds = asyncio.get_running_loop().time() - self._children.peek_oldest().since
        return waited_seconds >= LATE_SECONDS + len(self._children) / IN_TURN_PER_SECOND

    async def _send(self, series: _Series, takes_slot: bool) -> None:
        """One try. What has to be retried pauses outside, so that it holds up nothing else."""
        series.is_sending, series.is_due = True, False
        self._busy += 1
        pauses = False
        try:
            pauses = not await self._try(series)
        finally:
            if takes_slot:
                self._is_taken = False
                self._wake.set()
            if pauses:
                asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._sent, series)
            else:
                self._sent(series)

    def _sent(self, series: _Series) -> None:
        """The write is over, or its pause is: it waits again if there is more to say."""
        series.is_sending = False
        self._busy -= 1
        if series.is_due:
            self._push(series)
        elif not (self._busy or len(self._urgent) or len(self._children)):
            self._idle.set()

    async def _try(self, series: _Series) -> bool:
        """Write an event once; False if that is to be retried."""
        try:
            await self._write(series)
        except (TooManyRequests, ServerError, aiohttp.ClientError, TimeoutError, OSError) as error:
            series.tries += 1
            if series.tries < TRIES:
                series.is_due = True
                return False
            self.dropped += 1
            log.warning("event given up", reason=series.reason, error=repr(error))
        except NamespaceTerminating:
            pass  # nobody is left to read it
        except ApiError as error:
            # A namespace that is gone takes no events: nobody is left to read them.
            log.info("event refused", reason=series.reason, code=error.code, error=error.message)
        except NotLeading:
            self.dropped += 1
        series.tries = 0
        return True

    async def _write(self, series: _Series) -> None:
        """Make the event, or raise its count. The name is fixed, so that doing it twice changes nothing."""
        if series.is_made and await self._patch(series):
            return
        try:
            body = orjson.dumps(_body(series))
            await self._client.create(EVENTS, series.subject.namespace, body, level=PriorityLevel.EVENT)
        except AlreadyExists:  # made by a try whose answer was lost; the count may have risen since
            if series.count > 1:
                await self._patch(series)
        series.is_made = True

    async def _patch(self, series: _Series) -> bool:
        """Raise the count; False if there is no such event: it has expired on the server, or was never made."""
        change: dict[str, Any] = {"count": series.count, "lastTimestamp": _timestamp(series.at)}
        if series.is_combined:
            change["message"] = series.message
        with contextlib.suppress(NotFound):
            body = orjson.dumps(change)
            await self._client.patch(
                EVENTS, series.subject.namespace, series.name, body, level=PriorityLevel.EVENT
            )
            return True
        return False


def _body(series: _Series) -> dict[str, Any]:
    subject, at = series.subject, _timestamp(series.at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": series.name, "namespace": subject.namespace},
        "involvedObject": {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
        "type": series.severity,
        "reason": series.reason,
        "message": series.message,
        "source": {"component": subject.source},
        "reportingComponent": subject.source,
        "reportingInstance": "",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": series.count,
    }


def _timestamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
