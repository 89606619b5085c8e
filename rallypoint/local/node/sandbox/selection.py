"""Selects the isolation of pods: the requested one, or the best that works on this machine."""

import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from rallypoint.local import private
from rallypoint.local.node.containers.images import NO_IMAGES, Images
from rallypoint.local.node.sandbox.client import NoNamespaces
from rallypoint.local.node.sandbox.isolation import Isolation
from rallypoint.local.node.sandbox.loopback import Loopback
from rallypoint.local.node.sandbox.namespaces import Namespaces

IsolationMode: TypeAlias = Literal["auto", "namespaces", "loopback"]
NOT_LINUX = "only Linux has them"
NO_EGRESS = "--egress changes nothing: pods are in this machine's own network"


@dataclass(frozen=True, slots=True)
class Selection:
    isolation: Isolation
    note: str = ""
    """A note for users, such as why it is not a better one."""

    @property
    def description(self) -> str:
        """The description for users."""
        return f"{self.isolation.name} isolation" + (f" ({self.note})" if self.note else "")


async def choose(
    mode: IsolationMode,
    folder: Path,
    *,
    egress: bool = False,
    images: Images = NO_IMAGES,
    real_ssh: bool = False,
) -> Selection:
    """Begin the isolation; ``folder`` gets a folder for its volumes, of a name that no other one has.

    ``egress`` is a way out of the machine, for pods that would not have one. ``images`` with a root
    file system of their own cannot be had without namespaces, nor can ``real_ssh``, an sshd in each pod.

    Raises:
        NoNamespaces: they are wanted, or needed for a flag, and this machine has none.
        NoAddresses: loopback is wanted or left, and this machine has no addresses for pods.
    """
    own = folder / f"volumes-{secrets.token_hex(4)}"
    for flag, reason in _requirements(images, real_ssh=real_ssh) if mode == "loopback" else ():
        raise NoNamespaces(f"{flag} needs --isolation namespaces: {reason}")
    if mode == "loopback":
        return Selection(await Loopback.open(private.folder(own)), NO_EGRESS if egress else "")
    try:
        if sys.platform != "linux":
            raise NoNamespaces(NOT_LINUX)
        return Selection(await Namespaces.open(own, egress=egress, images=images), _note(egress=egress))
    except NoNamespaces as error:
        reason = f"namespaces cannot be used here: {error}"
        for flag, _ in _requirements(images, real_ssh=real_ssh):
            raise NoNamespaces(f"{reason}; {flag.split()[0]} needs them") from error
        if mode == "namespaces":
            raise NoNamespaces(f"{reason}; --isolation loopback does without") from error
        return Selection(await Loopback.open(private.folder(own)), reason)


def _requirements(images: Images, *, real_ssh: bool) -> list[tuple[str, str]]:
    """The flags that cannot be had without namespaces, and why."""
    flags = [(f"--image {name}=...", "a plain process has one root") for name, _ in images.roots()]
    return [*flags, *([("--real-ssh", "an sshd has one port and one key for all pods else")] * real_ssh)]


def _note(*, egress: bool) -> str:
    return "" if egress else "pods have no way out of the machine, --egress gives them one"
