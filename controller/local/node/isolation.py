"""What separates the pods of one machine: the contract. ``loopback`` keeps it with plain processes alone."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from controller.local.node.environment import Variable
from controller.local.node.network import Network
from controller.local.node.process import Launch
from controller.local.node.volumes import Mount


class Isolation(Protocol):
    """A way to give each pod an address, names and its volumes."""

    @property
    def name(self) -> str:
        """The name that is shown to people."""
        ...

    @property
    def network(self) -> Network: ...

    @property
    def node_address(self) -> str: ...

    def pod_address(self, pod: Mapping[str, Any]) -> str: ...

    def refusal(self, pod: Mapping[str, Any]) -> str:
        """Why this pod can never run here; empty when it can."""
        ...

    async def obstacle(self, pod: Mapping[str, Any]) -> str:
        """Why this pod cannot run just now; empty when it can."""
        ...

    def rewrite(self, pod: Mapping[str, Any], text: str) -> str:
        """A text that the pod is given as a file, such as a ConfigMap's."""
        ...

    def place(
        self,
        pod: Mapping[str, Any],
        launch: Launch,
        variables: Mapping[str, Variable],
        mounts: Sequence[Mount],
    ) -> Launch:
        """``launch`` as it has to be started to run inside the pod."""
        ...

    def joined(self, pod: Mapping[str, Any], group: int) -> None:
        """A process group of the pod has begun."""
        ...

    def left(self, pod: Mapping[str, Any], group: int) -> None:
        """A process group of the pod has ended."""
        ...

    async def close(self) -> None:
        """Give back what was taken from the machine."""
        ...
