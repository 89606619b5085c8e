"""Simulated leader election: at most a single process writes at any time, and one finally leads, despite pauses, crashes and lost messages."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from typing_extensions import override

from controller.runtime.leader import Election
from tests.support.simulation import SimulatedClient, SimulatedLoop, SimulatedServer, Simulation

RATES = st.sampled_from([1.0, 0.86, 1.19])
"""Of clocks. Even the fastest and the slowest differ by less than the lease and the deadline of writes do."""
SECONDS = st.sampled_from([0.01, 0.5, 1.9, 2.1, 4.0, 9.0, 11.0, 16.0])
WHICH = st.integers(0, 2)
AGAIN_SECONDS = 1.0
"""The delay before a process that ended by itself is started again."""


class Process:
    """A process with a loop of its own: it stands for election, and writes while it may."""

    def __init__(
        self,
        simulation: Simulation,
        server: SimulatedServer,
        written: list[str],
        rate: float,
        names: Iterator[str],
    ) -> None:
        self.loop = SimulatedLoop(simulation, rate)
        self.clients = (
            SimulatedClient(simulation, self.loop, server),
            SimulatedClient(simulation, self.loop, server),
        )
        """For the Lease, and for everything else."""
        self._written = written
        self._names = names
        self._tasks: list[asyncio.Task[None]] = []
        self.start()

    @property
    def is_running(self) -> bool:
        return bool(self._tasks)

    @property
    def is_leader(self) -> bool:
        return self.is_running and self.election.permit() > 0

    def start(self) -> None:
        if self.is_running:
            return
        name = next(self._names)
        self.election = Election(
            self.clients[0].as_client(), [("kubeflow", "lock")], name, time=self.loop.time
        )
        self._stopping = asyncio.Event()
        self._tasks = [
            self.loop.create_task(self._stands(self._stopping)),
            self.loop.create_task(self._writes(name, self._stopping)),
        ]

    def kill(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    def stop(self) -> None:
        """Finish the write in progress while the election goes on, then leave it and release the Lease, as the controller does."""
        (standing, writing), election = self._tasks, self.election
        self._tasks = []
        self._stopping.set()

        async def ends() -> None:
            await asyncio.wait([writing])
            standing.cancel()
            await asyncio.wait([standing])
            await election.release()

        self._last = self.loop.create_task(ends())

    async def _stands(self, stopping: asyncio.Event) -> None:
        with contextlib.suppress(BaseExceptionGroup):
            await self.election.run()
        if not stopping.is_set():
            self.kill()
            self.loop.call_later(AGAIN_SECONDS, self.start)

    async def _writes(self, name: str, stopping: asyncio.Event) -> None:
        events = [asyncio.ensure_future(event.wait()) for event in (self.election.won, stopping)]
        try:
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for event in events:
                event.cancel()
        while not stopping.is_set() and (seconds := self.election.permit()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.clients[1].call(lambda: self._write(name))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await stopping.wait()

    def _write(self, name: str) -> bytes:
        """At the server, when it arrives there."""
        if not self._written or self._written[-1] != name:
            self._written.append(name)
        return b""


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.simulation = Simulation()
        self.server = SimulatedServer()
        self.written: list[str] = []
        """The writers, one entry for each change of writer."""
        self.processes: list[Process] = []

    @initialize(rates=st.tuples(RATES, RATES, RATES))
    def begin(self, rates: tuple[float, ...]) -> None:
        names = map(str, itertools.count())
        self.simulation.on_step = self.leadership_is_exclusive
        self.processes = [Process(self.simulation, self.server, self.written, rate, names) for rate in rates]

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.simulation.advance(seconds)

    @rule(which=WHICH, seconds=SECONDS)
    def is_stopped_and_goes_on(self, which: int, seconds: float) -> None:
        """SIGSTOP and SIGCONT have this effect, and so has an overloaded machine."""
        self.processes[which].loop.paused_until = self.simulation.now + seconds

    @rule(seconds=SECONDS)
    def the_leader_is_stopped_and_goes_on(self, seconds: float) -> None:
        for process in self.processes:
            if process.is_leader:
                process.loop.paused_until = self.simulation.now + seconds

    @rule(which=WHICH, client=st.integers(0, 1), receives=st.booleans(), sends=st.booleans())
    def the_network_changes(self, which: int, client: int, receives: bool, sends: bool) -> None:
        changed = self.processes[which].clients[client]
        changed.receives, changed.sends = receives, sends

    @rule(seconds=st.sampled_from([7.0, 20.0]), receives=st.booleans())
    def the_leader_cannot_renew_for_a_while(self, seconds: float, receives: bool) -> None:
        client = next((process.clients[0] for process in self.processes if process.is_leader), None)
        if client:
            client.receives, client.sends = receives, False
            self.time_passes(seconds)
            client.receives = client.sends = True

    @rule(latency=st.sampled_from([0.001, 0.05, 0.3]))
    def messages_take(self, latency: float) -> None:
        self.simulation.latency = latency

    @rule(which=WHICH)
    def is_killed(self, which: int) -> None:
        self.processes[which].kill()

    @rule(which=WHICH)
    def a_process_stops(self, which: int) -> None:
        if self.processes[which].is_running:
            self.processes[which].stop()

    @rule(which=WHICH)
    def is_started(self, which: int) -> None:
        self.processes[which].start()

    @rule()
    def all_is_well_and_the_leader_hands_over(self) -> None:
        self.simulation.latency = 0.05
        for process in self.processes:
            for client in process.clients:
                client.receives = client.sends = True
            process.loop.paused_until = 0.0
            process.start()
        self.time_passes(120)
        (leader,) = [process for process in self.processes if process.is_leader]
        before = len(self.written)
        leader.stop()
        self.time_passes(1)
        assert sum(process.is_leader for process in self.processes) == 1
        assert len(self.written) == before + 1

    @invariant()
    def leadership_is_exclusive(self) -> None:
        assert sum(process.is_leader for process in self.processes) <= 1

    @invariant()
    def who_has_written_is_followed_for_good(self) -> None:
        assert len(self.written) == len(set(self.written))

    @override
    def teardown(self) -> None:
        self.simulation.close()


Machine.TestCase.settings = settings(
    max_examples=50, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestWhateverHappens = Machine.TestCase
