"""What pods take from ConfigMaps and Secrets: which objects they name, and what those hold. Pure."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

KINDS = {"configMap": "configmap", "secret": "secret"}
"""The first word of a field that names one (``configMapRef``, ``secretKeyRef``) → ``Reference.kind``."""


class Unresolved(Exception):
    """Something that a container needs is not there (yet). The text is what a kubelet says in its waiting message."""

    reason = "CreateContainerConfigError"


class Uncreated(Unresolved):
    """Everything is there, and the container can still not be made of it."""

    reason = "CreateContainerError"


@dataclass(frozen=True, slots=True)
class Reference:
    """A ConfigMap or a Secret that a pod takes values or files from."""

    kind: str
    """``configmap`` or ``secret``."""
    name: str


Contents: TypeAlias = Mapping[Reference, Mapping[str, bytes] | None]
"""What each object holds; None where it does not exist."""


def decoded(reference: Reference, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """The keys of an object and what they hold."""
    if reference.kind == "secret":
        return {key: base64.b64decode(value) for key, value in (manifest.get("data") or {}).items()}
    plain = {key: value.encode() for key, value in (manifest.get("data") or {}).items()}
    return plain | {key: base64.b64decode(value) for key, value in (manifest.get("binaryData") or {}).items()}
