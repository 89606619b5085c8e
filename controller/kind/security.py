"""What the containers that are added to users' pods may do: nothing but run, which a ``restricted`` namespace accepts."""

from collections.abc import Mapping
from typing import Any, Final

RESTRICTED: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 65534,
    "seccompProfile": {"type": "RuntimeDefault"},
}
