"""Writes the validation rules of a kind into its schema, so that they refuse new jobs and block no stored job that has a status.

A rule without ``oldSelf`` applies to every write, also of metadata and status: it would block the removal of a finalizer, and the
status writes of the operator, of a job that was stored before the rule existed. Kubernetes ignores such errors of unchanged fields from
1.30 on, and never those of the whole object. Therefore each rule is written twice:

- at the root, for jobs without a status. The API server drops the status of a new job, and the operator writes one in its first reconcile.
  Until then, no release of Kubernetes accepts an update of a stored job that breaks the rule, except of its status.
- at the spec, as a transition rule: an update must not make a valid job invalid.

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

_WORDS = re.compile(r"""'[^']*'|"[^"]*"|(?<![.\w])(?:spec|name)\b""")
"""Matches the two words, and literals, so that a word in a literal is no match."""


def creation_rules(rules: Iterable[ValidationRule]) -> list[Schema]:
    """Return the rules at the root of the schema."""
    missing = _rule("has(self.status) || has(self.spec)", "a job must have a spec", ".spec", REQUIRED)
    return [missing, *(_at_creation(rule) for rule in rules)]


def update_rules(rules: Iterable[ValidationRule]) -> list[Schema]:
    """Return the transition rules of the spec."""
    return [_at_update(rule) for rule in rules if rule.on_update]


def _at_creation(rule: ValidationRule) -> Schema:
    condition = _replace_words(rule.expression, spec="self.spec", name="self.metadata.name")
    path = ".metadata.name" if rule.field == "name" else f".spec{rule.field}"
    return _rule(f"has(self.status) || !has(self.spec) || ({condition})", rule.message, path, rule.reason)


def _at_update(rule: ValidationRule) -> Schema:
    old, new = (_replace_words(rule.expression, spec=name) for name in ("oldSelf", "self"))
    return _rule(f"({new}) || !({old})", rule.message, rule.field, rule.reason)


def _replace_words(expression: str, **values: str) -> str:
    return _WORDS.sub(lambda found: values.get(found[0], found[0]), expression)


def _rule(expression: str, message: str, path: str, reason: str) -> Schema:
    rule: Schema = {"rule": expression, "message": message}
    if path:
        rule["fieldPath"] = path
    return rule | {"reason": reason}
