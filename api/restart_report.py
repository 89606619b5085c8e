"""The report of a restart in place: the termination message of the container that failed, which the kubelet then restarts.

``controller.agent`` writes it. The container that wrote it belongs to the user, so nothing in it is trusted beyond the job's own status.
"""

from typing import Annotated, Final

import msgspec

EXIT_CODE: Final = 222
"""The exit code of a container that ends for a restart in place. The report has that of its command."""
SETTINGS_VARIABLE: Final = "RALLYPOINT_AGENT"
"""The environment variable with the settings of the agent, as JSON. The command does not get it."""
_MOST: Final = 1_000_000

_Number = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]


class RestartReport(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Why all commands of a job restart in place."""

    attempt: _Number
    """The attempt that the failure ended."""
    exit_code: Annotated[int, msgspec.Meta(ge=1, le=255)]
    """The exit code of the command that failed first."""
    counted: _Number = 0
    """How many restarts count towards maxRestarts, this one included."""
    pause_seconds: _Number = 0
    """How long the next attempt waits."""
    message: str = ""
    """The termination message of the command."""


class _Message(msgspec.Struct):
    rallypoint: RestartReport


_decode = msgspec.json.Decoder(_Message).decode


def report_in(exit_code: int, message: str) -> RestartReport | None:
    """Return the report of a terminated container; None if it ended for another reason."""
    if exit_code != EXIT_CODE:
        return None
    try:
        return _decode(message).rallypoint
    except msgspec.DecodeError:
        return None
