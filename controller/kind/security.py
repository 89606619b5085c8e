"""The security context of containers that the operator adds to users' pods; a ``restricted`` namespace accepts it."""

from collections.abc import Mapping
from typing import Any, Final

RESTRICTED: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 65534,
    "seccompProfile": {"type": "RuntimeDefault"},
}
