"""CEL rules that refuse a job at apply: the checks of ``controller.kind.checks`` that an API server can make.

An expression reads ``spec`` and ``name``, the spec and the name of the job. ``controller.crds.rules`` writes it into the
CustomResourceDefinition. A rule never refuses a job that a recording creates, or that the original accepts and runs: a kind
lists the checks that it leaves to the controller in ``left_to_controller``, with the reason in a comment. See docs/decisions/0002-validation.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Final, Protocol

from api.job import RestartPolicy
from api.names import LONGEST_NAME

INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
FORBIDDEN: Final = "FieldValueForbidden"

DNS_1035_LABEL: Final = "^[a-z]([-a-z0-9]*[a-z0-9])?$"


class Check(StrEnum):
    """The checks that some kinds leave to the controller."""

    UNKNOWN_ROLE = "unknown role"
    SINGLE_ROLE = "replicas of a single role"
    MAIN_CONTAINER = "main container"


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """A CEL expression that is true for a valid job. ``field`` is a path below the spec; ``name`` stands for ``metadata.name``."""

    expression: str
    message: str
    field: str = ""
    reason: str = INVALID
    on_update: bool = True
    """Whether an update that makes the expression false is refused. False for an expression that reads ``name``, which transition rules
    cannot read, and for a rule that a running job may break, such as when its workers are scaled to zero."""


class RoleKind(Protocol):
    """The members of a kind that its rules are made from."""

    @property
    def role_names(self) -> tuple[str, ...]: ...
    @property
    def replicas_field(self) -> str: ...
    @property
    def container(self) -> str: ...
    @property
    def missing_container(self) -> str: ...
    @property
    def single_roles(self) -> tuple[str, ...]: ...
    @property
    def required_roles(self) -> tuple[str, ...]: ...
    @property
    def alternative_roles(self) -> tuple[str, ...]: ...
    @property
    def left_to_controller(self) -> frozenset[Check]: ...


def common_rules(kind: RoleKind) -> Iterator[ValidationRule]:
    """Yield the rules of a kind with indexed pods. Role names match in any case.

    Source: training-operator 1.9, pkg/webhooks.

    Differs: see ``controller.kind.checks``; and two names of one role that differ in case only are left to the controller.
    """
    specs = f"spec.{kind.replicas_field}"
    yield from name_rules()
    yield from pod_name_rules(specs)
    yield from role_rules(kind, specs)
    yield from template_rules(specs)
    yield restart_policy_rule(specs, tuple(RestartPolicy))
    if Check.MAIN_CONTAINER not in kind.left_to_controller:
        found = f"{{containers}}.exists(container, container.name == '{kind.container}')"
        yield ValidationRule(
            for_templates(specs, f"{{containers}}.size() == 0 || {found}"),
            f"the template of each role {kind.missing_container.format(kind.container)}",
            field_of(specs),
            REQUIRED,
        )


def role_rules(kind: RoleKind, specs: str) -> Iterator[ValidationRule]:
    """Yield the rules about the names and numbers of roles."""
    field = field_of(specs)
    yield not_empty_rule(specs, kind.role_names)
    if Check.UNKNOWN_ROLE not in kind.left_to_controller:
        yield ValidationRule(
            known_roles(specs, kind.role_names),
            f"the names of roles must be {alternatives(kind.role_names)}",
            field,
        )
    for name in kind.required_roles:
        yield ValidationRule(has_role(specs, name), f"must have the role {name}", field, REQUIRED)
    for first, second in combinations(kind.alternative_roles, 2):
        yield ValidationRule(
            f"!({has_role(specs, first)} && {has_role(specs, second)})",
            f"must not have more than 1 {first} or {second} role",
            field,
            FORBIDDEN,
        )
    if Check.SINGLE_ROLE not in kind.left_to_controller:
        for name in kind.single_roles:
            is_other = f"role.lowerAscii() != '{name.lower()}'"
            yield ValidationRule(
                for_replicas(specs, "{replicas} == 1", unless=is_other),
                f"replicas of {name} must be 1 or omitted",
                field,
                FORBIDDEN,
            )
    yield not_negative_rule(specs)
    has_pods = f"!has({specs}[role].replicas) || {specs}[role].replicas > 0"
    yield ValidationRule(
        f"{specs}.size() == 0 || {specs}.exists(role, {has_pods})",
        "at least one role must have replicas",
        field,
        FORBIDDEN,
        on_update=False,
    )


def template_rules(specs: str, unless: str = "") -> Iterator[ValidationRule]:
    """Yield the rules about containers, except those about their names. ``unless`` is true for roles that are not checked."""
    field, role = field_of(specs), f"{specs}[role]"
    complete = (
        f"has({role}.template) && has({role}.template.spec) && {role}.template.spec.containers.size() > 0"
    )
    yield ValidationRule(
        for_roles(specs, complete, unless),
        "the template of each role must have at least one container",
        field,
        REQUIRED,
    )
    yield ValidationRule(
        for_templates(
            specs, "{containers}.all(container, has(container.image) && container.image != '')", unless
        ),
        "each container must have an image",
        field,
        REQUIRED,
    )


def restart_policy_rule(specs: str, known: tuple[str, ...], unless: str = "") -> ValidationRule:
    """Return the rule about restart policies; an empty one counts as missing."""
    names = ", ".join(f"'{name}'" for name in ("", *known))
    policy = f"{specs}[role].restartPolicy"
    return ValidationRule(
        for_roles(specs, f"!has({policy}) || {policy} in [{names}]", unless),
        f"restartPolicy must be {alternatives(known)}",
        field_of(specs),
    )


def not_empty_rule(specs: str, names: tuple[str, ...]) -> ValidationRule:
    return ValidationRule(
        f"{specs}.size() > 0",
        f"must have at least one role: {alternatives(names)}",
        field_of(specs),
        REQUIRED,
    )


def not_negative_rule(specs: str) -> ValidationRule:
    return ValidationRule(
        for_replicas(specs, "{replicas} >= 0"), "replicas must not be negative", field_of(specs)
    )


def name_rules() -> Iterator[ValidationRule]:
    """Yield the rules about the job's name, which the names of its Services contain."""
    yield ValidationRule(
        f"name.size() <= {LONGEST_NAME} && name.matches('{DNS_1035_LABEL}')",
        f"must have at most {LONGEST_NAME} lower-case letters, digits and '-', begin with a letter, and end with a letter or digit",
        "name",
        on_update=False,
    )


def pod_name_rules(specs: str) -> Iterator[ValidationRule]:
    """Yield the rule about the longest name of a pod and Service. A job whose own name is too long breaks only the other rule."""
    replicas = f"{specs}[role].replicas"
    last = f"string(has({replicas}) && {replicas} > 1 ? {replicas} - 1 : 0)"
    yield ValidationRule(
        f"name.size() > {LONGEST_NAME} || "
        f"{specs}.all(role, name.size() + role.size() + {last}.size() + 2 <= {LONGEST_NAME})",
        f"the names of pods, <job>-<role>-<last index>, must have at most {LONGEST_NAME} characters",
        "name",
        on_update=False,
    )


def has_role(specs: str, name: str) -> str:
    """Return the expression that is true if a role has the name, in any case."""
    return f"{specs}.exists(role, role.lowerAscii() == '{name.lower()}')"


def known_roles(specs: str, names: tuple[str, ...]) -> str:
    """Return the expression that is true if each role has one of the names, in any case."""
    known = ", ".join(f"'{name.lower()}'" for name in names)
    return f"{specs}.all(role, role.lowerAscii() in [{known}])"


def for_roles(specs: str, condition: str, unless: str = "") -> str:
    """Return the expression that is true if each role meets the condition on ``role``. ``unless`` is true for roles that need not."""
    return f"{specs}.all(role, {unless + ' || ' if unless else ''}{condition})"


def for_replicas(specs: str, condition: str, unless: str = "") -> str:
    """Return the expression that is true if the number of each role that has one meets the condition on ``{replicas}``."""
    replicas = f"{specs}[role].replicas"
    return for_roles(specs, f"!has({replicas}) || {condition.format(replicas=replicas)}", unless)


def for_templates(specs: str, condition: str, unless: str = "") -> str:
    """Return the expression that is true if the containers of each template meet the condition on ``{containers}``.

    The list may be empty.
    """
    template = f"{specs}[role].template"
    is_missing = f"!has({template}) || !has({template}.spec)"
    return for_roles(
        specs, f"{is_missing} || {condition.format(containers=f'{template}.spec.containers')}", unless
    )


def field_of(expression: str) -> str:
    """Return the path below the spec of an expression such as ``spec.pytorchReplicaSpecs``."""
    return expression.removeprefix("spec")


def alternatives(names: tuple[str, ...]) -> str:
    """Return the names as a text: ``A``, ``A or B``, ``A, B or C``."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
