"""Label and field selectors, parsed into predicates over objects, and the validation of label selectors in objects.

Source: apimachinery, pkg/labels/selector.go, pkg/fields/selector.go, pkg/apis/meta/v1/validation/validation.go.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.errors import bad_request
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.metadata import validate_labels
from rallypoint.local.apiserver.apimachinery.unstructured import Json, read_path

Predicate = Callable[[Json], bool]

FieldReader = Callable[[Json], str]

Labels = Mapping[str, str]

KEY = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
REQUIREMENT = re.compile(
    rf"""
    (?P<negated>!)? \s* (?P<key>{KEY})
    | (?P<compared>{KEY}) \s* (?P<operator>==|=|!=|<|>) \s* (?P<value>{VALUE})
    | (?P<listed>{KEY}) \s+ (?P<membership>in|notin) \s* \( (?P<values>\s*{VALUE}\s*(?:,\s*{VALUE}\s*)*) \)
    """,
    re.VERBOSE,
)
SEPARATOR = re.compile(r",(?![^(]*\))")
"""A comma outside of parentheses."""


def parse_label_selector(text: str) -> Predicate | None:
    """Parse a label selector such as ``a=b,c!=d,e in (f,g),h notin (i),j,!k`` into a predicate; None if it is empty.

    Raises:
        StatusError: 400, the selector is not valid.
    """
    if not text.strip():
        return None
    tests = [_requirement(part.strip()) for part in SEPARATOR.split(text)]

    def matches(obj: Json) -> bool:
        labels: Labels = obj["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return matches


def _requirement(text: str) -> Callable[[Labels], bool]:
    found = REQUIREMENT.fullmatch(text)
    if found is None:
        raise bad_request(f"unable to parse requirement: '{text}'")
    if key := found["key"]:
        return lambda labels: (key in labels) != bool(found["negated"])
    if key := found["listed"]:
        values = {value.strip() for value in found["values"].split(",")}
        return lambda labels: (labels.get(key) in values) == (found["membership"] == "in")
    key, value = found["compared"], found["value"]
    match found["operator"]:
        case "=" | "==":
            return lambda labels: labels.get(key) == value
        case "!=":
            return lambda labels: labels.get(key) != value
        case operator:
            return _numeric_requirement(key, operator, value)


def _numeric_requirement(key: str, operator: str, bound: str) -> Callable[[Labels], bool]:
    if not bound.isdecimal():
        why = f"for 'Gt', 'Lt' operators, the value must be an integer, found '{bound}'"
        raise bad_request(f"unable to parse requirement: {why}")
    limit = int(bound)

    def test(labels: Labels) -> bool:
        value = labels.get(key, "")
        return value.isdecimal() and (int(value) > limit if operator == ">" else int(value) < limit)

    return test


def validate_label_selector(selector: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors in a label selector of an object."""
    yield from validate_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for i, requirement in enumerate(selector.get("matchExpressions") or ()):
        item_path = f"{path}.matchExpressions[{i}]"
        operator, values = requirement.get("operator", ""), requirement.get("values") or ()
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be specified when `operator` is 'In' or 'NotIn'"
                yield field_errors.required(f"{item_path}.values", detail)
        elif operator not in ("Exists", "DoesNotExist"):
            yield field_errors.invalid(f"{item_path}.operator", operator, "not a valid selector operator")
        elif values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield field_errors.forbidden(f"{item_path}.values", detail)
        if wrong := names.qualified(requirement.get("key", "")):
            yield field_errors.invalid(f"{item_path}.key", requirement.get("key", ""), wrong)
        for j, value in enumerate(values):
            if wrong := names.label_value(value):
                yield field_errors.invalid(f"{item_path}.values[{j}]", value, wrong)


def path_reader(path: str) -> FieldReader:
    """Return a reader of a dotted path for field selectors: a missing value reads as "", a boolean as ``true`` or ``false``."""
    parts = tuple(path.split("."))

    def read(obj: Json) -> str:
        value = read_path(obj, parts)
        if isinstance(value, bool):
            return str(value).lower()
        return "" if value is None else str(value)

    return read


def parse_field_selector(text: str, readers: Mapping[str, FieldReader]) -> Predicate | None:
    """Parse a field selector into a predicate; ``readers`` are the selectable fields of the resource.

    Raises:
        StatusError: 400, the selector is not valid or names a field that is not selectable.
    """
    tests: list[tuple[FieldReader, str, bool]] = []
    for name, value, is_equal in _terms(text):
        if name not in readers:
            raise bad_request(f"field label not supported: {name}")
        tests.append((readers[name], value, is_equal))
    if not tests:
        return None
    return lambda obj: all((read(obj) == value) == is_equal for read, value, is_equal in tests)


def required_values(text: str) -> dict[str, str]:
    """Return the fields for which a field selector requires a value, with that value.

    Raises:
        StatusError: 400, the selector is not valid.
    """
    return {name: value for name, value, is_equal in _terms(text) if is_equal}


def _terms(text: str) -> Iterator[tuple[str, str, bool]]:
    for term in filter(None, text.split(",")):
        name, operator, value = next(
            (parts for operator in ("!=", "==", "=") if (parts := term.partition(operator))[1]), ("", "", "")
        )
        if not operator:
            raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
        yield name.strip(), value.strip(), operator != "!="


def all_of(first: Predicate | None, second: Predicate | None) -> Predicate | None:
    """Return the conjunction of two predicates; None matches everything."""
    if first is None or second is None:
        return first or second
    return lambda obj: first(obj) and second(obj)
