"""Records events about objects in the background, without delaying reconciles or other namespaces' events.

A repeated event raises the count of the existing one. The recorder combines and limits reports about pods per object, so that a job with
thousands of failing pods writes a few events. Source: client-go, tools/record.
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
from controller.kube.bounded_dict import BoundedDict
from controller.kube.client import Client
from controller.kube.concurrency import PriorityLevel
from controller.kube.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    NamespaceTerminating,
    NotFound,
    NotLeading,
    ServerError,
    TooManyRequests,
    describe,
)
from controller.kube.failure_log import FailureLog
from controller.kube.fair_queue import FairQueue
from controller.kube.token_bucket import TokenBucket
from controller.runtime import clock

LONGEST_MESSAGE = 1024
"""Maximum length of a message in characters; the API server refuses longer ones."""
REMEMBERED = 8192
"""Events whose count can still be raised; about 4 MiB."""
WAITING = 100_000
"""Events that may wait to be sent. Beyond that the recorder drops and counts the oldest event of the namespace with most of them."""
UNSENT_SECONDS = 60.0
"""How often the log says that events of a namespace cannot be written, for each error."""
LATE_SECONDS = 1.0
"""The longest delay of an event of low priority beyond its turn. Users who follow a job soon take silence for the end of the activity."""
IN_TURN_PER_SECOND = 400
"""Events per second that an idle server accepts one by one. With it the recorder computes when the turn of a waiting event should come."""
BUSY_WAITING = 512
"""Waiting events of low priority from which on the recorder is busy: more than an idle server accepts in a second."""
SENDERS_IN_A_HURRY = 32
"""Concurrent requests while the process stops: the next leader waits for the last event."""
TRIES = 12
PAUSE_SECONDS = 5.0

REPORTED_SINGLY = 9
"""Similar reports about one object that get an event each; further ones share one. Source: client-go, defaultAggregateMaxEvents."""
SIMILAR_SECONDS = 600.0
"""A report this long after the last similar one starts a new group. Source: client-go, defaultAggregateIntervalInSeconds."""
REPORTS_AT_ONCE = 25
"""Burst of report writes about one object. Source: client-go, defaultSpamBurst."""
REPORTS_PER_SECOND = 1 / 300
"""Report writes per second that one object regains. Source: client-go, defaultSpamQPS."""
LIMITED_OBJECTS = 4096
"""Objects whose reports are tracked. Source: client-go, maxLruCacheEntries."""
GROUPS_OF_REPORTS = 32
"""Groups of similar reports that are tracked per object."""
COMBINED = "(combined from similar events): "
"""Prefix of the message of an event that several reports share. Source: client-go, EventAggregate."""

log = structlog.get_logger()


class EventPriority(IntEnum):
    """The priority of an event; higher ones are sent first."""

    CHILD = 0
    """A child was created or deleted. The recorder sends these one at a time."""
    REPORT = 1
    """Reports about pods and API calls. Similar ones are combined, and the number per object is limited."""
    STATE = 2
    """The state of the object itself, such as the end of a job. Neither combined nor limited."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The object and the source of an event."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    source: str


@dataclass(slots=True, eq=False)
class _Series:
    """One Event object. A repetition raises its count; all repetitions while it waits or is being sent need a single write."""

    subject: Subject
    severity: str
    reason: str
    message: str
    priority: EventPriority
    is_combined: bool = False
    name: str = ""
    count: int = 0
    at: datetime = field(default_factory=clock.now)
    """When the event last happened."""
    since: float = 0.0
    """Loop time when it started to wait."""
    tries: int = 0
    is_made: bool = False
    """Whether the event exists on the API server, as far as known."""
    is_due: bool = False
    """Whether a write is due, which may be a retry."""
    is_sending: bool = False
    """Whether a write is in progress or pauses before a retry. There is only one at a time, so no lower count overwrites a higher one."""


@dataclass(slots=True)
class _Group:
    """Similar reports about one object."""

    singly: int = 0
    last: float = 0.0


@dataclass(slots=True)
class _Limits:
    """The budget of reports about one object."""

    bucket: TokenBucket = field(default_factory=lambda: TokenBucket(REPORTS_PER_SECOND, REPORTS_AT_ONCE))
    groups: BoundedDict[tuple[str, str, str], _Group] = field(
        default_factory=lambda: BoundedDict(GROUPS_OF_REPORTS)
    )


class Recorder:
    """Accepts events at any time and sends them while ``run`` runs. Namespaces alternate.

    Events about normal progress, such as the creation of pods, are sent one at a time: as fast as an idle server answers, and slower under
    load, so that they do not delay the pods. An event that has waited much longer than the queue would take on an idle server is sent at
    once, and so is an event of higher priority.

    Differs: client-go limits all events about an object; this recorder neither combines nor limits events about the object's own state.
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
        """Waiting reports and state events, by namespace."""
        self._children = FairQueue[_Series]()
        self._is_taken = False
        """Whether a child event is being sent."""
        self._hurries = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._busy = 0
        """Series that are being sent, or pause before a retry."""
        self._series = BoundedDict[tuple[str, str, str, str], _Series](REMEMBERED)
        self._limits = BoundedDict[str, _Limits](LIMITED_OBJECTS)
        """Budgets by UID."""
        self._unsent = FailureLog[str]()
        """By namespace."""
        self.dropped = 0
        """Events that were never written: too many waited, the server did not accept them in time, or this process no longer leads."""
        self.limited = 0
        """Reports above the limit of their object. The next write of their event includes them in its count."""

    @property
    def is_busy(self) -> bool:
        """Whether many events of low priority wait, so that a caller should combine those that it can."""
        return len(self._children) >= BUSY_WAITING

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
        """Queue an event.

        ``similar`` is for reports: the recorder combines those about one object with the same ``similar``, type and reason.
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
        """Send events until canceled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._senders):
                group.create_task(self._run_worker())

    async def flushed(self) -> None:
        """Wait until everything recorded so far is sent or dropped; meanwhile the recorder sends without pacing."""
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
        """Return the series of a report: its own for the first of a group, a shared one for the others."""
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
        """Queue a series."""
        if len(self._urgent) + len(self._children) >= WAITING:
            fullest = self._children if len(self._children) else self._urgent
            fullest.pop_from_longest().is_due = False
            self.dropped += 1
        line = self._children if series.priority is EventPriority.CHILD else self._urgent
        line.push(series, level=series.priority, group=series.subject.namespace)
        self._idle.clear()
        if line is self._urgent or not self._is_taken or self._is_unpaced():
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
        """Pop the series to send now, and return whether it is a child event."""
        if len(self._urgent):
            return self._urgent.pop(), False
        if not len(self._children):
            return None
        if self._is_unpaced():
            return self._children.pop(), False
        if self._is_taken:
            return None
        self._is_taken = True
        return self._children.pop(), True

    def _is_unpaced(self) -> bool:
        """Return whether several senders take the waiting child events."""
        return self._hurries or self._is_overdue()

    def _is_overdue(self) -> bool:
        """Return whether the first waiting child event is overdue."""
        waited_seconds = asyncio.get_running_loop().time() - self._children.peek_oldest().since
        return waited_seconds >= LATE_SECONDS + len(self._children) / IN_TURN_PER_SECOND

    async def _send(self, series: _Series, takes_slot: bool) -> None:
        """Try to write a series once. A retry pauses outside, so that it delays nothing else."""
        series.is_sending, series.is_due = True, False
        self._busy += 1
        pauses = False
        try:
            pauses = not await self._try(series)
        finally:
            if takes_slot:
                self._is_taken = False
                if len(self._children) and self._is_unpaced():
                    self._wake.set()  # Otherwise this sender alone sends them.
            if pauses:
                asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._sent, series)
            else:
                self._sent(series)

    def _sent(self, series: _Series) -> None:
        """Finish a write or its pause. Queue the series again if its count has risen."""
        series.is_sending = False
        self._busy -= 1
        if series.is_due:
            self._push(series)
        elif not (self._busy or len(self._urgent) or len(self._children)):
            self._idle.set()

    async def _try(self, series: _Series) -> bool:
        """Write an event once; return False if the write must be retried."""
        try:
            await self._write(series)
        except (TooManyRequests, ServerError, aiohttp.ClientError, TimeoutError, OSError) as error:
            series.tries += 1
            if series.tries < TRIES:
                series.is_due = True
                return False
            self.dropped += 1
            self._log_unsent(log.warning, "event dropped", series, error=describe(error))
        except NamespaceTerminating:
            pass  # nobody can read it any more
        except Forbidden as error:
            self._log_unsent(log.warning, "event rejected", series, code=error.code, error=error.message)
        except ApiError as error:  # usually the namespace was deleted, so nobody can read its events
            self._log_unsent(log.info, "event rejected", series, code=error.code, error=error.message)
        except NotLeading:
            self.dropped += 1
        series.tries = 0
        return True

    def _log_unsent(self, write: Callable[..., object], line: str, series: _Series, **fields: object) -> None:
        """Log that an event was not written: once a minute and namespace for each error, which all its events meet."""
        namespace = series.subject.namespace
        repeats = self._unsent.record_fields(namespace, f"{line} {fields['error']}", UNSENT_SECONDS)
        if repeats is not None:
            write(line, namespace=namespace, reason=series.reason, **fields, **repeats)

    async def _write(self, series: _Series) -> None:
        """Create the event, or raise its count. The name is fixed, so that a second write changes nothing."""
        if series.is_made and await self._patch(series):
            return
        try:
            body = orjson.dumps(_body(series))
            await self._client.create(EVENTS, series.subject.namespace, body, level=PriorityLevel.EVENT)
        except AlreadyExists:  # created by a request whose response was lost; the count may have risen since
            if series.count > 1:
                await self._patch(series)
        series.is_made = True

    async def _patch(self, series: _Series) -> bool:
        """Raise the count. Return False if the event does not exist: it has expired, or was never created."""
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
