"""Label and field selectors, parsed into predicates over objects.

Source: apimachinery, pkg/labels/selector.go and pkg/fields/selector.go.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rallypoint.local.apiserver.apimachinery.errors import StatusError, bad_request
from rallypoint.local.apiserver.apimachinery.unstructured import Json

Predicate = Callable[[Json], bool]

FieldReader = Callable[[Json], str]

TOKENS = re.compile(r"\s*(?:(?P<op>!=|==|=|!|\(|\)|,|<|>)|(?P<word>[^\s=!(),<>]+))")

LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

Labels = Mapping[str, str]


def get_labels(obj: Json) -> Labels:
    labels: Labels = obj["metadata"].get("labels") or {}
    return labels


def parse_label_selector(text: str) -> Predicate | None:
    """Parse a label selector into a predicate; None for an empty selector.

    Raises:
        StatusError: 400, the selector is not valid.
    """
    tests = _Parser(text).requirements()
    if not tests:
        return None
    return lambda obj: all(test(get_labels(obj)) for test in tests)


class _Parser:
    """Parses ``a=b,c!=d,e in (f,g),h notin (i),j,!k`` from left to right."""

    def __init__(self, text: str) -> None:
        self.tokens = self._split(text)
        self.at = 0

    @staticmethod
    def _split(text: str) -> list[str]:
        tokens: list[str] = []
        text = text.rstrip()
        position = 0
        while position < len(text):
            found = TOKENS.match(text, position)
            if found is None:
                raise _parse_error(f"found '{text[position:]}', expected: identifier")
            tokens.append(found["op"] or found["word"])
            position = found.end()
        return tokens

    def requirements(self) -> list[Callable[[Labels], bool]]:
        tests: list[Callable[[Labels], bool]] = []
        while self.at < len(self.tokens):
            tests.append(self._requirement())
            if self.at < len(self.tokens):
                self._expect(",")
                if self.at == len(self.tokens):
                    raise _parse_error("found '', expected: identifier after ','")
        return tests

    def _next(self) -> str:
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        self.at += 1
        return token

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _expect(self, expected: str) -> None:
        token = self._next()
        if token != expected:
            raise _parse_error(f"found '{token}', expected: '{expected}'")

    def _requirement(self) -> Callable[[Labels], bool]:
        if self._peek() == "!":
            self._next()
            missing = self._key()
            return lambda labels: missing not in labels
        key = self._key()
        match self._peek():
            case "" | ",":
                return lambda labels: key in labels
            case "=" | "==":
                self._next()
                value = self._value()
                return lambda labels: labels.get(key) == value
            case "!=":
                self._next()
                other = self._value()
                return lambda labels: labels.get(key) != other
            case "in":
                self._next()
                expected = self._values()
                return lambda labels: labels.get(key) in expected
            case "notin":
                self._next()
                excluded = self._values()
                return lambda labels: labels.get(key) not in excluded
            case "<" | ">" as operator:
                self._next()
                return _numeric_requirement(key, operator, self._value())
            case token:
                raise _parse_error(f"found '{token}', expected: in, notin, =, ==, !=, gt, lt")

    def _key(self) -> str:
        key = self._next()
        if not key or not LABEL_KEY.fullmatch(key):
            raise _parse_error(f"found '{key}', expected: identifier")
        return key

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        value = self._next()
        if not LABEL_VALUE.fullmatch(value):
            raise _parse_error(f"found '{value}', expected: identifier")
        return value

    def _values(self) -> set[str]:
        self._expect("(")
        values: set[str] = set()
        while True:
            values.add("" if self._peek() == ")" else self._value())
            token = self._next()
            if token == ")":
                return values
            if token != ",":
                raise _parse_error(f"found '{token}', expected: ',' or ')'")


def _numeric_requirement(key: str, operator: str, bound: str) -> Callable[[Labels], bool]:
    try:
        limit = int(bound)
    except ValueError as error:
        raise _parse_error(
            f"for 'Gt', 'Lt' operators, the value must be an integer, found '{bound}'"
        ) from error

    def test(labels: Labels) -> bool:
        value = labels.get(key, "")
        if not value.lstrip("-").isdigit():
            return False
        return int(value) > limit if operator == ">" else int(value) < limit

    return test


def _parse_error(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


def path_reader(path: str) -> FieldReader:
    """Return a reader of a dotted path for field selectors: a missing value reads as "", a boolean as ``true`` or ``false``."""
    names = path.split(".")

    def read(obj: Json) -> str:
        value: Any = obj
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, bool):
            return str(value).lower()
        return "" if value is None else str(value)

    return read


def parse_field_selector(text: str, readers: Mapping[str, FieldReader]) -> Predicate | None:
    """Parse a field selector into a predicate; ``readers`` are the selectable fields of the resource.

    Raises:
        StatusError: 400, the selector is not valid or names a field that is not selectable.
    """
    tests: list[Predicate] = []
    for term in filter(None, text.split(",")):
        name, operator, value = _term(term)
        reader = readers.get(name)
        if reader is None:
            raise bad_request(f"field label not supported: {name}")
        tests.append(_field_test(reader, value, equal=operator != "!="))
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)


def required_values(text: str) -> Iterator[tuple[str, str]]:
    """Yield the fields for which a field selector requires a value, with that value.

    Raises:
        StatusError: 400, the selector is not valid.
    """
    for term in filter(None, text.split(",")):
        name, operator, value = _term(term)
        if operator != "!=":
            yield name, value


def _term(term: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        name, found, value = term.partition(operator)
        if found:
            return name.strip(), operator, value.strip()
    raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")


def _field_test(reader: FieldReader, value: str, *, equal: bool) -> Predicate:
    return lambda obj: (reader(obj) == value) == equal


def all_of(first: Predicate | None, second: Predicate | None) -> Predicate | None:
    """Return the conjunction of two predicates; None matches everything."""
    if first is None or second is None:
        return first or second
    return lambda obj: first(obj) and second(obj)
