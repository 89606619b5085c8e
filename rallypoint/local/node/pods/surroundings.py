"""What a pod needs of its node."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.process import Process, Streams
from rallypoint.local.node.pods.containers import Container
from rallypoint.local.node.sandbox.isolation import Isolation
from rallypoint.local.node.streams.logs import Logs


class Surroundings(Protocol):
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

    async def enter(
        self, pod: Manifest, container: Manifest, command: Sequence[str], streams: Streams
    ) -> Process:
        """Start one more process in a container that runs. Raises as ``start`` does."""
        ...

    def last_words(self, pod: Manifest, container: Manifest) -> str:
        """What a run that has ended has left in the file for it."""
        ...

    async def report(self, pod: Manifest, pod_status: dict[str, Any]) -> None:
        """Write the pod's status, without what others have written there; a pod that is gone is no error."""
        ...

    def tell(self, pod: Manifest, reason: str, message: str, *, warning: bool = False) -> None:
        """Emit an event about the pod."""
        ...

    def forget(self, pod: Manifest) -> None:
        """The pod's volumes are no longer needed."""
        ...
