"""The annotation in which client-side ``kubectl apply`` stores what it has applied."""

import json
from typing import Any

from api.labels import LAST_APPLIED

MOST_BYTES = 256 * 1024
"""The API server's limit for all annotations of an object together. Source: apimachinery, pkg/api/validation/objectmeta.go, TotalAnnotationSizeLimitB."""

_ESCAPED = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&"})


def last_applied(body: dict[str, Any]) -> str:
    """Return the value of the annotation for an object.

    Source: Go's encoding/json. It sorts keys, escapes three characters of HTML, and ends the text with a newline.
    """
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.translate(_ESCAPED) + "\n"


def annotations_bytes(body: dict[str, Any]) -> int:
    """Return the size of all annotations of an object that client-side ``kubectl apply`` has created."""
    annotations = {**body["metadata"].get("annotations", {}), LAST_APPLIED: last_applied(body)}
    return sum(len(name.encode()) + len(text.encode()) for name, text in annotations.items())
