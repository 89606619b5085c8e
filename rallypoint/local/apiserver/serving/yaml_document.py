"""Reads one YAML document from a client that is not trusted to be reasonable."""

from typing import Any

import yaml

MAX_VALUES = 1_000_000
"""Values of a document once all aliases are written out; a request body of 3 MiB holds fewer without aliases."""


class TooManyAliases(yaml.YAMLError):
    """A small document whose aliases stand for a huge one, or for one without end."""


def yaml_document(body: bytes) -> Any:
    """Parse a document as plain data.

    Raises:
        yaml.YAMLError: it is no YAML, or ``TooManyAliases``.
    """
    document = yaml.load(body, Loader=yaml.CSafeLoader)
    # Parsed aliases share one object, so they cost nothing until somebody copies or serializes the document.
    if b"*" in body and _count_values(document, {}) > MAX_VALUES:
        raise TooManyAliases("error converting YAML to JSON: yaml: document contains excessive aliasing")
    return document


def _count_values(value: Any, counts: dict[int, float]) -> float:
    """The values in ``value``, shared ones as often as they occur; infinite if it contains itself."""
    if not isinstance(value, (dict, list)):
        return 1
    if (known := counts.get(id(value))) is not None:
        return known
    counts[id(value)] = float("inf")  # until it is counted, it can only be met inside itself
    items: Any = value.values() if isinstance(value, dict) else value
    counts[id(value)] = 1 + sum(_count_values(item, counts) for item in items)
    return counts[id(value)]
