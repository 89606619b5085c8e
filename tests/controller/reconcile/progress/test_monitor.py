"""Jobs that hang are found, and those that are well never, whatever clocks and reads do. On fake time."""

import asyncio
import random
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from api.progress import Progress
from controller.domain import Hang
from controller.kube import errors
from controller.kube.client import Client
from controller.policy.hangs import ObservedJob, RunningPod
from controller.reconcile.progress import ProgressMonitor
from controller.runtime import clock
from tests.support.builders import NOON

DEADLINE = 100
START = datetime(2026, 1, 1, tzinfo=UTC)


class Pods:
    """The part of a client that reads logs. ``lines`` are the times of each pod's lines in seconds of the loop, in their order."""

    def __init__(self, chance: random.Random, *, failing: float = 0.0) -> None:
        self.lines: dict[str, list[float]] = {}
        self.skew: dict[str, float] = {}
        self.error: Exception = errors.ServerError(500, "", "the kubelet does not answer")
        self.failing = failing
        self.reads = 0
        self._chance = chance

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        self.reads += 1
        if self._chance.random() < 0.1:
            await asyncio.sleep(self._chance.uniform(0, 5))
        if self._chance.random() < self.failing:
            raise self.error
        pod = path.split("/")[-2]
        now = asyncio.get_running_loop().time()
        written = bisect_right(self.lines[pod], now)
        if not written:
            return b""
        at = START + timedelta(seconds=self.lines[pod][written - 1] + self.skew.get(pod, 0))
        return f"{at.isoformat(timespec='microseconds')} step".encode()

    def socket(self, *_: object) -> object:
        raise errors.Forbidden(403, "Forbidden", "pods/exec is forbidden")


def job(name: str = "train", count: int = 4, **fields: Any) -> ObservedJob:
    pods = tuple(
        RunningPod("worker", f"{name}-{index}", f"{name}-uid-{index}", "node", "pytorch", NOON)
        for index in range(count)
    )
    return ObservedJob("ml", name, DEADLINE, Progress.model_validate(fields), 0, pods)


@asynccontextmanager
async def monitor(pods: Pods, now: Callable[[], datetime] | None = None) -> AsyncIterator[ProgressMonitor]:
    given = ProgressMonitor(cast(Client, pods), now or clock.now)
    task = asyncio.create_task(given.run())
    yield given
    task.cancel()
    await asyncio.wait([task])


class Watcher:
    """Observes jobs as reconciles do, and records their hangs with the time."""

    def __init__(self, given: ProgressMonitor) -> None:
        self._monitor = given
        self.hangs: dict[str, list[tuple[float, Hang]]] = {}
        self.unread: dict[str, str] = {}

    def observe(self, observed: ObservedJob) -> None:
        state = self._monitor.observe(observed.name, observed, lambda: self.observe(observed))
        self.unread[observed.name] = state.unread
        if state.hang:
            now = asyncio.get_running_loop().time()
            self.hangs.setdefault(observed.name, []).append((now, state.hang))


def times(chance: random.Random, until: float, longest: float) -> list[float]:
    """Return the times of lines with random gaps up to ``longest``."""
    at, found = 0.0, list[float]()
    while at < until:
        at += chance.uniform(0, longest)
        found.append(at)
    return found


@pytest.mark.parametrize("jobs", [100, pytest.param(1000, marks=pytest.mark.full)])
async def test_jobs_that_are_well_never_hang(jobs: int) -> None:
    """Gaps of up to 0.8 of the deadline, clocks that are wrong by a second, one read in ten that fails; often only one rank writes."""
    chance = random.Random(1)
    pods = Pods(chance, failing=0.1)
    until = 4.0 * DEADLINE
    async with monitor(pods) as given:
        watcher = Watcher(given)
        for number in range(jobs):
            observed = job(f"run-{number}", chance.choice([1, 2, 4]), everyPod=number % 4 == 0)
            writers = observed.pods if number % 2 == 0 else observed.pods[:1]
            for pod in observed.pods:
                pods.skew[pod.name] = chance.uniform(-1, 1)
                pods.lines[pod.name] = times(chance, until, 0.8 * DEADLINE) if pod in writers else []
            watcher.observe(observed)
        await asyncio.sleep(until)

    assert watcher.hangs == {}
    assert pods.reads > 40 * jobs


async def test_each_of_a_hundred_hangs_is_found_soon_and_named() -> None:
    chance = random.Random(2)
    pods = Pods(chance, failing=0.1)
    stopped: dict[str, tuple[float, str]] = {}
    async with monitor(pods) as given:
        watcher = Watcher(given)
        for number in range(100):
            observed, at = job(f"run-{number}"), chance.uniform(0, 3 * DEADLINE)
            culprit = chance.choice(observed.pods)
            for pod in observed.pods:
                pods.skew[pod.name] = chance.uniform(-1, 1)
                last = at - (0.4 * DEADLINE if pod is culprit else 0)
                pods.lines[pod.name] = [
                    time for time in times(chance, 3 * DEADLINE, 0.1 * DEADLINE) if time < last
                ]
            stopped[observed.name] = at, culprit.name
            watcher.observe(observed)
        await asyncio.sleep(6 * DEADLINE)

    assert set(watcher.hangs) == set(stopped)
    assert all(
        found[0][1].message.endswith("no stacks: pods/exec is forbidden in namespace ml")
        for found in watcher.hangs.values()
    )
    for name, found in watcher.hangs.items():
        at, culprit_name = stopped[name]
        ((seen, hang),) = found
        assert seen - at < 1.8 * DEADLINE
        assert hang.pod == culprit_name or at < DEADLINE


async def test_one_pod_is_read_while_the_job_is_well() -> None:
    pods = Pods(random.Random(3))
    observed = job(count=64)
    pods.lines = {pod.name: [float(time) for time in range(1000)] for pod in observed.pods}
    async with monitor(pods) as given:
        Watcher(given).observe(observed)
        await asyncio.sleep(10 * DEADLINE)

    assert 64 < pods.reads < 64 + 110


async def test_progress_ends_a_hang() -> None:
    pods = Pods(random.Random(4))
    observed = job(count=1)
    pods.lines = {"train-0": [1, 300]}
    async with monitor(pods) as given:
        watcher = Watcher(given)
        watcher.observe(observed)
        await asyncio.sleep(290)
        assert given.observe("train", observed, lambda: None).hang is not None
        await asyncio.sleep(20)

        assert given.observe("train", observed, lambda: None).hang is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda: None, id="a pause"),
        pytest.param(lambda: job(count=3), id="other pods"),
    ],
)
async def test_the_clock_begins_again(change: Callable[[], ObservedJob | None]) -> None:
    pods = Pods(random.Random(5))
    pods.lines = {f"train-{index}": [] for index in range(4)}
    async with monitor(pods) as given:
        watcher = Watcher(given)
        watcher.observe(job())
        await asyncio.sleep(0.9 * DEADLINE)
        given.observe("train", change(), lambda: None)
        given.observe("train", job(), lambda: watcher.observe(job()))
        await asyncio.sleep(0.9 * DEADLINE)
        assert watcher.hangs == {}
        await asyncio.sleep(0.5 * DEADLINE)

    assert len(watcher.hangs["train"]) == 1


async def test_a_pause_before_the_attempt_does_not_count() -> None:
    pods = Pods(random.Random(10))
    pods.lines = {f"train-{index}": [] for index in range(4)}
    observed = replace(job(), not_before=clock.now() + timedelta(seconds=3 * DEADLINE))
    async with monitor(pods) as given:
        watcher = Watcher(given)
        watcher.observe(observed)
        await asyncio.sleep(3.5 * DEADLINE)
        assert watcher.hangs == {}
        await asyncio.sleep(DEADLINE)

    assert "train" in watcher.hangs


async def test_the_pause_is_measured_by_the_servers_clock() -> None:
    """It ends at a time that the operator wrote as the server's."""
    pods = Pods(random.Random(10))
    pods.lines = {f"train-{index}": [] for index in range(4)}
    offset = timedelta(days=-1)
    observed = replace(job(), not_before=clock.now() + offset + timedelta(seconds=3 * DEADLINE))
    async with monitor(pods, lambda: clock.now() + offset) as given:
        watcher = Watcher(given)
        watcher.observe(observed)
        await asyncio.sleep(3.5 * DEADLINE)
        assert watcher.hangs == {}
        await asyncio.sleep(DEADLINE)

    assert "train" in watcher.hangs


async def test_a_job_that_is_gone_is_not_read_any_more() -> None:
    pods = Pods(random.Random(6))
    pods.lines = {f"train-{index}": [] for index in range(4)}
    async with monitor(pods) as given:
        Watcher(given).observe(job())
        await asyncio.sleep(DEADLINE)
        given.discard("train")
        before = pods.reads
        await asyncio.sleep(DEADLINE)

    assert pods.reads == before


async def test_logs_that_cannot_be_read_are_no_silence_and_are_reported() -> None:
    pods = Pods(random.Random(7), failing=1.0)
    async with monitor(pods) as given:
        watcher = Watcher(given)
        watcher.observe(job())
        await asyncio.sleep(0.5 * DEADLINE)
        assert watcher.unread["train"] == ""
        await asyncio.sleep(10 * DEADLINE)

    assert watcher.hangs == {}
    assert watcher.unread["train"] == "the kubelet does not answer"


async def test_a_missing_right_is_reported_at_once() -> None:
    pods = Pods(random.Random(8), failing=1.0)
    pods.error = errors.Forbidden(403, "Forbidden", "pods/log is forbidden")
    async with monitor(pods) as given:
        watcher = Watcher(given)
        watcher.observe(job())
        await asyncio.sleep(0.2 * DEADLINE)

    assert watcher.unread["train"] == "pods/log is forbidden"


async def test_a_defect_ends_the_observation_of_one_job_only() -> None:
    pods = Pods(random.Random(9))
    pods.lines = {f"well-{index}": [] for index in range(4)}  # no entry for the pods of the other job
    async with monitor(pods) as given:
        watcher = Watcher(given)
        watcher.observe(job("broken"))
        watcher.observe(job("well"))
        await asyncio.sleep(2 * DEADLINE)

    assert watcher.unread["broken"].startswith("internal error")
    assert "well" in watcher.hangs
