"""Informer and store under arbitrary faults: in the end the store equals the server.

Beside the informer, the test creates objects as the controller does: it creates what the store misses, and it stores each response,
before or after the watch reports the same change.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

import msgspec
import orjson
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from typing_extensions import override

from api.children import Service, service_from_json
from api.meta import Resource
from controller.kube.client import Client
from controller.kube.errors import AlreadyExists, Conflict, NotFound
from controller.runtime.informer import Informer
from controller.runtime.relist import Relist
from tests.support import fake_time
from tests.support.faults import Cut, Delay, Drop, Fault, Lag, Refuse, Reset, Rule, Say
from tests.support.harness import NAMESPACE, start_harness

T = TypeVar("T")
CONFIGMAPS = Resource(group="", version="v1", kind="ConfigMap", plural="configmaps")
THEIRS = st.sampled_from(["a", "b", "c"])
OURS = st.sampled_from(["slot-0", "slot-1"])
SECONDS = st.sampled_from([0.0, 0.2, 1.5, 20.0, 70.0, 200.0, 700.0])
FAULTS = st.sampled_from(
    [
        Cut(),
        Reset(),
        Reset(committed=True),
        Delay(3),
        Delay(100),
        Lag(0.5),
        Lag(10),
        Say(),
        Say(b"<html>"),
        Refuse(403, "Forbidden"),
        Refuse(410, "Expired"),
        Refuse(422, "Invalid"),
        Refuse(429, "TooManyRequests", retry_after_seconds=7),
        Refuse(500, "InternalError"),
        Refuse(503, "ServiceUnavailable"),
    ]
)
SETTLED_SECONDS = 1800.0
"""Longer than all pauses and silences together."""


class InformerMachine(RuleBasedStateMachine):
    """Writes of others, own writes, and faults of the connection between."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = fake_time.new_event_loop()
        self.closing = AsyncExitStack()
        self.answers: dict[str, Callable[[], None]] = {}
        """Effects of own writes whose responses are under way. Nothing else writes to these names meanwhile."""
        self.reported: dict[str, int] = {}
        """Versions as ``on_change`` has reported them."""
        self.answered: dict[str, int] = {}
        """Versions that are known from responses; ``on_change`` need not report them."""
        self.newest: dict[str, int] = {}
        self.last_synced_resource_version = 0
        self.steps = 0
        self.loses_events = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        self.steps += 1
        return self.loop.run_until_complete(work)

    @initialize(streams=st.booleans(), faults=st.lists(FAULTS, max_size=2))
    def start(self, streams: bool, faults: list[Fault]) -> None:
        old = [] if streams else [Rule(Refuse(422, "Invalid"), verb="watch", times=1)]
        self.run(self._start([*old, *(Rule(fault, times=1) for fault in faults)]))

    async def _start(self, rules: list[Rule]) -> None:
        self.harness = await self.closing.enter_async_context(start_harness(*rules, crds=(), history=6))
        client = await self.closing.enter_async_context(Client(self.harness.connection))
        self.informer = Informer[Service](client, CONFIGMAPS, service_from_json, self.on_change)
        self.store = self.informer.store
        self.task = asyncio.create_task(self.informer.run())
        self.relisting = asyncio.create_task(Relist(self.informer).run())
        self.leading = Informer[Service](
            self.harness.client, CONFIGMAPS, service_from_json, lambda before, after: None
        )
        """That of the last leader, which meets no fault."""
        following = asyncio.create_task(self.leading.run())
        for task in (self.task, self.relisting, following):
            self.closing.push_async_callback(asyncio.wait, [task])
            self.closing.callback(task.cancel)

    def on_change(self, before: Service | None, after: Service | None) -> None:
        if after is not None:
            self.reported[after.name] = after.resource_version
        elif before is not None:
            # The initial list of a watch consists of events, too: a relist restores an object whose event was lost.
            is_gone = before.uid not in self.harness.server.store.owners
            assert is_gone or self.loses_events, "an existing object is not reported as deleted"
            self.reported.pop(before.name, None)  # unknown if it came by an answer

    async def make(self, name: str) -> bytes:
        return await self.harness.client.create(
            CONFIGMAPS, NAMESPACE, orjson.dumps({"metadata": {"name": name}})
        )

    @rule(name=THEIRS)
    def others_make(self, name: str) -> None:
        async def make_or_change() -> None:
            try:
                await self.make(name)
            except AlreadyExists:
                change = orjson.dumps({"data": {"step": str(self.steps)}})
                await self.harness.client.patch(CONFIGMAPS, NAMESPACE, name, change)

        self.run(make_or_change())

    @rule(name=THEIRS | OURS)
    def others_delete(self, name: str) -> None:
        with suppress(NotFound):
            self.run(self.harness.client.delete(CONFIGMAPS, NAMESPACE, name))

    @precondition(lambda self: self.informer.synced.is_set())
    @rule(name=OURS)
    def we_make_what_is_missing(self, name: str) -> None:
        """Nobody else makes objects of these names, so the server has no cause to say that it is there already, unless its list lost an event."""
        if name in self.answers or self.store.get(NAMESPACE, name) is not None:
            return
        try:
            made = service_from_json(self.run(self.make(name)))
        except AlreadyExists:
            assert self.loses_events, "the store is missing an object that exists"
            return

        def arrive() -> None:
            self.store.put(made)
            self.answered[name] = made.resource_version

        self.answers[name] = arrive

    @precondition(lambda self: self.informer.synced.is_set())
    @rule(name=OURS)
    def we_delete(self, name: str) -> None:
        row = self.store.get(NAMESPACE, name)
        if name in self.answers or row is None or row.deleting:
            return
        with suppress(NotFound, Conflict):
            self.run(self.harness.client.delete(CONFIGMAPS, NAMESPACE, name, uid=row.uid))

        def arrive() -> None:
            known = self.store.get(NAMESPACE, name)
            if known is not None and known.uid == row.uid:
                self.store.amend(msgspec.structs.replace(known, deleting=True))

        self.answers[name] = arrive

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def an_answer_arrives(self, data: st.DataObject) -> None:
        self.answers.pop(data.draw(st.sampled_from(sorted(self.answers))))()

    @rule(fault=FAULTS, verb=st.sampled_from(["watch", "list", ""]))
    def something_will_go_wrong(self, fault: Fault, verb: str) -> None:
        self.harness.faults.rules.append(Rule(fault, verb=verb, times=1))

    @rule()
    def an_event_will_be_lost(self) -> None:
        """The watch does not report it; only a relist finds it."""
        self.loses_events = True
        self.harness.faults.rules.append(Rule(Drop(), verb="watch", times=1))

    @rule()
    def watches_end(self) -> None:
        self.harness.server.store.close_watchers()

    @rule()
    def the_server_compacts(self) -> None:
        """The resource versions of all watches but those under way expire."""
        self.harness.server.store.collection("/configmaps").compact()

    @rule()
    def a_new_list_is_delayed(self) -> None:
        """The server has made the list, and its response is under way."""
        self.harness.faults.rules += [
            Rule(Refuse(410, "Expired"), verb="watch", times=1),
            Rule(Delay(3, committed=True), verb="list", times=1),
        ]
        self.harness.server.store.close_watchers()
        self.run(asyncio.sleep(1.5))

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @precondition(lambda self: self.informer.synced.is_set())
    @rule(is_handed_over=st.booleans())
    def a_leader_takes_over(self, is_handed_over: bool) -> None:
        """If the informer says that it has caught up, the store equals the server, however late its watch is."""

        async def catch_up() -> None:
            await asyncio.sleep(5)  # until the last leader knows what happened
            versions = await self._live()
            latest_change = self.leading.store.latest_change if is_handed_over else None
            if await self.informer.catch_up(latest_change, listed_rows=0) and not self.loses_events:
                assert {row.name: row.resource_version for row in self.store} == versions

        self.run(catch_up())

    @invariant()
    def nothing_gets_older(self) -> None:
        if not self.steps:
            return
        assert self.store.last_synced_resource_version >= self.last_synced_resource_version
        self.last_synced_resource_version = self.store.last_synced_resource_version
        for row in self.store:
            assert row.resource_version >= self.newest.get(row.uid, 0)
            self.newest[row.uid] = row.resource_version

    @invariant()
    def calls_are_limited(self) -> None:
        if self.steps:
            assert len(self.harness.calls) <= 5 + 3 * self.steps + 6 * self.loop.time() / 60

    @override
    def teardown(self) -> None:
        try:
            if self.steps:
                self.run(self._settle())
        finally:
            self.run(self.closing.aclose())
            self.loop.close()

    async def _settle(self) -> None:
        """After the last fault and event the store equals the server, and every object was reported."""
        self.harness.faults.rules.clear()
        for arrive in self.answers.values():
            arrive()
        await asyncio.sleep(SETTLED_SECONDS)
        for task in (self.task, self.relisting):
            if task.done():
                task.result()
        assert not self.store.unselected
        versions = await self._live()
        assert {row.name: row.resource_version for row in self.store} == versions
        assert self.reported.keys() <= versions.keys()
        for name, version in versions.items():
            assert version in {self.reported.get(name), self.answered.get(name)}

    async def _live(self) -> dict[str, int]:
        """Return the versions of the server's objects."""
        live = msgspec.json.decode(await self.harness.client.list(CONFIGMAPS, NAMESPACE), type=_List).items
        return {row.name: row.resource_version for row in map(service_from_json, live)}


class _List(msgspec.Struct):
    items: list[msgspec.Raw]


TestInformerMachine = InformerMachine.TestCase
TestInformerMachine.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
