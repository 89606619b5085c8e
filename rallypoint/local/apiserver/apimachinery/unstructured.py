"""API objects as plain JSON."""

from typing import Any

Json = dict[str, Any]


def read_path(obj: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of names; None if it is missing."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj
