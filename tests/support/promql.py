"""The names of metrics and labels in a PromQL expression. Reads what our own expressions are made of, not all there is."""

import re

_STRING = re.compile(r'"[^"]*"')
_RANGE = re.compile(r"\[\$?\w+\]|\boffset \$?\w+")
_MATCHERS = re.compile(r"\{([^}]*)\}")
_GROUPING = re.compile(r"\b(?:by|on|without)\s*\(([^)]*)\)")
_WORD = re.compile(r"[a-z_][a-z0-9_]*")
_CALL = re.compile(r"\b[a-z_]+\s*(?=\()")
_OPERATORS = frozenset({"and", "or", "unless", "sum", "min", "max", "count"})


def metrics(expression: str) -> set[str]:
    """As written, so those of histograms end in ``_bucket``, ``_sum`` or ``_count``."""
    return set(selected(expression))


def selected(expression: str) -> list[str]:
    """Return the metric of each selector."""
    text = _MATCHERS.sub("", _RANGE.sub("", _STRING.sub("", expression)))
    return [word for word in _WORD.findall(_CALL.sub("", _GROUPING.sub("", text))) if word not in _OPERATORS]


def labels(expression: str) -> set[str]:
    text = _STRING.sub("", expression)
    lists = _MATCHERS.findall(text) + _GROUPING.findall(text)
    return {word for names in lists for word in _WORD.findall(names)}
