"""Runs a container's postStart hook, then its probes, each with its own period.

``probes`` and ``lifecycle`` decide on the results.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.pods import probes
from rallypoint.local.node.pods.handlers import Handlers, Outcome
from rallypoint.local.node.pods.probes import Health, KillCause, Kind, Probe, Streak


class Prober:
    """The prober of one run of one container. It calls ``on_health`` with each change of the container's health."""

    def __init__(
        self,
        container: Manifest,
        handlers: Handlers,
        on_health: Callable[[Health], None],
        record_event: Callable[[str, str], None],
    ) -> None:
        self._container = container
        self._handlers = handlers
        self._on_health = on_health
        self._record_event = record_event
        self._health = probes.at_start(container)
        self._started = asyncio.Event()
        self._is_stopping = False

    def stop(self) -> None:
        """Stop all probes but the readiness probe, because the container is terminating."""
        self._is_stopping = True

    async def run(self) -> None:
        """Run until cancelled or until all probes are done."""
        start = asyncio.get_running_loop().time()
        hook = (self._container.get("lifecycle") or {}).get("postStart")
        if hook and await self._handlers.hook(self._container, hook):
            self._record_event("FailedPostStartHook", "PostStartHook failed")
            self._set_health(replace(self._health, kill_cause=KillCause.POST_START))
            return
        self._set_health(replace(self._health, has_post_start_finished=True))
        async with asyncio.TaskGroup() as tasks:
            for probe in probes.of(self._container):
                tasks.create_task(self._watch(probe, start + probe.delay_seconds))

    async def _watch(self, probe: Probe, first: float) -> None:
        """Probe once per period. The other probes start as soon as the startup probe has succeeded."""
        loop, streak = asyncio.get_running_loop(), Streak()
        if probe.kind is not Kind.STARTUP:
            await self._started.wait()
        due = max(first, loop.time())
        while True:
            await asyncio.sleep(due - loop.time())
            if self._is_done(probe):
                return
            result = await self._probe_once(probe)
            if result is not None and not self._is_done(probe):
                streak = streak.extended(succeeded=result)
                self._set_health(probes.after(self._health, probe, streak))
            due = max(due + probe.period_seconds, loop.time())

    def _is_done(self, probe: Probe) -> bool:
        if probe.kind is Kind.READINESS:
            return False
        has_succeeded = probe.kind is Kind.STARTUP and self._health.started
        return self._is_stopping or has_succeeded or self._health.kill_cause is not None

    async def _probe_once(self, probe: Probe) -> bool | None:
        """Return whether the probe succeeded; None if it could not run."""
        result = await self._handlers.probe(self._container, probe)
        kind = probe.kind.name.capitalize()
        match result.outcome:
            case Outcome.SUCCESS:
                return True
            case Outcome.WARNING:
                self._record_event("ProbeWarning", f"{kind} probe warning: {result.text}")
                return True
            case Outcome.FAILURE:
                if not self._is_done(probe):
                    self._record_event("Unhealthy", f"{kind} probe failed: {result.text}")
                return False
            case Outcome.ERROR:
                self._record_event("Unhealthy", f"{kind} probe errored: {result.text}")
                return None

    def _set_health(self, health: Health) -> None:
        if health.has_started:
            self._started.set()
        if health != self._health:
            self._health = health
            self._on_health(health)
