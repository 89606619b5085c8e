"""Messages of the worker: lines of JSON behind a prefix in the log, between other output."""

import json
import os
from typing import Any

PREFIX = "rallypoint-bench "


def emit(message_type: str, **fields: Any) -> None:
    """Write one line with a single call, so that output of other ranks does not split it."""
    line = PREFIX + json.dumps({"type": message_type, **fields}, separators=(",", ":")) + "\n"
    # The newline at the start ends an incomplete line of another process.
    os.write(1, b"\n" + line.encode())
