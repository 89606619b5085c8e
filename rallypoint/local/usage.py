"""CPU, memory and GPU of local pods over time.

A process belongs to the pod that its environment names, also in a sandbox; the memory that processes share counts in each. The CPU time of
a process that has ended counts in its parent, which waited for it, also if no sample saw the process. GPUs are allocated to one pod each,
so a GPU's figures are those of its pod.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psutil
import structlog

from controller.runtime import clock
from rallypoint.local.node.containers.process import pod_of

INTERVAL_SECONDS = 5.0
MAX_SAMPLES = 720
"""An hour."""
MAX_ENDED_PODS = 64
"""Of more pods that have ended, the samples of the oldest are deleted: an hour of one takes 150 KB."""
_EXECUTED_SECONDS = 10.0
"""A process this old has executed its program, which gives it its environment."""


log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Sample:
    at: datetime
    cpu: float
    """Cores, on average since the sample before."""
    memory_bytes: int
    gpu: float = 0.0
    """GPUs, on average: 1.5 are three at 50 %."""
    gpu_memory_bytes: int = 0


@dataclass(slots=True)
class UsageSampler:
    """Samples the processes of pods until canceled."""

    gpus: Callable[[], Mapping[str, Sequence[str]]]
    """Returns the UUIDs of the GPUs of each running pod, by the pod's UID; pods without GPUs too."""
    library: Any = None
    """The result of ``gpus.nvml``."""
    samples: dict[str, deque[Sample]] = field(default_factory=dict)
    """By the pod's UID, the oldest first."""
    _pods: dict[tuple[int, float], str] = field(default_factory=dict)
    """The pod of each process, empty for other processes, by PID and creation time."""
    _cpu_seconds: dict[str, float] = field(default_factory=dict)
    """The CPU time of each pod's processes and of those that they waited for, by the pod's UID."""

    async def run(self) -> None:
        """Sample while pods run. An unexpected error ends it: a chart is not worth more."""
        try:
            await self._run()
        except Exception:
            log.exception("usage is no longer sampled")

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._open_library)
        # What running pods have used before is not of the first interval.
        await asyncio.to_thread(self._sample, self.gpus(), 1.0)
        last = loop.time()
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            running, now = self.gpus(), loop.time()
            if running:
                self._add(await asyncio.to_thread(self._sample, running, now - last))
            self._discard(running)
            last = now

    def series(self, uids: Sequence[str]) -> dict[str, list[Sample]]:
        """Return the samples of these pods."""
        return {uid: list(self.samples[uid]) for uid in uids if uid in self.samples}

    def running(self) -> list[str]:
        """Return the UIDs of the pods that run now."""
        return list(self.gpus())

    def _add(self, found: Mapping[str, Sample]) -> None:
        for uid, sample in found.items():
            self.samples.setdefault(uid, deque(maxlen=MAX_SAMPLES)).append(sample)

    def _discard(self, running: Mapping[str, Any]) -> None:
        ended = [uid for uid in self.samples if uid not in running]
        for uid in ended[:-MAX_ENDED_PODS]:
            del self.samples[uid]

    def _sample(self, running: Mapping[str, Sequence[str]], seconds: float) -> dict[str, Sample]:
        cpu: dict[str, float] = defaultdict(float)
        memory: dict[str, int] = defaultdict(int)
        pods: dict[tuple[int, float], str] = {}
        for process in psutil.process_iter() if running else ():
            try:
                key = (process.pid, process.create_time())
                uid = pods[key] = self._pod_of(process, key)
                if uid:
                    with process.oneshot():
                        times = process.cpu_times()
                        memory[uid] += process.memory_info().rss
                    cpu[uid] += times.user + times.system + times.children_user + times.children_system
            except psutil.Error:
                continue
        # The total falls if a process ends that no other of the pod waits for.
        used = {uid: max(cpu[uid] - self._cpu_seconds.get(uid, 0.0), 0.0) for uid in running}
        self._pods, self._cpu_seconds = pods, cpu
        now = clock.now()
        return {
            uid: Sample(now, used[uid] / seconds, memory[uid], *self._gpu(devices))
            for uid, devices in running.items()
        }

    def _pod_of(self, process: psutil.Process, key: tuple[int, float]) -> str:
        """Return the pod of a process; empty for others. A process keeps its pod, whatever it does to its environment later."""
        known = self._pods.get(key)
        if known or (known is not None and time.time() - key[1] > _EXECUTED_SECONDS):
            return known
        return pod_of(process)

    def _open_library(self) -> None:
        library = self.library
        if library is None:
            return
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            log.warning("GPUs are not sampled", error=str(error))
            self.library = None

    def _gpu(self, devices: Sequence[str]) -> tuple[float, int]:
        """Return the utilization and the memory of GPUs. A GPU that does not report counts as idle."""
        library, used, memory = self.library, 0.0, 0
        if library is None:
            return used, memory
        for uuid in devices:
            try:
                handle = library.nvmlDeviceGetHandleByUUID(uuid)
                memory += int(library.nvmlDeviceGetMemoryInfo(handle).used)
                used += library.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            except library.NVMLError:
                continue
        return used, memory
