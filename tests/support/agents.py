"""Settings of the agent of restarts in place."""

from pathlib import Path
from typing import Any


def agent_settings(folder: Path, **fields: Any) -> dict[str, Any]:
    """Return the settings of the agent of one of two pods, whose files are in the folder."""
    return {
        "name": "train-worker-0",
        "first": False,
        "host": "127.0.0.1",
        "port": 9,
        "token": "uid",
        "members": 2,
        "attempt": 0,
        "counted": 0,
        "max": None,
        "codes": [[1, 255, "counted"]],
        "pauses": [1],
        "reset": 600.0,
        "jitter": 0.0,
        "grace": 1,
        "state": str(folder / "state.json"),
        "log": str(folder / "termination-log"),
        **fields,
    }
