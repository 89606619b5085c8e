"""What is known of nodes: measured silence, and Node objects that are read on suspicion."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec
from structlog.testing import capture_logs

from api.meta import Resource
from api.nodes import NODES, NodeInterest, NodeState
from controller.kube import errors
from controller.kube.client import Client
from controller.runtime.nodes import (
    HEALTHY_SECONDS,
    MOST_READS,
    POLL_SECONDS,
    STANDSTILL_SECONDS,
    SUSPICIOUS_SECONDS,
    NodeMonitor,
    Renewals,
)
from tests.support.builders import NOON

HEARTBEAT = 10
"""Seconds between two renewals of a Lease."""


def silence_of(name: str, *reads: tuple[float, Mapping[str, Any]]) -> float | None:
    """Return the silence of a node after these reads, each a time and the renewals; None if it is unknown."""
    renewals = Renewals()
    for at, seen in reads:
        renewals.observe({name: str(renewal) for name, renewal in seen.items()}, at)
    return renewals.silent().get(name)


def healthy(until: int, **others: Any) -> list[tuple[float, Mapping[str, Any]]]:
    """Return reads every five seconds in which the node ``a`` renews its Lease and the others do not."""
    return [(at, {"a": at // HEARTBEAT, **others}) for at in range(0, until + 1, 5)]


def test_silence_counts_from_the_last_renewal_that_was_seen() -> None:
    assert silence_of("b", *healthy(60, b="x")) == 60
    assert silence_of("a", *healthy(60, b="x")) == 0


def test_the_clock_of_a_node_does_not_matter() -> None:
    reads = [(at, {"a": at // HEARTBEAT, "b": f"1999-{at // HEARTBEAT}"}) for at in range(0, 61, 5)]

    assert silence_of("b", *reads) == 0


def test_the_first_read_shows_no_silence() -> None:
    assert silence_of("b", (1000, {"a": 1, "b": "x"})) == 0


def test_silence_does_not_count_over_reads_that_failed() -> None:
    outage = STANDSTILL_SECONDS + 1

    assert silence_of("b", *healthy(20, b="x"), (20 + outage, {"a": 9, "b": "x"})) == 0


def test_a_failed_read_alone_loses_nothing() -> None:
    assert silence_of("b", *healthy(20, b="x"), (30, {"a": 3, "b": "x"})) == 30


def test_nothing_is_silent_while_no_lease_is_renewed() -> None:
    reads = [(at, {"a": 1, "b": 1}) for at in range(0, 61, 5)]

    assert silence_of("b", *reads) is None


def test_silence_counts_anew_when_the_first_leases_are_renewed_again() -> None:
    stalled = [(at, {"a": 2, "b": "x"}) for at in range(25, 61, 5)]

    assert silence_of("b", *healthy(20, b="x"), *stalled, (65, {"a": 3, "b": "x"})) == 0


def test_a_single_survivor_that_renews_late_is_progress_enough() -> None:
    """Polls are a little more than five seconds apart, so that some see a renewal after three polls."""
    times = [poll * (POLL_SECONDS + 0.1) for poll in range(40)]
    reads = [(at, {"a": int(at // 10.4), "b": "x"}) for at in times]

    assert silence_of("b", *reads) == times[-1]


def test_a_new_lease_and_one_that_is_gone_are_not_silent() -> None:
    assert silence_of("c", *healthy(20, b="x"), (25, {"a": 2, "c": 1})) == 0
    assert silence_of("b", *healthy(20, b="x"), (25, {"a": 2, "c": 1})) is None


class Nodes:
    """An API server with Node objects and Leases. Each node that is in ``alive`` renews its Lease."""

    def __init__(self, *names: str) -> None:
        self.alive = {*names}
        self.objects: dict[str, dict[str, Any]] = {name: node(name) for name in names}
        self.renewals = dict.fromkeys(names, 0)
        self.reads: list[str] = []
        self.refused: set[str] = set()
        """Plurals of the resources that cannot be read."""

    def now(self) -> datetime:
        return NOON + timedelta(seconds=asyncio.get_running_loop().time())

    def unready(self, name: str, **fields: Any) -> None:
        self.objects[name] = node(name, "Unknown", self.now(), **fields)

    async def get(self, resource: Resource, namespace: str, name: str, **_: Any) -> bytes:
        self._check(resource)
        self.reads.append(name)
        if name not in self.objects:
            raise errors.NotFound(404, "NotFound", f'nodes "{name}" not found')
        return msgspec.json.encode(self.objects[name])

    async def list(self, resource: Resource, namespace: str, **_: Any) -> bytes:
        self._check(resource)
        assert namespace == "kube-node-lease"
        time = int(asyncio.get_running_loop().time())
        self.renewals |= dict.fromkeys(self.alive, time // HEARTBEAT)
        leases = [
            {"metadata": {"name": name}, "spec": {"renewTime": str(renewal)}}
            for name, renewal in self.renewals.items()
        ]
        return msgspec.json.encode({"items": leases})

    def _check(self, resource: Resource) -> None:
        self.reads += [resource.plural] if resource != NODES else []
        if resource.plural in self.refused:
            raise errors.Forbidden(403, "Forbidden", f"{resource.plural} is forbidden")


def node(
    name: str, ready: str = "True", since: datetime = NOON, taints: Iterable[str] = (), **conditions: str
) -> dict[str, Any]:
    listed = [{"type": "Ready", "status": ready, "lastTransitionTime": f"{since:%Y-%m-%dT%H:%M:%SZ}"}]
    listed += [{"type": type_, "status": status} for type_, status in conditions.items()]
    return {
        "metadata": {"name": name},
        "spec": {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]},
        "status": {"conditions": listed},
    }


class Asker:
    """A job that asks about nodes."""

    def __init__(self, *nodes: str, seconds: int | None = 30, suspects: Iterable[str] = ()) -> None:
        self.nodes, self.seconds, self.suspects = frozenset(nodes), seconds, frozenset(suspects)
        self.woken: list[float] = []

    def interest(self) -> NodeInterest:
        return NodeInterest(self.nodes, self.suspects, self.seconds)

    def wake(self) -> None:
        self.woken.append(asyncio.get_running_loop().time())


@asynccontextmanager
async def monitoring(nodes: Nodes, *askers: Asker) -> AsyncIterator[NodeMonitor]:
    monitor = NodeMonitor(cast(Client, nodes), nodes.now)
    for number, asker in enumerate(askers):
        monitor.follow(str(number), asker.interest, asker.wake)
    task = asyncio.create_task(monitor.run())
    try:
        yield monitor
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_nothing_is_read_while_nobody_asks() -> None:
    nodes, asker = Nodes("a", "b"), Asker("b")
    async with monitoring(nodes) as monitor:
        await asyncio.sleep(600)
        assert nodes.reads == []
        monitor.follow("job", asker.interest, asker.wake)
        await asyncio.sleep(20)
        assert nodes.reads
        monitor.unfollow("job")
        nodes.reads.clear()
        await asyncio.sleep(600)

    assert nodes.reads == []


async def test_a_job_without_a_time_of_its_own_reads_suspicious_nodes_only() -> None:
    nodes = Nodes("a", "b")
    async with monitoring(nodes, Asker("a", "b", seconds=None, suspects=["b"])):
        await asyncio.sleep(3 * HEALTHY_SECONDS - 1)

    assert nodes.reads == ["b", "b", "b"]


async def test_healthy_nodes_are_not_read() -> None:
    nodes, asker = Nodes("a", "b"), Asker("a", "b")
    async with monitoring(nodes, asker) as monitor:
        await asyncio.sleep(600)
        assert monitor.states == {}

    assert {*nodes.reads} == {"leases"}
    assert asker.woken == []


async def test_a_job_is_woken_when_a_node_is_lost_for_it_and_when_it_returns() -> None:
    nodes, quick, slow, other = Nodes("a", "b"), Asker("b"), Asker("b", seconds=120), Asker("a")
    async with monitoring(nodes, quick, slow, other) as monitor:
        nodes.alive -= {"b"}
        await asyncio.sleep(60)
        assert (len(quick.woken), slow.woken) == (1, [])
        assert 30 <= quick.woken[0] <= 30 + HEARTBEAT + POLL_SECONDS
        assert monitor.states["b"].loss(30)
        await asyncio.sleep(120)
        assert len(slow.woken) == 1
        nodes.alive |= {"b"}
        await asyncio.sleep(20)
        assert monitor.states == {}

    assert (len(quick.woken), len(slow.woken), other.woken) == (2, 2, [])


async def test_a_node_that_is_not_ready_is_lost_although_its_kubelet_renews_the_lease() -> None:
    nodes, asker = Nodes("a", "b"), Asker("b", suspects=["b"])
    async with monitoring(nodes, asker) as monitor:
        await asyncio.sleep(1)
        nodes.unready("b")
        await asyncio.sleep(HEALTHY_SECONDS + 30)

        assert monitor.states["b"].silent_seconds >= 30
    assert len(asker.woken) == 1


async def test_a_node_is_gone_since_it_was_first_missed() -> None:
    nodes = Nodes("a", "b")
    del nodes.objects["b"]
    async with monitoring(nodes, Asker("b", seconds=None, suspects=["b"])) as monitor:
        await asyncio.sleep(1)
        assert monitor.states["b"] == NodeState("b", 0.0, is_gone=True)
        await asyncio.sleep(40)
        assert monitor.states["b"].loss(None) == "node b does not exist any more"


async def test_a_node_without_a_lease_is_read() -> None:
    nodes = Nodes("a", "b")
    del nodes.renewals["b"], nodes.objects["b"]
    nodes.alive -= {"b"}
    async with monitoring(nodes, Asker("b")) as monitor:
        await asyncio.sleep(61)

        assert monitor.states["b"].is_gone


async def test_the_state_of_a_node_that_cannot_be_read_is_unknown() -> None:
    nodes, asker = Nodes("a", "b"), Asker("b", suspects=["b"])
    nodes.unready("b", taints=["node.kubernetes.io/out-of-service"])
    async with monitoring(nodes, asker) as monitor:
        await asyncio.sleep(1)
        assert monitor.states["b"].is_out_of_service
        nodes.refused = {"nodes"}
        await asyncio.sleep(2 * POLL_SECONDS)
        assert monitor.states == {}
        assert monitor.error == "nodes cannot be read: nodes is forbidden"
        nodes.refused = set()
        await asyncio.sleep(POLL_SECONDS)
        assert monitor.error == ""

    assert len(asker.woken) == 3, "lost, unknown, lost"


async def test_without_leases_silence_is_unknown_and_the_condition_of_the_node_counts() -> None:
    nodes, asker = Nodes("a", "b"), Asker("a", "b", suspects=["b"])
    nodes.refused, nodes.alive = {"leases"}, {"a"}
    async with monitoring(nodes, asker) as monitor:
        await asyncio.sleep(50)
        assert monitor.states == {"b": NodeState("b")}
        assert "Leases of nodes cannot be read: leases is forbidden" in monitor.error
        nodes.unready("b")
        await asyncio.sleep(HEALTHY_SECONDS + 30)
        assert monitor.states["b"].loss(30)


async def test_an_outage_makes_no_node_look_lost() -> None:
    nodes, asker = Nodes("a", "b"), Asker("a", "b")
    async with monitoring(nodes, asker) as monitor:
        await asyncio.sleep(60)
        nodes.alive = set()  # the API server refuses all writes
        await asyncio.sleep(120)
        nodes.alive = {"a"}
        await asyncio.sleep(HEARTBEAT)
        assert monitor.states == {}
        nodes.alive = {"a", "b"}
        await asyncio.sleep(600)

    assert asker.woken == []


async def test_many_suspects_are_read_in_turn() -> None:
    names = [f"n{number:03}" for number in range(3 * MOST_READS)]
    nodes = Nodes(*names)
    for name in names:
        nodes.unready(name)
    async with monitoring(nodes, Asker(*names, seconds=None, suspects=names)):
        await asyncio.sleep(3 * POLL_SECONDS - 1)

    assert sorted(nodes.reads) == names


async def test_problems_of_a_suspicious_node_are_known() -> None:
    nodes = Nodes("a", "b")
    nodes.objects["b"] = node("b", KernelDeadlock="True", taints=["nvidia.com/gpu-xid-error"])
    async with monitoring(nodes, Asker("b", seconds=None, suspects=["b"])) as monitor:
        await asyncio.sleep(1)

        assert monitor.states["b"].problems == ("KernelDeadlock", "nvidia.com/gpu-xid-error")
        assert monitor.states["b"].loss(None) == ""


async def test_old_states_are_no_evidence() -> None:
    nodes = Nodes("a", "b")
    nodes.unready("b", taints=["node.kubernetes.io/out-of-service"])
    asker = Asker("b", suspects=["b"])
    async with monitoring(nodes, asker) as monitor:
        await asyncio.sleep(1)
        assert monitor.states["b"].is_out_of_service
        monitor.unfollow("0")
        await asyncio.sleep(STANDSTILL_SECONDS + POLL_SECONDS)

        assert monitor.states == {}


async def test_the_problems_of_a_node_with_a_failure_are_read_once() -> None:
    nodes = Nodes("a", "b")
    nodes.objects["b"] = node("b", ReadonlyFilesystem="True")
    async with monitoring(nodes) as monitor:
        assert await monitor.read_problems(["b", "c"])
        assert not await monitor.read_problems(["b", "c"])
        assert monitor.problems("b") == ("ReadonlyFilesystem",)
        assert monitor.problems("c") == ()
        assert monitor.states == {}
        await asyncio.sleep(HEALTHY_SECONDS)
        assert await monitor.read_problems(["b"])

    assert nodes.reads == ["b", "c", "b"]


async def test_nodes_whose_problems_may_not_be_read_are_logged_once() -> None:
    nodes = Nodes("a")
    nodes.refused.add("nodes")
    async with monitoring(nodes) as monitor:
        with capture_logs() as lines:
            for _ in range(3):
                assert await monitor.read_problems(["a"])
                await asyncio.sleep(HEALTHY_SECONDS)

        assert [(line["event"], line["node"]) for line in lines] == [
            ("problems of a failed node not read", "a")
        ]


def test_a_suspicion_needs_more_than_one_missed_renewal() -> None:
    assert SUSPICIOUS_SECONDS > HEARTBEAT + POLL_SECONDS
