"""The worker of one pod: syncs its containers (``lifecycle``) and reports its status (``status``).

The worker returns when the pod is finished. No process of the pod is left then, whatever the reason.
"""

import asyncio
import contextlib
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog

from api.times import parse_time
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.process import START_ERROR, Process
from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.pods import container_state as records
from rallypoint.local.node.pods import lifecycle, probes, status, termination, termination_message
from rallypoint.local.node.pods.container_state import Container, Waiting
from rallypoint.local.node.pods.handlers import Handlers
from rallypoint.local.node.pods.lifecycle import Kill
from rallypoint.local.node.pods.prober import Prober
from rallypoint.local.node.pods.probes import Health
from rallypoint.local.node.pods.runtime import PodRuntime
from rallypoint.local.node.pods.termination import Grace, Hook, Run
from rallypoint.local.node.streams.logs import Log
from rallypoint.local.node.volumes.references import Unresolved

log = structlog.get_logger()

RETRY_SECONDS = 5.0
"""The interval between retries of a start that failed, for example without a ConfigMap."""


class PodWorker:
    def __init__(self, pod: Manifest, node: PodRuntime) -> None:
        self._pod: Manifest = pod
        self._node = node
        self._handlers = Handlers(pod, node)
        before: dict[str, Any] = pod.get("status") or {}
        started = parse_time(before["startTime"]) if "startTime" in before else node.now()
        self._facts = status.Facts(node.isolation.node_address, node.isolation.pod_address(pod), started)
        self._containers = {c.name: c for c in records.restore(pod, node.now())}
        self._runs: dict[str, Run] = {}
        self._changed = asyncio.Event()
        self._deletion: datetime | None = None
        self._prepared = False
        self._recorded_backoffs: set[tuple[str, int]] = set()
        self._reported: dict[str, Any] = {}

    def delete(self, deadline: datetime) -> None:
        """Terminate the pod; kill what still runs at ``deadline``."""
        self._deletion = deadline if self._deletion is None else min(self._deletion, deadline)
        for run in self._runs.values():
            if run.grace is not None:
                run.grace.shorten(self._seconds_until(self._deletion))
        self._changed.set()

    def update(self, pod: Manifest) -> None:
        """Take the status of the changed object, which may have new conditions for readiness gates."""
        self._pod = {**self._pod, "status": pod.get("status")}
        if self._pod["spec"].get("readinessGates"):
            self._changed.set()

    async def wait_to_start(self, seconds: float) -> None:
        """Wait for so many seconds, or until the pod is to be deleted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._deletion is None:
                    self._changed.clear()
                    await self._changed.wait()

    def runs(self, container: str) -> bool:
        return container in self._runs

    async def run(self) -> None:
        try:
            rejection = probes.rejection(self._pod) or self._node.rejection(self._pod)
            if rejection:
                await self._reject("Refused", rejection)
                return
            async with asyncio.TaskGroup() as tasks:
                await self._sync_loop(tasks)
        except Exception as error:
            log.exception("pod sync failed", pod=self._pod["metadata"]["name"])
            await self._reject("NodeError", repr(error))
        finally:
            self._node.discard(self._pod)

    async def _reject(self, reason: str, message: str) -> None:
        """Fail a pod that this node can never run.

        Source: Kubernetes, pkg/kubelet/kubelet.go, rejectPod: such a pod is Failed, with the reason in its status.
        """
        self._node.record_event(self._pod, reason, message, warning=True)
        waiting = Waiting(reason, message)
        self._containers = {
            name: replace(container, state=waiting) for name, container in self._containers.items()
        }
        await self._report("Failed", reason, message)

    async def _sync_loop(self, tasks: asyncio.TaskGroup) -> None:
        await self._report()
        while self._deletion is None:
            # No await between these lines: a container that exits in between must set the event.
            self._changed.clear()
            containers = list(self._containers.values())
            step = lifecycle.next_step(self._pod, containers, self._facts.started, self._node.now())
            self._containers = {container.name: container for container in step.containers}
            if step.is_finished:
                await self._finish(expired=step.has_expired)
                return
            for kill in step.kill:
                tasks.create_task(self._kill(kill))
            if step.start and await self._is_prepared(step.start):
                for name in step.start:
                    await self._start(name, tasks)
            self._record_backoff()
            await self._report()
            if not step.start:
                await self._wait_for_change(step.wake_at)
        await self._finish(expired=False)

    async def _wait_for_change(self, until: datetime | None) -> None:
        seconds = None if until is None else max(self._seconds_until(until), 0.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _is_prepared(self, names: tuple[str, ...]) -> bool:
        """Set up the volumes; return whether that succeeded. Postpone the containers if not."""
        if self._prepared:
            return True
        try:
            await self._node.prepare(self._pod)
        except Unresolved as error:
            if any(self._containers[name].not_before is None for name in names):
                self._node.record_event(self._pod, "FailedMount", str(error), warning=True)
            for name in names:
                self._postpone(name, "ContainerCreating", str(error))
            return False
        self._prepared = True
        return True

    def _postpone(self, name: str, reason: str, message: str) -> None:
        until = self._node.now() + timedelta(seconds=RETRY_SECONDS)
        self._containers[name] = records.postponed(self._containers[name], reason, message, until)

    async def _start(self, name: str, tasks: asyncio.TaskGroup) -> None:
        container = self._containers[name]
        running = records.started(container, self._node.now())
        log = self._node.logs.open(self._pod, name, running.restarts, self._node.now())

        def output(data: bytes) -> None:
            self._node.logs.write(self._pod, name, log, data, self._node.now())

        try:
            process = await self._node.start(self._pod, container, output)
        except Unresolved as error:
            self._node.logs.discard_run(self._pod, name, log)
            self._postpone(name, error.reason, str(error))
            return
        except CannotStart as error:
            output(f"{error}\n".encode())
            self._node.logs.close(self._pod, name, log)
            self._node.record_event(self._pod, "Failed", f"Error: {error}", warning=True)
            self._containers[name] = records.terminated(
                running, START_ERROR, self._node.now(), reason="StartError", message=str(error)
            )
            return
        self._containers[name] = running
        self._runs[name] = self._new_run(running, process)
        tasks.create_task(self._watch_run(self._runs[name], log))

    def _new_run(self, container: Container, process: Process) -> Run:
        def on_health(health: Health) -> None:
            self._containers[container.name] = records.with_health(self._containers[container.name], health)
            self._changed.set()

        record_event = partial(self._node.record_event, self._pod, warning=True)
        return Run(container, process, Prober(container.spec, self._handlers, on_health, record_event))

    async def _watch_run(self, run: Run, log: Log) -> None:
        """Probe a run until it exits, then store its termination."""
        name = run.container.name
        try:
            async with asyncio.TaskGroup() as tasks:
                probing = tasks.create_task(run.prober.run())
                code = await run.process.wait()
                probing.cancel()
        finally:
            self._node.logs.close(self._pod, name, log)
            self._runs.pop(name, None)
        spec = run.container.spec
        message = termination_message.message(
            self._pod, spec, self._node.read_termination_message(self._pod, spec), code, log
        )
        self._containers[name] = records.terminated(
            self._containers[name], code, self._node.now(), message=message
        )
        run.ended.set()
        self._changed.set()

    async def _kill(self, kill: Kill) -> None:
        """Terminate one container of a pod that continues."""
        run = self._runs.get(kill.name)
        if run is not None:
            self._node.record_event(self._pod, "Killing", kill.message)
            await termination.terminate(run, Grace(kill.grace_seconds), self._pre_stop(run))

    def _pre_stop(self, run: Run) -> Hook | None:
        hook = (run.container.spec.get("lifecycle") or {}).get("preStop")
        if not hook:
            return None

        async def pre_stop() -> None:
            if await self._handlers.hook(run.container.spec, hook):
                self._node.record_event(self._pod, "FailedPreStopHook", "PreStopHook failed", warning=True)

        return pre_stop

    async def _finish(self, *, expired: bool) -> None:
        """Stop all containers, then report the final status."""
        await self._stop()
        containers = list(self._containers.values())
        phase = status.phase(self._pod["spec"].get("restartPolicy") or "Always", containers)
        reason = message = ""
        if expired:
            phase, reason = "Failed", "DeadlineExceeded"
            message = "Pod was active on the node longer than the specified deadline"
        elif self._deletion is not None and phase not in ("Succeeded", "Failed"):
            phase = status.phase_when_stopped(containers)
        await self._report(phase, reason, message)

    async def _stop(self) -> None:
        """Terminate the main containers together, then the sidecars in reverse order."""
        seconds = lifecycle.grace_seconds(self._pod)
        if self._deletion is not None:
            seconds = self._seconds_until(self._deletion)
        runs = [self._runs[name] for name in self._containers if name in self._runs]
        async with asyncio.TaskGroup() as stopping:
            for run in runs:
                if run.grace is None:
                    self._node.record_event(self._pod, "Killing", f"Stopping container {run.container.name}")
                later = termination.predecessors(run, runs)
                stopping.create_task(termination.terminate(run, Grace(seconds), self._pre_stop(run), later))
            while self._runs:
                self._changed.clear()
                # The final phase is reported when no container runs any more.
                await self._report(self._reported["phase"])
                if self._runs:
                    await self._changed.wait()

    def _seconds_until(self, moment: datetime) -> float:
        return (moment - self._node.now()).total_seconds()

    async def _report(self, phase: str = "", reason: str = "", message: str = "") -> None:
        now, containers = self._node.now(), list(self._containers.values())
        current = status.pod_status(
            self._pod,
            containers,
            self._facts,
            now,
            previous=self._reported,
            final_phase=phase,
            reason=reason,
            message=message,
        )
        if current != self._reported:
            self._reported = current
            await self._node.report(self._pod, current)

    def _record_backoff(self) -> None:
        """Record one event per run for containers in back-off."""
        for container in self._containers.values():
            state, run = container.state, (container.name, container.restarts)
            if (
                isinstance(state, Waiting)
                and state.reason == "CrashLoopBackOff"
                and run not in self._recorded_backoffs
            ):
                self._recorded_backoffs.add(run)
                message = f"Back-off restarting failed container {container.name} in pod {lifecycle.pod_ref(self._pod)}"
                self._node.record_event(self._pod, "BackOff", message, warning=True)
