"""Writes the validation rules of a kind into its schema, so that they refuse new jobs and block no stored job that has a status.

A rule without ``oldSelf`` applies to every write, also of metadata and status: it would block the removal of a finalizer, and the
status writes of the operator, of a job that was stored before the rule existed. Kubernetes ignores such errors of unchanged fields from
1.30 on, and never those of the whole object. Therefore each rule is written twice, both at the root:

- for jobs without a status. The API server drops the status of a new job, and the operator writes one in its first reconcile.
  Until then, no release of Kubernetes accepts an update of a stored job that breaks the rule, except of its status.
- as a transition rule: an update must not make a valid job invalid. A status write cannot change the spec, so the rule holds at once if the
  status changes; an update of the spec cannot change the status. See docs/decisions/0002-validation.md for what that saves.

``optionalOldSelf`` would express the first, but Kubernetes 1.29 does not know it.
"""

import re
from collections.abc import Iterable

from controller.crds.openapi import Schema
from controller.kind.validation_rules import REQUIRED, ValidationRule

MOST_ROLES = 32
"""Bounds the estimated cost of rules that read each role. No kind has more than six."""
MOST_CONTAINERS = 1000
"""Bounds the estimated cost of rules that read each container."""

_IS_STATUS_WRITE = "has(self.status) && (!has(oldSelf.status) || self.status != oldSelf.status)"

_WORDS = re.compile(r"""'[^']*'|"[^"]*"|(?<![.\w])(?:spec|name)\b""")
"""Matches the two words, and literals, so that a word in a literal is no match."""


def creation_rules(rules: Iterable[ValidationRule]) -> list[Schema]:
    """Return the rules for jobs without a status."""
    missing = _rule("has(self.status) || has(self.spec)", "a job must have a spec", ".spec", REQUIRED)
    return [missing, *(_at_creation(rule) for rule in rules)]


def update_rules(rules: Iterable[ValidationRule]) -> list[Schema]:
    """Return the transition rules."""
    return [_at_update(rule) for rule in rules if rule.on_update]


def _at_creation(rule: ValidationRule) -> Schema:
    condition = _replace_words(rule.expression, spec="self.spec", name="self.metadata.name")
    expression = f"has(self.status) || !has(self.spec) || ({condition})"
    return _rule(expression, rule.message, _path(rule), rule.reason)


def _at_update(rule: ValidationRule) -> Schema:
    old, new = (_replace_words(rule.expression, spec=name) for name in ("oldSelf.spec", "self.spec"))
    expression = f"{_IS_STATUS_WRITE} || !has(self.spec) || !has(oldSelf.spec) || ({new}) || !({old})"
    return _rule(expression, rule.message, _path(rule), rule.reason)


def _path(rule: ValidationRule) -> str:
    return ".metadata.name" if rule.field == "name" else f".spec{rule.field}"


def _replace_words(expression: str, **values: str) -> str:
    return _WORDS.sub(lambda found: values.get(found[0], found[0]), expression)


def _rule(expression: str, message: str, path: str, reason: str) -> Schema:
    return {"rule": expression, "message": message, "fieldPath": path, "reason": reason}
