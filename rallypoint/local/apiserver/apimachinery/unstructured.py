"""API objects as plain JSON."""

from typing import Any

Json = dict[str, Any]


def read_path(obj: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of names; None if it is missing."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def set_if_empty(obj: Json, **defaults: str) -> None:
    """Set the fields that are missing or "", which is the same in a Go struct."""
    for name, default in defaults.items():
        if not obj.get(name):
            obj[name] = default
