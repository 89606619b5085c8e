"""Whole lines of the pieces that containers write."""

from collections.abc import Callable

from rallypoint.local.manifest import Manifest

LONGEST_LINE_BYTES = 64 * 1024
"""A longer line is passed on in parts; a progress bar need not end for us."""

Emit = Callable[[Manifest, str, str], None]
"""Gets the pod, the container and one line without its end."""


class Lines:
    """Cuts output into lines; a listener of the node's logs."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._open: dict[tuple[str, str], bytes] = {}

    def take(self, pod: Manifest, container: str, data: bytes) -> None:
        """Take a piece; an empty one ends the last line."""
        key = pod["metadata"]["uid"], container
        text = self._open.pop(key, b"") + data
        *whole, rest = text.split(b"\n")
        for line in whole:
            self._emit(pod, container, _readable(line))
        if not rest:
            return
        if not data or len(rest) > LONGEST_LINE_BYTES:
            self._emit(pod, container, _readable(rest))
        else:
            self._open[key] = rest


def _readable(line: bytes) -> str:
    """What a terminal would show in the end: of a line that was written over, the last version."""
    return line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
