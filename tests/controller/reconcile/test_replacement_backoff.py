"""A replica that fails repeatedly, with the whole controller, an embedded API server and fake time."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from api.labels import FAILED_BEFORE
from api.meta import PODS
from api.v1.pytorchjob import RESOURCE
from tests.support.builders import template
from tests.support.harness import Harness, fake_clock, running_controller, start_harness

WORKER = "train-worker-0"
SPEC: dict[str, Any] = {
    "pytorchReplicaSpecs": {
        "Master": {"restartPolicy": "ExitCode", "template": template()},
        "Worker": {"restartPolicy": "ExitCode", "template": template()},
    }
}


class Node:
    """Runs every pod. Workers exit with 137 once they have run for so many seconds."""

    def __init__(self, harness: Harness, now: Callable[[], datetime], runs_for: float = 1.0) -> None:
        self.runs_for = runs_for
        self.failed_at: list[float] = []
        """Seconds of loop time at which workers failed."""
        self.made_at: list[float] = []
        """Seconds of loop time at which workers were found new."""
        self._on = harness
        self._now = now
        self._started: dict[str, datetime] = {}

    async def work(self) -> None:
        while True:
            for pod in await self._on.items(PODS):
                await self._sync(pod)
            await asyncio.sleep(1)

    async def _sync(self, pod: dict[str, Any]) -> None:
        name, uid, phase = pod["metadata"]["name"], pod["metadata"]["uid"], pod["status"].get("phase")
        time = asyncio.get_running_loop().time()
        if phase in {None, "Pending"}:
            self._started[uid] = self._now()
            if name == WORKER:
                self.made_at.append(time)
            await self._on.set_phase("Running", name)
        elif name == WORKER and phase == "Running":
            started = self._started[uid]
            if self._now() - started >= timedelta(seconds=self.runs_for):
                self.failed_at.append(time)
                await self._exit(name, started)

    async def _exit(self, name: str, started: datetime) -> None:
        times = {"startedAt": _text(started), "finishedAt": _text(self._now())}
        container = {"name": "pytorch", "image": "img", "imageID": "", "ready": False, "restartCount": 0}
        ended = {**container, "state": {"terminated": {"exitCode": 137, **times}}}
        await self._on.change(
            PODS, name, {"status": {"phase": "Failed", "containerStatuses": [ended]}}, "status"
        )


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@asynccontextmanager
async def failing(runs_for: float = 1.0) -> AsyncGenerator[tuple[Harness, Node]]:
    """Submit a job whose worker always exits with 137, without a controller."""
    with fake_clock() as now:
        async with start_harness(clock=now) as harness:
            node = Node(harness, now, runs_for)
            await harness.submit(**SPEC)
            working = asyncio.create_task(node.work())
            try:
                yield harness, node
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)


def pauses(node: Node) -> list[int]:
    """Whole seconds from each failure to the next pod, as a node sees it that looks each second."""
    return [round(made - failed) for failed, made in zip(node.failed_at, node.made_at[1:], strict=False)]


async def test_a_worker_that_always_fails_is_replaced_after_growing_pauses() -> None:
    async with failing() as (harness, node), running_controller(harness):
        await harness.settle(30)
        assert len(node.made_at) == 3
        await harness.settle(570)

        assert len(node.made_at) == 7
        assert all(
            0 <= pause - due <= 3 for pause, due in zip(pauses(node), [0, 10, 20, 40, 80, 160], strict=True)
        )
        calls = Counter(call.verb for call in harness.calls if call.verb not in {"list", "watch"})
        assert calls["delete"] == 6
        assert calls.total() < 15 * 7, f"of seven pods: {calls}"


async def test_the_condition_and_the_pod_say_why_a_pod_is_not_replaced_yet() -> None:
    async with failing() as (harness, _), running_controller(harness):
        await harness.settle(20)
        (restarting,) = [
            condition
            for condition in (await harness.job())["status"]["conditions"]
            if condition["type"] == "Restarting"
        ]
        pod = await harness.get(PODS, WORKER)

        assert re.fullmatch(
            r"job train is restarting because Worker replica\(s\) failed\. "
            r"train-worker-0 has failed 3 times in a row; its replacement is due at 2026-01-01T12:00:\d\dZ\.",
            restarting["message"],
        )
        assert pod["metadata"]["annotations"][FAILED_BEFORE] == "2"


async def test_a_restarted_operator_remembers_failures() -> None:
    async with failing() as (harness, node):
        async with running_controller(harness):
            await harness.settle(20)
        made = len(node.made_at)
        async with running_controller(harness):
            await harness.settle(15)
            assert len(node.made_at) == made
            await harness.settle(100)

        assert len(node.made_at) == made + 2
        assert (await harness.get(PODS, WORKER))["metadata"]["annotations"][FAILED_BEFORE] == "4"


async def test_a_worker_that_ran_for_ten_minutes_is_replaced_at_once() -> None:
    async with failing() as (harness, node), running_controller(harness):
        await harness.settle(30)
        node.runs_for = 600
        await harness.settle(700)

        assert pauses(node)[-1] <= 3
        assert FAILED_BEFORE not in ((await harness.get(PODS, WORKER))["metadata"].get("annotations") or {})


async def test_a_failed_pod_that_is_deleted_is_replaced_at_once() -> None:
    async with failing() as (harness, node), running_controller(harness):
        await harness.settle(20)
        made = len(node.made_at)
        await harness.delete(PODS, WORKER)
        await harness.settle(3)

        assert len(node.made_at) == made + 1


async def test_suspending_and_resuming_resets_the_failures() -> None:
    async with failing() as (harness, node), running_controller(harness):
        await harness.settle(20)
        made = len(node.made_at)
        await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": True}}})
        await harness.settle(2)
        await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": False}}})
        await harness.settle(6)

        assert len(node.made_at) == made + 2
