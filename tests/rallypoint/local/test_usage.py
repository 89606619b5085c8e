"""Samples of the CPU, memory and GPU of pods."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rallypoint.local import usage
from rallypoint.local.node.containers.guard import POD
from rallypoint.local.usage import UsageSampler
from tests.support.snapshots import NOW

pytestmark = pytest.mark.looptime(False)

SHORT = "import subprocess, sys\nwhile True: subprocess.run([sys.executable, '-c', 'for _ in range(3_000_000): pass'])"
BUSY = "import subprocess, sys, time; b = bytearray(50_000_000); end = time.time() + 60\nwhile time.time() < end: pass"


@contextmanager
def process(script: str, uid: str) -> Iterator[None]:
    env = {**os.environ, POD: uid}
    with subprocess.Popen([sys.executable, "-c", script], env=env) as child:
        try:
            yield
        finally:
            child.kill()


class Nvml:
    """Two GPUs, one of which does not report its utilization."""

    class NVMLError(Exception):
        pass

    def nvmlInit(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802
        return type("Memory", (), {"used": 1000})

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:  # noqa: N802
        if handle == "silent":
            raise self.NVMLError
        return type("Rates", (), {"gpu": 50})


async def samples(sampler: UsageSampler, uid: str, count: int) -> list[usage.Sample]:
    task = asyncio.create_task(sampler.run())
    async with asyncio.timeout(30):
        while len(sampler.samples.get(uid, ())) < count:  # noqa: ASYNC110 - real processes
            await asyncio.sleep(0.05)
    task.cancel()
    return list(sampler.samples[uid])


async def test_processes_count_for_the_pod_of_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "INTERVAL_SECONDS", 0.5)
    sampler = UsageSampler(lambda: {"busy": (), "idle": (), "gone": ()})
    with process(BUSY, "busy"), process("import time; time.sleep(60)", "idle"):
        busy = await samples(sampler, "busy", 3)

    idle, gone = sampler.samples["idle"][-1], sampler.samples["gone"][-1]
    assert busy[-1].cpu > 0.1 > idle.cpu
    assert busy[-1].memory_bytes > 50_000_000 > idle.memory_bytes > 0
    assert (gone.cpu, gone.memory_bytes) == (0, 0)


async def test_gpus_count_for_the_pod_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "INTERVAL_SECONDS", 0.05)
    sampler = UsageSampler(lambda: {"pod": ("first", "silent")}, Nvml())

    found = await samples(sampler, "pod", 1)

    assert (found[0].gpu, found[0].gpu_memory_bytes) == (0.5, 2000)


async def test_only_the_newest_samples_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(usage, "MAX_SAMPLES", 2)
    sampler = UsageSampler(lambda: {"pod": ()})
    first = (await samples(sampler, "pod", 1))[0]
    async with asyncio.timeout(30):
        task = asyncio.create_task(sampler.run())
        while first in sampler.samples["pod"]:  # noqa: ASYNC110 - real processes
            await asyncio.sleep(0.02)
        task.cancel()

    assert len(sampler.series(["pod", "other"])["pod"]) == 2


async def test_processes_that_no_sample_sees_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "INTERVAL_SECONDS", 1.0)
    sampler = UsageSampler(lambda: {"short": ()})
    with process(SHORT, "short"):
        found = await samples(sampler, "short", 3)

    assert found[-1].cpu > 0.1


async def test_a_process_that_began_after_the_last_sample_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "INTERVAL_SECONDS", 1.0)
    running: dict[str, tuple[str, ...]] = {}
    sampler = UsageSampler(lambda: running)
    task = asyncio.create_task(sampler.run())
    await asyncio.sleep(0.5)
    running["busy"] = ()
    with process(BUSY, "busy"):
        async with asyncio.timeout(30):
            while not sampler.samples:  # noqa: ASYNC110 - real processes
                await asyncio.sleep(0.05)
    task.cancel()

    assert sampler.samples["busy"][0].cpu > 0.05


async def test_time_before_the_first_sample_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "INTERVAL_SECONDS", 0.5)
    script = f"{BUSY.replace('60', '2')}\nprint(flush=True)\ntime.sleep(60)"
    env = {**os.environ, POD: "pod"}
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs
        [sys.executable, "-c", script], env=env, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = await samples(UsageSampler(lambda: {"pod": ()}), "pod", 1)
        child.kill()

    assert found[0].cpu < 0.2


def test_samples_of_few_ended_pods_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MAX_ENDED_PODS", 2)
    sampler = UsageSampler(dict)
    for uid in ("running", "first", "second", "third"):
        sampler._add({uid: usage.Sample(NOW, 0.0, 0)})
    sampler._discard({"running": ()})

    assert list(sampler.samples) == ["running", "second", "third"]


async def test_an_unexpected_error_ends_the_samples_only() -> None:
    def refuse() -> dict[str, tuple[str, ...]]:
        raise RuntimeError("a defect")

    await UsageSampler(refuse).run()
