"""The handlers of probes and lifecycle hooks: exec, httpGet, tcpSocket, sleep.

``prober`` and ``termination`` call them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.process import CapturedProcess
from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.pods import probe_client
from rallypoint.local.node.pods.probe_client import ProbeError, Target
from rallypoint.local.node.pods.probes import Probe
from rallypoint.local.node.pods.runtime import PodRuntime
from rallypoint.local.node.volumes.references import Unresolved

MAX_OUTPUT_BYTES = 10 * 1024
"""The part of a command's output that is reported. Source: Kubernetes, pkg/probe/exec/exec.go, maxReadLength."""


class Outcome(Enum):
    SUCCESS = "success"
    WARNING = "warning"
    """A success that is worth an event."""
    FAILURE = "failure"
    ERROR = "error"
    """The probe could not run. It counts neither as success nor as failure."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    outcome: Outcome
    text: str = ""


class Handlers:
    def __init__(self, pod: Manifest, runtime: PodRuntime) -> None:
        self._pod = pod
        self._runtime = runtime

    async def probe(self, container: Manifest, probe: Probe) -> ProbeResult:
        """Run a probe once.

        Source: Kubernetes, pkg/probe/exec/exec.go, pkg/probe/http/http.go, pkg/probe/tcp/tcp.go.
        """
        try:
            if action := probe.spec.get("exec"):
                return await self._command(container, action.get("command") or (), probe.timeout_seconds)
            target = self._target(container, probe.spec.get("httpGet") or probe.spec["tcpSocket"])
        except (CannotStart, Unresolved, ValueError) as error:
            return ProbeResult(Outcome.ERROR, str(error))
        try:
            if "httpGet" not in probe.spec:
                await probe_client.dial_tcp(self._runtime.isolation, target, probe.timeout_seconds)
                return ProbeResult(Outcome.SUCCESS)
            reply = await probe_client.http_get(self._runtime.isolation, target, probe.timeout_seconds)
        except ProbeError as error:
            return ProbeResult(Outcome.FAILURE, str(error))
        if reply.status >= 400 or reply.status < 200:
            return ProbeResult(Outcome.FAILURE, f"HTTP probe failed with statuscode: {reply.status}")
        if reply.status >= 300:
            return ProbeResult(Outcome.WARNING, f"Probe terminated redirects, Response body: {reply.body}")
        return ProbeResult(Outcome.SUCCESS)

    async def hook(self, container: Manifest, hook: Mapping[str, Any]) -> str:
        """Run a lifecycle hook; return its error, or an empty string. Every HTTP response is a success.

        Source: Kubernetes, pkg/kubelet/lifecycle/handlers.go, Run.
        """
        try:
            if action := hook.get("exec"):
                code, output = await self._run(container, action.get("command") or ())
                return f"command exited with {code}: {output}" if code else ""
            if action := hook.get("httpGet"):
                await probe_client.http_get(self._runtime.isolation, self._target(container, action), None)
                return ""
            if action := hook.get("sleep"):
                await asyncio.sleep(action["seconds"])
                return ""
        except (CannotStart, Unresolved, ValueError, ProbeError) as error:
            return str(error)
        return f"invalid handler: {', '.join(hook)}"

    async def _command(
        self, container: Manifest, command: Sequence[str], timeout_seconds: float
    ) -> ProbeResult:
        try:
            async with asyncio.timeout(timeout_seconds):
                code, output = await self._run(container, command)
        except TimeoutError:
            return ProbeResult(Outcome.FAILURE, f'command "{" ".join(command)}" timed out')
        return ProbeResult(Outcome.SUCCESS if code == 0 else Outcome.FAILURE, output)

    async def _run(self, container: Manifest, command: Sequence[str]) -> tuple[int, str]:
        """Run a command in a container; return its exit code and the beginning of its output.

        Raises:
            CannotStart, Unresolved: the command cannot start.
        """
        output = bytearray()

        def append(data: bytes) -> None:
            output.extend(data[: MAX_OUTPUT_BYTES - len(output)])

        process = await CapturedProcess.start(
            lambda streams: self._runtime.enter(self._pod, container, command, streams), append
        )
        return await process.wait(), output.decode(errors="replace")

    def _target(self, container: Manifest, action: Mapping[str, Any]) -> Target:
        """Raises:
        ValueError: the container has no such port.
        """
        port = _port(container, action.get("port"))
        isolation = self._runtime.isolation
        own = isolation.pod_address(self._pod)
        host = action.get("host") or own
        return Target(
            host,
            isolation.port(self._pod, port) if host == own else port,
            str(action.get("scheme") or "HTTP").lower(),
            action.get("path") or "/",
            [(header["name"], header.get("value") or "") for header in action.get("httpHeaders") or ()],
        )


def _port(container: Manifest, port: Any) -> int:
    """Return a port given by number or by name; a name may also be a number.

    Source: Kubernetes, pkg/probe/util.go, ResolveContainerPort.
    """
    ports_by_name = {entry.get("name"): entry["containerPort"] for entry in container.get("ports") or ()}
    text = str(ports_by_name.get(port, port))
    if not text.isdigit():
        raise ValueError(f"couldn't find port: {port}")
    if not 0 < int(text) < 65536:
        raise ValueError(f"invalid port number: {text}")
    return int(text)
