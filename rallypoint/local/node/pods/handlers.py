"""What probes and lifecycle hooks do: run a command, ask over HTTP, open a connection, sleep.

Who decides when, and what comes of the answer, is ``attending`` and ``ending``.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.process import Captured, Process, Streams
from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.pods import asking
from rallypoint.local.node.pods.asking import Silence, Target
from rallypoint.local.node.pods.probes import Probe
from rallypoint.local.node.sandbox.isolation import Isolation
from rallypoint.local.node.volumes.objects import Unresolved

MOST_BYTES = 10 * 1024
"""Of the output of a command that are kept. Source: Kubernetes, pkg/probe/exec/exec.go, maxReadLength."""


class Outcome(Enum):
    SUCCESS = "success"
    WARNING = "warning"
    """A success that people should look at."""
    FAILURE = "failure"
    ERROR = "error"
    """It could not be asked; nothing follows from that."""


@dataclass(frozen=True, slots=True)
class Answer:
    outcome: Outcome
    text: str = ""


class Means(Protocol):
    """What handlers need of the node."""

    isolation: Isolation

    async def enter(
        self, pod: Manifest, container: Manifest, command: Sequence[str], streams: Streams
    ) -> Process: ...


class Handlers:
    """Acts in and on one pod."""

    def __init__(self, pod: Manifest, means: Means) -> None:
        self._pod = pod
        self._means = means

    async def probe(self, container: Manifest, probe: Probe) -> Answer:
        """Look once.

        Source: Kubernetes, pkg/probe/exec/exec.go, pkg/probe/http/http.go, pkg/probe/tcp/tcp.go.
        """
        try:
            if action := probe.spec.get("exec"):
                return await self._command(container, action.get("command") or (), probe.timeout_seconds)
            target = self._target(container, probe.spec.get("httpGet") or probe.spec["tcpSocket"])
        except (CannotStart, Unresolved, ValueError) as error:
            return Answer(Outcome.ERROR, str(error))
        try:
            if "httpGet" not in probe.spec:
                await asking.connect(self._means.isolation, target, probe.timeout_seconds)
                return Answer(Outcome.SUCCESS)
            reply = await asking.get(self._means.isolation, target, probe.timeout_seconds)
        except Silence as error:
            return Answer(Outcome.FAILURE, str(error))
        if reply.status >= 400 or reply.status < 200:
            return Answer(Outcome.FAILURE, f"HTTP probe failed with statuscode: {reply.status}")
        if reply.status >= 300:
            return Answer(Outcome.WARNING, f"Probe terminated redirects, Response body: {reply.body}")
        return Answer(Outcome.SUCCESS)

    async def hook(self, container: Manifest, hook: Mapping[str, Any]) -> str:
        """Run a lifecycle hook to its end; what went wrong, empty when nothing did. No answer over HTTP is wrong.

        Source: Kubernetes, pkg/kubelet/lifecycle/handlers.go, Run.
        """
        try:
            if action := hook.get("exec"):
                code, said = await self._run(container, action.get("command") or ())
                return f"command exited with {code}: {said}" if code else ""
            if action := hook.get("httpGet"):
                await asking.get(self._means.isolation, self._target(container, action), None)
                return ""
            if action := hook.get("sleep"):
                await asyncio.sleep(action["seconds"])
                return ""
        except (CannotStart, Unresolved, ValueError, Silence) as error:
            return str(error)
        return f"invalid handler: {', '.join(hook)}"

    async def _command(self, container: Manifest, command: Sequence[str], timeout_seconds: float) -> Answer:
        try:
            async with asyncio.timeout(timeout_seconds):
                code, said = await self._run(container, command)
        except TimeoutError:
            return Answer(Outcome.FAILURE, f'command "{" ".join(command)}" timed out')
        return Answer(Outcome.SUCCESS if code == 0 else Outcome.FAILURE, said)

    async def _run(self, container: Manifest, command: Sequence[str]) -> tuple[int, str]:
        """Run a command in a container: its exit code and the beginning of what it said.

        Raises:
            CannotStart, Unresolved: it does not begin.
        """
        said = bytearray()

        def hear(data: bytes) -> None:
            said.extend(data[: MOST_BYTES - len(said)])

        process = await Captured.start(
            lambda streams: self._means.enter(self._pod, container, command, streams), hear
        )
        return await process.wait(), said.decode(errors="replace")

    def _target(self, container: Manifest, action: Mapping[str, Any]) -> Target:
        """Raises:
        ValueError: the container has no such port.
        """
        port = _port(container, action.get("port"))
        isolation = self._means.isolation
        own = isolation.pod_address(self._pod)
        host = action.get("host") or own
        return Target(
            host,
            isolation.port(self._pod, port) if host == own else port,
            str(action.get("scheme") or "HTTP").lower(),
            action.get("path") or "/",
            [(one["name"], one.get("value") or "") for one in action.get("httpHeaders") or ()],
        )


def _port(container: Manifest, wanted: Any) -> int:
    """A port by number or by name; a name may also be a number.

    Source: Kubernetes, pkg/probe/util.go, ResolveContainerPort.
    """
    named = {one.get("name"): one["containerPort"] for one in container.get("ports") or ()}
    text = str(named.get(wanted, wanted))
    if not text.isdigit():
        raise ValueError(f"couldn't find port: {wanted}")
    if not 0 < int(text) < 65536:
        raise ValueError(f"invalid port number: {text}")
    return int(text)
