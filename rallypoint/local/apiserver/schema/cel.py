"""CEL rules of custom resource schemas (``x-kubernetes-validations``).

The ``cel`` package evaluates the expressions with its standard extensions. A rule that mentions ``oldSelf`` is a
transition rule: it applies only when an old value exists.
"""

import re
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

# The package imports its own command line, and with it an unused terminal toolkit of 12 MiB.
sys.modules["cel.cli"] = ModuleType("cel.cli")

import cel  # noqa: E402 - see above
from cel.stdlib import add_stdlib_to_context  # noqa: E402

from rallypoint.local.apiserver.apimachinery.field_errors import FieldError, quoted  # noqa: E402
from rallypoint.local.apiserver.apimachinery.unstructured import Json  # noqa: E402
from rallypoint.local.apiserver.schema.projection import Fields, fields_of, united  # noqa: E402

del sys.modules["cel.cli"]

MISSING: Any = object()
"""Marks a missing old value or default."""

CONTEXT = cel.Context()
"""Shared by all rules, which run one at a time; ``set_values`` sets ``self`` and ``oldSelf``."""
add_stdlib_to_context(CONTEXT)

EVALUATION_ERRORS = (ValueError, TypeError, RuntimeError, KeyError, IndexError)
"""What the package raises for an expression that has no result."""

LONGEST_MESSAGE_BYTES = 5 * 1024
"""The API server takes no longer result of a message expression."""

REASONS = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


def set_values(value: Any, old: Any) -> None:
    """Set the values that the next rules read. The conversion takes longer than most rules, so the rules of one value share it."""
    CONTEXT.update({"self": value, "oldSelf": None if old is MISSING else old})


GUARD = re.compile(r"has\(self\.(?P<field>[A-Za-z]\w*)\) \|\| ")


def _is_disjunction(source: str) -> bool:
    """Return whether no operator outside of parentheses binds weaker than ``||``: the conditional operator is the only one."""
    depth = 0
    for character in re.sub(r"'[^']*'|\"[^\"]*\"", "", source):
        depth += (character in "([{") - (character in ")]}")
        if character == "?" and depth == 0:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled rule."""

    source: str
    program: Any
    message: str
    message_program: Any
    reason: str
    field_path: str
    is_transition: bool
    fields: Fields | None = None
    """The fields that the expressions read; None if they may read all."""
    guard: str = ""
    """The field of an object that makes the rule true: that of a rule ``has(self.field) || …``."""

    @classmethod
    def parse(cls, rule: Json) -> "Rule":
        """Compile a rule of a schema.

        Raises:
            ValueError: the expression is not valid.
        """
        source = rule["rule"].strip()
        expression = rule.get("messageExpression", "")
        return cls(
            source=source,
            program=cel.compile(source),
            message=rule.get("message", "") or f"failed rule: {source}",
            message_program=cel.compile(expression) if expression else None,
            reason=rule.get("reason", "FieldValueInvalid"),
            field_path=rule.get("fieldPath", ""),
            is_transition=re.search(r"\boldSelf\b", source) is not None
            and not rule.get("optionalOldSelf", False),
            fields=united(map(fields_of, (source, expression))),
            guard=found["field"] if (found := GUARD.match(source)) and _is_disjunction(source) else "",
        )

    def applies(self, value: Any, old: Any) -> bool:
        """Return whether the rule must be evaluated. This is decided without a conversion of the values, which takes longer than most rules."""
        if self.is_transition and old is MISSING:
            return False
        return not (self.guard and isinstance(value, dict) and self.guard in value)

    def check(self, value: Any, path: str) -> FieldError | None:
        """Return the error of a value that violates the rule; None if it complies. The caller has called ``set_values``."""
        try:
            if self.program.execute(CONTEXT) is True:
                return None
        except EVALUATION_ERRORS as error:
            message = f"rule: {self.source}: evaluation failed: {error}"
        else:
            message = self._message()
        shown = quoted(value) + ": " if not isinstance(value, dict | list) else ""
        message_text = (
            f"{REASONS[self.reason]}: {shown}{message}" if self.reason == "FieldValueInvalid" else ""
        )
        return FieldError(
            self.reason,
            f"{path}{self.field_path}".removeprefix("."),
            message_text or f"{REASONS[self.reason]}: {message}",
        )

    def _message(self) -> str:
        """Return the result of the message expression; the constant message if there is none, or if its result is no message.

        Source: apiextensions-apiserver, pkg/apiserver/schema/cel, evalMessageExpression.
        """
        if self.message_program is None:
            return self.message
        try:
            text = self.message_program.execute(CONTEXT)
        except EVALUATION_ERRORS:
            return self.message
        text = text.strip() if isinstance(text, str) else ""
        is_message = text and "\n" not in text and len(text.encode()) <= LONGEST_MESSAGE_BYTES
        return text if is_message else self.message
