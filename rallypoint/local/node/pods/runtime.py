"""The runtime that a pod worker uses."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.process import Process, Streams
from rallypoint.local.node.pods.container_state import Container
from rallypoint.local.node.sandbox.isolation import Isolation
from rallypoint.local.node.streams.logs import Logs


class PodRuntime(Protocol):
    isolation: Isolation
    logs: Logs

    def now(self) -> datetime: ...

    def rejection(self, pod: Manifest) -> str:
        """Return why the pod can never run here; empty if it can."""
        ...

    async def prepare(self, pod: Manifest) -> None:
        """Set up the pod's volumes.

        Raises:
            Unresolved: a required object does not exist.
        """
        ...

    async def start(self, pod: Manifest, container: Container, output: Callable[[bytes], None]) -> Process:
        """Start a container.

        Raises:
            Unresolved: a required object does not exist.
            CannotStart: the container can never start.
        """
        ...

    async def enter(
        self, pod: Manifest, container: Manifest, command: Sequence[str], streams: Streams
    ) -> Process:
        """Start another process in a running container. Raises as ``start`` does."""
        ...

    def read_termination_message(self, pod: Manifest, container: Manifest) -> str:
        """Return what a terminated container wrote to its termination log."""
        ...

    async def report(self, pod: Manifest, pod_status: dict[str, Any]) -> None:
        """Patch the fields of the pod's status that a kubelet owns. A deleted pod is no error."""
        ...

    def record_event(self, pod: Manifest, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event about the pod."""
        ...

    def discard(self, pod: Manifest) -> None:
        """Release everything of a finished pod."""
        ...
