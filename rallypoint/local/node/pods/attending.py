"""What a container is given while it runs: its postStart hook, then its probes, each at its own pace.

What follows from their answers is decided in ``probes`` and ``lifecycle``.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.pods import probes
from rallypoint.local.node.pods.handlers import Handlers, Outcome
from rallypoint.local.node.pods.probes import Doom, Health, Kind, Probe, Streak


class Attendant:
    """Of one run of one container. ``see`` hears of each change of its health, ``tell`` of each event."""

    def __init__(
        self,
        container: Manifest,
        handlers: Handlers,
        see: Callable[[Health], None],
        tell: Callable[[str, str], None],
    ) -> None:
        self._container = container
        self._handlers = handlers
        self._see = see
        self._tell = tell
        self._health = probes.at_start(container)
        self._started = asyncio.Event()
        self._is_leaving = False

    def leave(self) -> None:
        """The container has been asked to end: from now on only its readiness is of interest."""
        self._is_leaving = True

    async def attend(self) -> None:
        """Until cancelled, or nothing is left to look at."""
        began = asyncio.get_running_loop().time()
        hook = (self._container.get("lifecycle") or {}).get("postStart")
        if hook and await self._handlers.hook(self._container, hook):
            self._tell("FailedPostStartHook", "PostStartHook failed")
            self._change(replace(self._health, doom=Doom.POST_START))
            return
        self._change(replace(self._health, is_set_up=True))
        async with asyncio.TaskGroup() as tasks:
            for probe in probes.of(self._container):
                tasks.create_task(self._watch(probe, began + probe.delay_seconds))

    async def _watch(self, probe: Probe, first: float) -> None:
        """Look every period. The startup probe goes first; when it has succeeded, the others begin at once."""
        loop, streak = asyncio.get_running_loop(), Streak()
        if probe.kind is not Kind.STARTUP:
            await self._started.wait()
        due = max(first, loop.time())
        while True:
            await asyncio.sleep(due - loop.time())
            if self._is_done(probe):
                return
            answer = await self._look(probe)
            if answer is not None and not self._is_done(probe):
                streak = streak.and_then(succeeded=answer)
                self._change(probes.after(self._health, probe, streak))
            due = max(due + probe.period_seconds, loop.time())

    def _is_done(self, probe: Probe) -> bool:
        if probe.kind is Kind.READINESS:
            return False
        has_succeeded = probe.kind is Kind.STARTUP and self._health.started
        return self._is_leaving or has_succeeded or self._health.doom is not None

    async def _look(self, probe: Probe) -> bool | None:
        """Whether it succeeded; None when that cannot be said."""
        answer = await self._handlers.probe(self._container, probe)
        word = probe.kind.name.capitalize()
        match answer.outcome:
            case Outcome.SUCCESS:
                return True
            case Outcome.WARNING:
                self._tell("ProbeWarning", f"{word} probe warning: {answer.text}")
                return True
            case Outcome.FAILURE:
                if not self._is_done(probe):
                    self._tell("Unhealthy", f"{word} probe failed: {answer.text}")
                return False
            case Outcome.ERROR:
                self._tell("Unhealthy", f"{word} probe errored: {answer.text}")
                return None

    def _change(self, health: Health) -> None:
        if health.has_started:
            self._started.set()
        if health != self._health:
            self._health = health
            self._see(health)
