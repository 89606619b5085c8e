"""API objects as plain JSON."""

from typing import Any

Json = dict[str, Any]
