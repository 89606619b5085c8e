"""References of pods to ConfigMaps and Secrets, and the data of these objects. Pure."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

KINDS = ("configMap", "secret")
"""The first word of the fields that refer to one: ``configMapRef``, ``secretKeyRef``."""


class Unresolved(Exception):
    """A container needs something that does not exist (yet). The text is the kubelet's waiting message."""

    reason = "CreateContainerConfigError"


class CannotCreateContainer(Unresolved):
    """Everything exists, but the container cannot be created."""

    reason = "CreateContainerError"


@dataclass(frozen=True, slots=True)
class Reference:
    kind: str
    """``configMap`` or ``secret``."""
    name: str


Contents: TypeAlias = Mapping[Reference, Mapping[str, bytes] | None]
"""The data of each object; None if it does not exist."""


def decoded(reference: Reference, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    if reference.kind == "secret":
        return {key: base64.b64decode(value) for key, value in (manifest.get("data") or {}).items()}
    text = {key: value.encode() for key, value in (manifest.get("data") or {}).items()}
    return text | {key: base64.b64decode(value) for key, value in (manifest.get("binaryData") or {}).items()}
