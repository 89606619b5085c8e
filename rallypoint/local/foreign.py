"""What YAML can say and JSON cannot: found in a manifest before it is sent, each with the path of its field."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

BIGGEST = 2**63 - 1
DEEPEST = 200
"""Levels of nesting; more than any object of Kubernetes has, and less than the encoder follows."""
_NAMES = {bytes: "binary value", set: "set", tuple: "pair"}


def faults(value: Any, path: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, str]]:
    """Path and message of each value that no API server can be told. ``above``: what holds the value, by identity."""
    if id(value) in above:
        yield path, "Invalid value: an alias of what holds it"
    elif len(above) > DEEPEST:
        yield path, f"Invalid value: nested more than {DEEPEST} levels deep"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if message := _fault(key):
                yield path, f"key: {message}"
            else:
                yield from faults(item, f"{path}.{key}".lstrip("."), (*above, id(value)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from faults(item, f"{path}[{index}]", (*above, id(value)))
    elif message := _fault(value):
        yield path, message


def _fault(scalar: Any) -> str:
    """Why JSON has no such scalar; empty when it has. Dates are sent as text, as people mean them."""
    match scalar:
        case int() if not -BIGGEST - 1 <= scalar <= BIGGEST:
            return "Invalid value: not an integer of 64 bits"
        case float() if not math.isfinite(scalar):
            return f"Invalid value: {scalar}: not a finite number"
        case str() if not _is_text(scalar):
            return f"Invalid value: {scalar!a}: not Unicode text"
        case bytes() | set() | tuple():
            return f"Invalid value: a {_NAMES[type(scalar)]} of YAML, which JSON does not have"
        case _:
            return ""


def _is_text(text: str) -> bool:
    """Whether UTF-8 can hold it; half of a surrogate pair is no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
