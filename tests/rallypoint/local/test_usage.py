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

pytestmark = pytest.mark.looptime(False)

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
