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
ISOLATED = "pods cannot reach networks outside this machine; --egress allows it"
NO_EGRESS = "--egress has no effect: pods use this machine's network"


@dataclass(frozen=True, slots=True)
class Selection:
    isolation: Isolation
    note: str = ""
    """A note for users, such as why namespaces are not used."""

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
    """Start the isolation. Its volumes are in a new folder in ``folder``.

    ``egress`` gives pods in namespaces access to networks outside the machine. ``images`` with a root file system and
    ``real_ssh``, an sshd in each pod, need namespaces.

    Raises:
        NoNamespaces: they are requested, or a flag needs them, and this machine does not allow them.
        NoAddresses: the isolation is loopback, and this machine has no addresses for pods.
    """
    own = folder / f"volumes-{secrets.token_hex(4)}"
    for flag, reason in _requirements(images, real_ssh=real_ssh) if mode == "loopback" else ():
        raise NoNamespaces(f"{flag} needs --isolation namespaces: {reason}")
    if mode == "loopback":
        return Selection(await Loopback.open(private.folder(own)), NO_EGRESS if egress else "")
    try:
        if sys.platform != "linux":
            raise NoNamespaces(NOT_LINUX)
        return Selection(await Namespaces.open(own, egress=egress, images=images), "" if egress else ISOLATED)
    except NoNamespaces as error:
        reason = f"namespaces cannot be used here: {error}"
        for flag, _ in _requirements(images, real_ssh=real_ssh):
            raise NoNamespaces(f"{reason}; {flag.split()[0]} needs them") from error
        if mode == "namespaces":
            raise NoNamespaces(f"{reason}; --isolation loopback works without them") from error
        return Selection(await Loopback.open(private.folder(own)), reason)


def _requirements(images: Images, *, real_ssh: bool) -> list[tuple[str, str]]:
    """Return the flags that need namespaces, and why."""
    reason = "a plain process uses this machine's root file system"
    flags = [(f"--image {name}=...", reason) for name, _ in images.roots()]
    if real_ssh:
        flags.append(("--real-ssh", "without them, all pods share the port and the key of one sshd"))
    return flags
