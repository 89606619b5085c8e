"""What separates the pods of one machine: the contract. ``loopback`` keeps it with plain processes alone."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from controller.local.manifest import Manifest
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

    def pod_address(self, pod: Manifest) -> str: ...

    def refusal(self, pod: Manifest) -> str:
        """Why this pod can never run here; empty when it can."""
        ...

    def rewrite(self, pod: Manifest, text: str) -> str:
        """A text that the pod is given as a file, such as a ConfigMap's."""
        ...

    def variables(
        self, pod: Manifest, found: Mapping[str, Variable], mounts: Sequence[Mount]
    ) -> dict[str, str]:
        """The values of a container's variables inside the pod."""
        ...

    def place(self, pod: Manifest, launch: Launch) -> Launch:
        """``launch`` as it has to be started to run inside the pod."""
        ...

    def paths(self, text: str, mounts: Sequence[Mount]) -> str:
        """A text of the manifest with the mounts' paths as the process sees them."""
        ...

    def forget(self, pod: Manifest) -> None:
        """The pod's object is gone."""
        ...

    def close(self) -> None:
        """Give back what was taken from the machine."""
        ...
