"""One pod on its way: a task that decides (``lifecycle``), acts on processes, and reports (``status``).

The task ends when the pod is over, and its processes are gone when it ends, however it ends.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog

from controller.local.manifest import Manifest
from controller.local.node import containers as records
from controller.local.node import lifecycle, status
from controller.local.node.containers import Container, Waiting
from controller.local.node.environment import Unresolved
from controller.local.node.isolation import Isolation
from controller.local.node.logs import Log, Logs
from controller.local.node.process import START_ERROR, Process
from controller.local.node.program import CannotStart

log = structlog.get_logger()

RETRY_SECONDS = 5.0
"""How often a start that was not possible (a ConfigMap is missing) is tried again."""
DEFAULT_GRACE_SECONDS = 30


class Surroundings(Protocol):
    """What a pod needs of the node."""

    isolation: Isolation
    logs: Logs

    def now(self) -> datetime: ...

    def refusal(self, pod: Manifest) -> str:
        """Why the pod can never run here; empty when it can."""
        ...

    async def prepare(self, pod: Manifest) -> None:
        """Make the pod's volumes.

        Raises:
            Unresolved: something that they need does not exist.
        """
        ...

    async def start(self, pod: Manifest, container: Container, output: Callable[[bytes], None]) -> Process:
        """Start what runs in a container.

        Raises:
            Unresolved: something that it needs does not exist.
            CannotStart: it can never start.
        """
        ...

    async def report(self, pod: Manifest, pod_status: dict[str, Any]) -> None:
        """Write the pod's status; a pod that is gone is no error."""
        ...

    def tell(self, pod: Manifest, reason: str, message: str, *, warning: bool = False) -> None:
        """Emit an event about the pod."""
        ...

    def forget(self, pod: Manifest) -> None:
        """The pod's volumes are no longer needed."""
        ...


class PodTask:
    """A pod that is bound to this node and has not ended."""

    def __init__(self, pod: Manifest, node: Surroundings) -> None:
        self._pod = pod
        self._node = node
        before: dict[str, Any] = pod.get("status") or {}
        started = datetime.fromisoformat(before["startTime"]) if "startTime" in before else node.now()
        self._facts = status.Facts(node.isolation.node_address, node.isolation.pod_address(pod), started)
        self._containers = {c.name: c for c in records.left_by_another(pod, node.now())}
        self._processes: dict[str, Process] = {}
        self._changed = asyncio.Event()
        self._deletion: datetime | None = None
        self._prepared = False
        self._told: set[tuple[str, int]] = set()
        self._reported: dict[str, Any] = {}

    def delete(self, deadline: datetime) -> None:
        """The pod is to go; what still runs at ``deadline`` is killed."""
        self._deletion = deadline if self._deletion is None else min(self._deletion, deadline)
        self._changed.set()

    def runs(self, container: str) -> bool:
        """Whether something runs in a container."""
        return container in self._processes

    async def run(self) -> None:
        """Bring the pod to its end."""
        try:
            refusal = self._node.refusal(self._pod)
            if refusal:
                await self._refuse("Refused", refusal)
                return
            async with asyncio.TaskGroup() as tasks:
                await self._live(tasks)
        except Exception as error:
            log.exception("a pod could not be run", pod=self._pod["metadata"]["name"])
            await self._refuse("NodeError", repr(error))
        finally:
            self._node.forget(self._pod)

    async def _refuse(self, reason: str, message: str) -> None:
        """Say why the pod does not run, and wait until it is deleted.

        It stays Pending, as a pod does whose image is not there: an operator would replace one that has failed by the
        next one that fails.
        """
        self._node.tell(self._pod, reason, message, warning=True)
        waits = Waiting(reason, message)
        self._containers = {name: replace(one, state=waits) for name, one in self._containers.items()}
        await self._report()
        while self._deletion is None:
            self._changed.clear()
            await self._changed.wait()
        await self._end(expired=False)

    async def _live(self, tasks: asyncio.TaskGroup) -> None:
        await self._report()
        while self._deletion is None:
            # No await between these lines: what ends while we look would otherwise wake nobody.
            self._changed.clear()
            everyone = list(self._containers.values())
            step = lifecycle.next_step(self._pod, everyone, self._facts.started, self._node.now())
            self._containers = {container.name: container for container in step.containers}
            if step.over:
                await self._end(expired=step.expired)
                return
            if step.start and await self._can_start(step.start):
                for name in step.start:
                    await self._start(name, tasks)
            self._tell_held_back()
            await self._report()
            if not step.start:
                await self._wait_for_change(step.wake)
        await self._end(expired=False)

    async def _wait_for_change(self, until: datetime | None) -> None:
        seconds = None if until is None else max(self._seconds_until(until), 0.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _can_start(self, names: tuple[str, ...]) -> bool:
        """Whether the pod's volumes are there; if not, the containers are put off."""
        if self._prepared:
            return True
        try:
            await self._node.prepare(self._pod)
        except Unresolved as error:
            if any(self._containers[name].not_before is None for name in names):
                self._node.tell(self._pod, "FailedMount", str(error), warning=True)
            for name in names:
                self._put_off(name, "ContainerCreating", str(error))
            return False
        self._prepared = True
        return True

    def _put_off(self, name: str, reason: str, message: str) -> None:
        until = self._node.now() + timedelta(seconds=RETRY_SECONDS)
        self._containers[name] = records.put_off(self._containers[name], reason, message, until)

    async def _start(self, name: str, tasks: asyncio.TaskGroup) -> None:
        container = self._containers[name]
        begun = records.started(container, self._node.now())
        log = self._node.logs.open(self._pod, name, begun.restarts)

        def output(data: bytes) -> None:
            self._node.logs.write(self._pod, name, log, data, self._node.now())

        try:
            process = await self._node.start(self._pod, container, output)
        except Unresolved as error:
            self._node.logs.close(self._pod, name, log)
            self._put_off(name, "CreateContainerConfigError", str(error))
            return
        except CannotStart as error:
            output(f"{error}\n".encode())
            self._node.logs.close(self._pod, name, log)
            self._node.tell(self._pod, "Failed", f"Error: {error}", warning=True)
            self._containers[name] = records.terminated(
                begun, START_ERROR, self._node.now(), reason="StartError", message=str(error)
            )
            return
        self._containers[name] = begun
        self._processes[name] = process
        tasks.create_task(self._watch(name, process, log))

    async def _watch(self, name: str, process: Process, log: Log) -> None:
        try:
            code = await process.wait()
        finally:
            self._node.logs.close(self._pod, name, log)
            self._processes.pop(name, None)
        self._containers[name] = records.terminated(self._containers[name], code, self._node.now())
        self._changed.set()

    async def _end(self, *, expired: bool) -> None:
        """Stop what runs, then report the last state."""
        await self._stop()
        everyone = list(self._containers.values())
        phase = status.phase(self._pod["spec"].get("restartPolicy") or "Always", everyone)
        reason = message = ""
        if expired:
            phase, reason = "Failed", "DeadlineExceeded"
            message = "Pod was active on the node longer than the specified deadline"
        elif self._deletion is not None and phase not in ("Succeeded", "Failed"):
            phase = status.phase_when_stopped(everyone)
        await self._report(phase, reason, message)

    async def _stop(self) -> None:
        """TERM to all process groups, KILL to those that are left when the grace period is over."""
        for name, process in self._processes.items():
            self._node.tell(self._pod, "Killing", f"Stopping container {name}")
            process.send(signal.SIGTERM)
        grace = self._pod["spec"].get("terminationGracePeriodSeconds")
        latest = self._node.now() + timedelta(seconds=DEFAULT_GRACE_SECONDS if grace is None else grace)
        while self._processes and (seconds := self._seconds_until(self._deletion or latest)) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
        for process in self._processes.values():
            process.send(signal.SIGKILL)
        while self._processes:
            self._changed.clear()
            await self._changed.wait()

    def _seconds_until(self, moment: datetime) -> float:
        return (moment - self._node.now()).total_seconds()

    async def _report(self, phase: str = "", reason: str = "", message: str = "") -> None:
        now, everyone = self._node.now(), list(self._containers.values())
        current = status.pod_status(
            {**self._pod, "status": self._reported or self._pod.get("status")},
            everyone,
            self._facts,
            now,
            final_phase=phase,
            reason=reason,
            message=message,
        )
        if current != self._reported:
            self._reported = current
            await self._node.report(self._pod, current)

    def _tell_held_back(self) -> None:
        """Events for containers in back-off, one each time; the state says it all the while."""
        for container in self._containers.values():
            state, run = container.state, (container.name, container.restarts)
            if isinstance(state, Waiting) and state.reason == "CrashLoopBackOff" and run not in self._told:
                self._told.add(run)
                self._node.tell(self._pod, "BackOff", state.message, warning=True)
