"""Finds the fields that CEL rules read, so that the other fields need not be converted.

The ``cel`` package copies an object on each access; most of a job's pod template is read by no rule.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LITERAL = re.compile(r"'[^']*'|\"[^\"]*\"")
_PATH = re.compile(
    r"(?P<keys>\bhas\(|'' in )?(?<![\w.])(?P<path>[A-Za-z]\w*(?:\.\w+|\[(?:\w+|'')\])*)(?P<call>\()?"
)
_DECLARATION = re.compile(r", ")
_SCALAR_COMPARISON = re.compile(r" in \[| [!=]= ''")
_KEYWORDS = frozenset({"in", "true", "false", "null"})
_METHODS = frozenset(
    {"all", "exists", "exists_one", "size", "matches", "lowerAscii", "startsWith", "endsWith"}
)
"""Methods that return no object."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The names of all fields that expressions mention, and of those whose whole value counts."""

    mentioned: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()


def fields_of(expression: str) -> Fields | None:
    """Return the fields that an expression reads; None if it may read others, such as by a comparison of whole objects."""
    text = _LITERAL.sub("''", expression)
    mentioned, whole = set[str](), set[str]()
    for found in _PATH.finditer(text):
        *parents, last = re.sub(r"\[[\w']+\]", "", found["path"]).split(".")
        mentioned |= {*parents, last}
        if found["call"]:
            if parents and last not in _METHODS:
                return None
        elif parents:
            whole |= set() if found["keys"] else {last}
        elif last not in _KEYWORDS and not (
            _SCALAR_COMPARISON.match(text, found.end())
            or (text[found.start() - 1] == "(" and _DECLARATION.match(text, found.end()))
        ):
            return None
    return Fields(frozenset(mentioned), frozenset(whole))


def united(parts: Iterable[Fields | None]) -> Fields | None:
    """Return the fields that any of the expressions reads; None if one of them may read all."""
    mentioned, whole = set[str](), set[str]()
    for part in parts:
        if part is None:
            return None
        mentioned |= part.mentioned
        whole |= part.whole
    return Fields(frozenset(mentioned), frozenset(whole))
