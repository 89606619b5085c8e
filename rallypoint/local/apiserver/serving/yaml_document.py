"""Parses a YAML document from an untrusted client."""

from typing import Any

import yaml

MAX_VALUES = 1_000_000
"""Maximum values of a document with expanded aliases; 3 MiB without aliases contain fewer."""


class TooManyAliases(yaml.YAMLError):
    """The aliases expand to a huge or infinite document."""


def yaml_document(body: bytes) -> Any:
    """Parse a document as plain data.

    Raises:
        yaml.YAMLError: the document is not valid YAML, or ``TooManyAliases``.
    """
    document = yaml.load(body, Loader=yaml.CSafeLoader)
    # Parsed aliases share one object; they expand only when the document is copied or serialized.
    if b"*" in body and _count_values(document, {}) > MAX_VALUES:
        raise TooManyAliases("error converting YAML to JSON: yaml: document contains excessive aliasing")
    return document


def _count_values(value: Any, counts: dict[int, float]) -> float:
    """Count the values in ``value`` with expanded aliases; infinite if it contains itself."""
    if not isinstance(value, (dict, list)):
        return 1
    if (known := counts.get(id(value))) is not None:
        return known
    counts[id(value)] = float("inf")  # found again before it is counted: it contains itself
    items: Any = value.values() if isinstance(value, dict) else value
    counts[id(value)] = 1 + sum(_count_values(item, counts) for item in items)
    return counts[id(value)]
