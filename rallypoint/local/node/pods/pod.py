"""One pod on its way: a task that decides (``lifecycle``), acts on processes, and reports (``status``).

The task ends when the pod is over, and its processes are gone when it ends, however it ends.
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
from rallypoint.local.node.pods import containers as records
from rallypoint.local.node.pods import ending, lastwords, lifecycle, probes, status
from rallypoint.local.node.pods.attending import Attendant
from rallypoint.local.node.pods.containers import Container, Waiting
from rallypoint.local.node.pods.ending import Grace, Hook, Run
from rallypoint.local.node.pods.handlers import Handlers
from rallypoint.local.node.pods.lifecycle import Kill
from rallypoint.local.node.pods.probes import Health
from rallypoint.local.node.pods.surroundings import Surroundings
from rallypoint.local.node.streams.logs import Log
from rallypoint.local.node.volumes.objects import Unresolved

log = structlog.get_logger()

RETRY_SECONDS = 5.0
"""How often a start that was not possible (a ConfigMap is missing) is tried again."""


class PodTask:
    """A pod that is bound to this node and has not ended."""

    def __init__(self, pod: Manifest, node: Surroundings) -> None:
        self._pod: Manifest = pod
        self._node = node
        self._handlers = Handlers(pod, node)
        before: dict[str, Any] = pod.get("status") or {}
        started = parse_time(before["startTime"]) if "startTime" in before else node.now()
        self._facts = status.Facts(node.isolation.node_address, node.isolation.pod_address(pod), started)
        self._containers = {c.name: c for c in records.left_by_another(pod, node.now())}
        self._runs: dict[str, Run] = {}
        self._changed = asyncio.Event()
        self._deletion: datetime | None = None
        self._prepared = False
        self._told: set[tuple[str, int]] = set()
        self._reported: dict[str, Any] = {}

    def delete(self, deadline: datetime) -> None:
        """The pod is to go; what still runs at ``deadline`` is killed."""
        self._deletion = deadline if self._deletion is None else min(self._deletion, deadline)
        for run in self._runs.values():
            if run.grace is not None:
                run.grace.shorten(self._seconds_until(self._deletion))
        self._changed.set()

    def see(self, pod: Manifest) -> None:
        """The pod's object has changed; others may have opened one of its readiness gates."""
        self._pod = {**self._pod, "status": pod.get("status")}
        if self._pod["spec"].get("readinessGates"):
            self._changed.set()

    def runs(self, container: str) -> bool:
        """Whether something runs in a container."""
        return container in self._runs

    async def run(self) -> None:
        """Bring the pod to its end."""
        try:
            refusal = probes.refusal(self._pod) or self._node.refusal(self._pod)
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
        """End a pod that this node can never run, and say why.

        Source: Kubernetes, pkg/kubelet/kubelet.go, rejectPod: such a pod is Failed, with the reason in its status.
        """
        self._node.tell(self._pod, reason, message, warning=True)
        waits = Waiting(reason, message)
        self._containers = {name: replace(one, state=waits) for name, one in self._containers.items()}
        await self._report("Failed", reason, message)

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
            for kill in step.kill:
                tasks.create_task(self._kill(kill))
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
            self._put_off(name, error.reason, str(error))
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
        self._runs[name] = self._begun(begun, process)
        tasks.create_task(self._follow(self._runs[name], log))

    def _begun(self, container: Container, process: Process) -> Run:
        def see(health: Health) -> None:
            self._containers[container.name] = records.with_health(self._containers[container.name], health)
            self._changed.set()

        tell = partial(self._node.tell, self._pod, warning=True)
        return Run(container, process, Attendant(container.spec, self._handlers, see, tell))

    async def _follow(self, run: Run, log: Log) -> None:
        """Attend to a run until it ends, and note how."""
        name = run.container.name
        try:
            async with asyncio.TaskGroup() as beside:
                attending = beside.create_task(run.attendant.attend())
                code = await run.process.wait()
                attending.cancel()
        finally:
            self._node.logs.close(self._pod, name, log)
            self._runs.pop(name, None)
        spec = run.container.spec
        words = lastwords.message(self._pod, spec, self._node.last_words(self._pod, spec), code, log)
        self._containers[name] = records.terminated(
            self._containers[name], code, self._node.now(), message=words
        )
        run.ended.set()
        self._changed.set()

    async def _kill(self, kill: Kill) -> None:
        """End one container of a pod that goes on."""
        run = self._runs.get(kill.name)
        if run is not None:
            self._node.tell(self._pod, "Killing", kill.message)
            await ending.end(run, Grace(kill.grace_seconds), self._pre_stop(run))

    def _pre_stop(self, run: Run) -> Hook | None:
        hook = (run.container.spec.get("lifecycle") or {}).get("preStop")
        if not hook:
            return None

        async def pre_stop() -> None:
            if await self._handlers.hook(run.container.spec, hook):
                self._node.tell(self._pod, "FailedPreStopHook", "PreStopHook failed", warning=True)

        return pre_stop

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
        """End all that runs: the main containers together, then the sidecars, the last one first."""
        seconds = lifecycle.grace_seconds(self._pod)
        if self._deletion is not None:
            seconds = self._seconds_until(self._deletion)
        runs = [self._runs[name] for name in self._containers if name in self._runs]
        async with asyncio.TaskGroup() as stopping:
            for run in runs:
                if run.grace is None:
                    self._node.tell(self._pod, "Killing", f"Stopping container {run.container.name}")
                later = ending.before(run, runs)
                stopping.create_task(ending.end(run, Grace(seconds), self._pre_stop(run), later))
            while self._runs:
                self._changed.clear()
                # A phase that is final is told when nothing runs any more.
                await self._report(self._reported["phase"])
                if self._runs:
                    await self._changed.wait()

    def _seconds_until(self, moment: datetime) -> float:
        return (moment - self._node.now()).total_seconds()

    async def _report(self, phase: str = "", reason: str = "", message: str = "") -> None:
        now, everyone = self._node.now(), list(self._containers.values())
        current = status.pod_status(
            self._pod,
            everyone,
            self._facts,
            now,
            told=self._reported,
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
                words = f"Back-off restarting failed container {container.name} in pod {lifecycle.spell(self._pod)}"
                self._node.tell(self._pod, "BackOff", words, warning=True)
