"""Watches over nodes for those who ask: whether kubelets renew their Leases, and what suspicious Node objects say.

Nothing is read while nobody asks. Then the Leases are listed every few seconds, if somebody takes silent nodes as lost, and Node objects are
read by name only while there is a reason to suspect them. A watch would be silent both if a node is lost and if the watch is.

Silence is measured on the clock of this process, between reads that succeeded, and only while other nodes renew their Leases: neither a wrong
clock of a node, nor a stopped process, nor an API server that refuses reads or writes makes a healthy node look lost.

Source: the rule about clocks is that of client-go's leader election; kube-controller-manager stops evictions in such outages, too
(pkg/controller/nodelifecycle, full disruption).
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import aiohttp
import msgspec
import structlog

from api.meta import LEASES
from api.nodes import NODE_LEASES, NODES, Node, NodeInterest, NodeState, node_from_json, renewals_from_json
from controller.kube import errors
from controller.kube.bounded_dict import BoundedDict
from controller.kube.client import Client
from controller.kube.concurrency import PriorityLevel
from controller.kube.failure_log import FailureLog

POLL_SECONDS: Final = 5.0
"""Between two reads."""
TIMEOUT_SECONDS: Final = 4.0
"""For all reads of one poll."""
SUSPICIOUS_SECONDS: Final = 20.0
"""A node that has been silent for this long, two renewals, is read by name."""
STANDSTILL_SECONDS: Final = 20.0
"""If reads fail, or no Lease at all is renewed, for longer than this, what was measured before does not count.

More than lies between two renewals of a single survivor, 10.4 s apart, as polls with slow responses see them.
"""
HEALTHY_SECONDS: Final = 30.0
"""How long a suspicion about a node whose object says that it is healthy is not checked again."""
MOST_READS: Final = 64
"""Nodes read by one poll. The others follow in the next polls."""

REMEMBERED_NODES: Final = 1024
"""Nodes whose problems are remembered."""

LOG_AGAIN_SECONDS: Final = 3600.0
_FAILURES = (errors.ApiError, aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError)

log = structlog.get_logger()


class Renewals:
    """For how long each node has not renewed its Lease. Times are loop times."""

    def __init__(self) -> None:
        self._renewed: dict[str, tuple[str, float]] = {}
        """The last renewal of each node, and when it was first seen."""
        self._read_at: float | None = None
        self._progress_at = 0.0
        """When a new renewal was last seen."""

    def observe(self, renewals: Mapping[str, str], now: float) -> None:
        """Record the ``renewTime`` of each node's Lease."""
        before, is_first = self._renewed, self._read_at is None or now - self._read_at > STANDSTILL_SECONDS
        self._renewed = {
            name: before[name] if name in before and before[name][0] == renewal else (renewal, now)
            for name, renewal in renewals.items()
        }
        has_progress = any(since == now for _, since in self._renewed.values())
        if is_first or (has_progress and now - self._progress_at > STANDSTILL_SECONDS):
            self._renewed = {name: (renewal, now) for name, renewal in renewals.items()}
        if is_first or has_progress:
            self._progress_at = now
        self._read_at = now

    def silent(self) -> dict[str, float]:
        """Return the seconds of silence of each node at the last read; nothing while no node renews its Lease."""
        now = self._read_at
        if now is None or now - self._progress_at > STANDSTILL_SECONDS:
            return {}
        return {name: now - since for name, (_, since) in self._renewed.items()}


@dataclass(slots=True)
class _Follower:
    interest: Callable[[], NodeInterest]
    wake: Callable[[], None]
    lost: frozenset[str] = frozenset()
    """The nodes that were lost for it when it was last woken."""


@dataclass(slots=True)
class _Read:
    """A node as last read; ``node`` is None if it did not exist, since ``gone_since``."""

    at: float
    node: Node | None
    gone_since: float = 0.0

    @property
    def is_healthy(self) -> bool:
        return self.node is not None and self.node.not_ready_since is None

    def is_due(self, now: float) -> bool:
        """Return whether the node is to be read again."""
        return not self.is_healthy or now - self.at >= HEALTHY_SECONDS


class NodeMonitor:
    """The states of nodes, for all jobs that ask. If it is lost, as at a restart, silence is measured anew."""

    def __init__(self, client: Client, now: Callable[[], datetime]) -> None:
        """``now`` is the API server's time, which the conditions of nodes have."""
        self._client = client
        self._now = now
        self._followers: dict[str, _Follower] = {}
        self._is_followed = asyncio.Event()
        self._renewals = Renewals()
        self._reads: dict[str, _Read] = {}
        self._states: Mapping[str, NodeState] = {}
        self._polled_at = -STANDSTILL_SECONDS
        self._problems: BoundedDict[str, tuple[float, tuple[str, ...]]] = BoundedDict(REMEMBERED_NODES)
        """When a node with a failure was read, and its problems."""
        self._unread = FailureLog[str]()
        self.error = ""
        """Why nodes or their Leases could not be read; empty if they could."""

    @property
    def states(self) -> Mapping[str, NodeState]:
        """The nodes that may be lost or have problems, as of the last poll. Old states are no evidence."""
        return self._states if _time() - self._polled_at <= STANDSTILL_SECONDS else {}

    def problems(self, name: str) -> tuple[str, ...]:
        """Return the problems that a node had when ``read_problems`` read it."""
        return self._problems[name][1] if name in self._problems else ()

    async def read_problems(self, names: Iterable[str]) -> bool:
        """Read nodes that have not been read lately, and return whether there were any. A node that cannot be read has no known problem."""
        due = [name for name in names if self._is_unread(name)][:MOST_READS]
        if not due:
            return False

        async def read(name: str) -> None:
            try:
                answer = await self._client.get(NODES, "", name, level=PriorityLevel.CHILD)
            except errors.NotFound:
                return
            except _FAILURES as failure:
                text = errors.describe(failure)
                if (fields := self._unread.record_fields(name, text, LOG_AGAIN_SECONDS)) is not None:
                    log.warning("problems of a failed node not read", node=name, error=text, **fields)
                return
            self._problems[name] = (_time(), node_from_json(answer).problems)

        for name in due:
            self._problems[name] = (_time(), ())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.gather(*map(read, due))
        return True

    def _is_unread(self, name: str) -> bool:
        return name not in self._problems or _time() - self._problems[name][0] >= HEALTHY_SECONDS

    def follow(self, uid: str, interest: Callable[[], NodeInterest], wake: Callable[[], None]) -> None:
        """Watch over the nodes of a job; ``wake`` is called when more or fewer of them are lost for it.

        ``interest`` is called at each poll.
        """
        known = self._followers.get(uid)
        self._followers[uid] = _Follower(interest, wake, known.lost if known else frozenset())
        self._is_followed.set()

    def unfollow(self, uid: str) -> None:
        """Stop to watch over the nodes of a job."""
        if self._followers.pop(uid, None) is not None and not self._followers:
            self._is_followed.clear()

    async def run(self) -> None:
        """Poll until canceled."""
        while True:
            await self._is_followed.wait()
            await self.poll()
            await asyncio.sleep(POLL_SECONDS)

    async def poll(self) -> None:
        """Read what the followers want to know, and wake those for whom something has changed."""
        wanted: list[NodeInterest] = []
        for follower in list(self._followers.values()):
            wanted.append(follower.interest())
            await asyncio.sleep(0)
        silent: Mapping[str, float] = {}
        error = ""
        if any(interest.lost_seconds is not None and interest.nodes for interest in wanted):
            silent, error = await self._silent()
        error = await self._read_all(_suspects(wanted, silent)) or error
        is_other = error != self.error
        if error and is_other:
            log.warning("nodes not read", error=error)
        self.error = error
        self._states, self._polled_at = self._judged(silent), _time()
        await self._wake(is_other=is_other)

    async def _silent(self) -> tuple[dict[str, float], str]:
        """Return the seconds of silence of each node, and why they are unknown."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                # From the watch cache of the API server. A stale one shows no renewal at all.
                raw = await self._client.list(
                    LEASES, NODE_LEASES, params={"resourceVersion": "0"}, level=PriorityLevel.CHILD
                )
            self._renewals.observe(renewals_from_json(raw), _time())
        except _FAILURES as failure:
            return {}, f"the Leases of nodes cannot be read: {errors.describe(failure)}"
        return self._renewals.silent(), ""

    async def _read_all(self, suspects: Collection[str]) -> str:
        """Read these nodes unless they were healthy lately; return why a read failed, empty if none did."""
        began = _time()
        self._reads = {name: read for name, read in self._reads.items() if name in suspects}
        due = [name for name in suspects if name not in self._reads or self._reads[name].is_due(began)]
        due.sort(key=lambda name: self._reads[name].at if name in self._reads else -1.0)
        failures = list[Exception]()

        async def read(name: str) -> None:
            try:
                await self._read(name)
            except _FAILURES as failure:
                failures.append(failure)

        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.gather(*map(read, due[:MOST_READS]))
        except TimeoutError as failure:
            failures.append(failure)
        for name in due[:MOST_READS]:
            if name in self._reads and self._reads[name].at < began:
                del self._reads[name]  # not known any more
        return f"nodes cannot be read: {errors.describe(failures[0])}" if failures else ""

    async def _read(self, name: str) -> None:
        known, now = self._reads.get(name), _time()
        try:
            node = node_from_json(await self._client.get(NODES, "", name, level=PriorityLevel.CHILD))
        except errors.NotFound:
            node = None
        is_still_gone = known is not None and known.node is None
        self._reads[name] = _Read(now, node, known.gone_since if known and is_still_gone else now)

    def _judged(self, silent: Mapping[str, float]) -> dict[str, NodeState]:
        now = _time()
        states = {
            name: NodeState(name, seconds)
            for name, seconds in silent.items()
            if seconds >= SUSPICIOUS_SECONDS
        }
        for name, read in self._reads.items():
            quiet = states[name].silent_seconds if name in states else 0.0
            if read.node is None:
                states[name] = NodeState(name, max(quiet, now - read.gone_since), is_gone=True)
                continue
            since = read.node.not_ready_since
            unready = max((self._now() - since).total_seconds(), 0.0) if since else 0.0
            states[name] = NodeState(
                name,
                max(quiet, unready),
                is_out_of_service=read.node.is_out_of_service,
                problems=read.node.problems,
            )
        return states

    async def _wake(self, *, is_other: bool) -> None:
        """Wake followers for whom nodes are lost that were not, or the reverse; and those that wait for an error to end or to be reported."""
        states = self._states
        for follower in list(self._followers.values()):
            interest = follower.interest()
            lost = frozenset(
                name for name in interest.nodes if name in states and states[name].loss(interest.lost_seconds)
            )
            if lost != follower.lost or (is_other and interest.lost_seconds is not None):
                follower.lost = lost
                follower.wake()
            await asyncio.sleep(0)


def _suspects(wanted: Iterable[NodeInterest], silent: Mapping[str, float]) -> dict[str, None]:
    """Return the nodes to read by name: those with pods that terminate or are not ready, and those without a renewed Lease."""
    names = set[str]()
    for interest in wanted:
        names |= interest.suspects
        if silent and interest.lost_seconds is not None:
            names |= {
                name for name in interest.nodes if silent.get(name, SUSPICIOUS_SECONDS) >= SUSPICIOUS_SECONDS
            }
    return dict.fromkeys(sorted(names))


def _time() -> float:
    return asyncio.get_running_loop().time()
