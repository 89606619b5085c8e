"""Writes the validation rules of a kind into its schema, so that they refuse new jobs and block no stored job that has a status.

A rule without ``oldSelf`` applies to every write, also of metadata and status: it would block the removal of a finalizer, and the
status writes of the operator, of a job that was stored before the rule existed. Kubernetes ignores such errors of unchanged fields from
1.30 on, and never those of the whole object. Therefore each rule is written twice, both at the root:

- for jobs without a status. The API server drops the status of a new job, and the operator writes one in its first reconcile.
  Until then, no release of Kubernetes accepts an update of a stored job that breaks the rule, except of its status.
- as a transition rule: an update must not make a valid job invalid. A status write cannot change the spec, so the rule holds at once if the
  status changes; an update of the spec cannot change the status. See docs/decisions/0002-validation.md for what that saves.

``optionalOldSelf`` would express the first, but Kubernetes 1.29 does not know it.

The API server evaluates each rule of the root in each write, also those that hold at once. So rules with the same field and reason share one
rule of the schema. Its message expression returns the messages of all that do not hold.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from controller.crds.openapi import Schema
from controller.kind.validation_rules import REQUIRED, ValidationRule

MOST_ROLES = 32
"""Bounds the estimated cost of rules that read each role. No kind has more than six."""
MOST_CONTAINERS = 1000
"""Bounds the estimated cost of rules that read each container."""

_CREATION_GUARD = "has(self.status) || !has(self.spec)"
_UPDATE_GUARD = (
    "has(self.status) && (!has(oldSelf.status) || self.status != oldSelf.status)"
    " || !has(self.spec) || !has(oldSelf.spec)"
)
"""The first part is true for status writes."""

_SEPARATOR = "; "
"""Separates the messages of conditions that do not hold."""

_WORDS = re.compile(r"""'[^']*'|"[^"]*"|(?<![.\w])(?:spec|name)\b""")
"""Matches the two words, and literals, so that a word in a literal is no match."""


def creation_rules(rules: Iterable[ValidationRule]) -> list[Schema]:
    """Return the rules for jobs without a status."""
    missing = {
        "rule": "has(self.status) || has(self.spec)",
        "message": "a job must have a spec",
        "fieldPath": ".spec",
        "reason": REQUIRED,
    }
    return [missing, *(_schema(_CREATION_GUARD, _at_creation, group) for group in _groups(rules))]


def update_rules(rules: Iterable[ValidationRule]) -> list[Schema]:
    """Return the transition rules."""
    on_update = [rule for rule in rules if rule.on_update]
    return [_schema(_UPDATE_GUARD, _at_update, group) for group in _groups(on_update)]


def _groups(rules: Iterable[ValidationRule]) -> Iterable[Sequence[ValidationRule]]:
    """Return the rules by field and reason."""
    groups: dict[tuple[str, str], list[ValidationRule]] = {}
    for rule in rules:
        groups.setdefault((_path(rule), rule.reason), []).append(rule)
    return groups.values()


def _at_creation(rule: ValidationRule) -> str:
    return _replace_words(rule.expression, spec="self.spec", name="self.metadata.name")


def _at_update(rule: ValidationRule) -> str:
    old, new = (_replace_words(rule.expression, spec=name) for name in ("oldSelf.spec", "self.spec"))
    return f"({new}) || !({old})"


def _schema(
    guard: str, expression: Callable[[ValidationRule], str], rules: Sequence[ValidationRule]
) -> Schema:
    """Return one rule for all that share their field and reason; it holds where the guard is true.

    The message is that of all rules: the API server uses it if the message expression fails, such as when a condition has an error.
    """
    conditions = [f"({expression(rule)})" for rule in rules]
    messages = [rule.message for rule in rules]
    every = " && ".join(conditions)
    schema = {
        "rule": f"{guard} || {every if len(rules) == 1 else f'({every})'}",
        "message": _SEPARATOR.join(messages),
    }
    if len(rules) > 1:
        schema["messageExpression"] = _message_expression(conditions, messages)
    return schema | {"fieldPath": _path(rules[0]), "reason": rules[0].reason}


def _message_expression(conditions: Iterable[str], messages: Iterable[str]) -> str:
    """Return the expression of the messages of the conditions that do not hold.

    The API server knows no bound for the cost of ``join`` after ``filter``, which would be shorter.
    """
    parts = (
        f"({condition} ? '' : {_literal(_SEPARATOR + message)})"
        for condition, message in zip(conditions, messages, strict=True)
    )
    return f"({' + '.join(parts)}).substring({len(_SEPARATOR)})"


def _literal(text: str) -> str:
    """Return a CEL literal, which needs no escapes."""
    quote = '"' if "'" in text else "'"
    if quote in text or not text.isprintable() or "\\" in text:
        raise ValueError(f"a message has both quotes, a backslash or a control character: {text!r}")
    return f"{quote}{text}{quote}"


def _path(rule: ValidationRule) -> str:
    return ".metadata.name" if rule.field == "name" else f".spec{rule.field}"


def _replace_words(expression: str, **values: str) -> str:
    return _WORDS.sub(lambda found: values.get(found[0], found[0]), expression)
