"""What a worker says: lines of JSON behind a mark, in the log, among whatever else is written there."""

import json
import os
from typing import Any

PREFIX = "rallypoint-bench "


def emit(message_type: str, **fields: Any) -> None:
    """Write one line in one call, so that those of other ranks do not break it apart."""
    line = PREFIX + json.dumps({"type": message_type, **fields}, separators=(",", ":")) + "\n"
    # The newline before it ends what another process may have left open.
    os.write(1, b"\n" + line.encode())
