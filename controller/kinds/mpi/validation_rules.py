"""The rules by which the API server refuses an MPIJob.

Each rule is in all versions of the API, because a job can be written in any of them: the stamped flavor says which operator's rules
count. An annotation can override the stamp, and rules cannot read it. MultiKueue creates such jobs: a job of v1, written through v2beta1.
So the operator alone checks what mpi-operator refuses and training-operator runs.

Source: mpi-operator 0.8, pkg/apis/kubeflow/validation/validation.go; training-operator 1.9, pkg/apis/kubeflow.org/v1/mpi_validation.go.

Unknown roles: the operator's own check of v1 and v1alpha2, ``v1spec.problems``, is the source for v1alpha2,
where the original has no rule.

Differs: the originals accept such jobs and report the problem, or retry forever. See docs/decisions/0002-validation.md.
"""

from collections.abc import Iterator

from api.job import CleanPodPolicy, RestartPolicy
from api.mpijob import Flavor
from api.names import LONGEST_NAME
from controller.kind import ValidationRule
from controller.kind.validation_rules import (
    DNS_1035_LABEL,
    FORBIDDEN,
    INVALID,
    REQUIRED,
    alternatives,
    field_of,
    for_replicas,
    not_empty_rule,
    not_negative_rule,
    restart_policy_rule,
    template_rules,
)
from controller.kinds.mpi.names import LAUNCHER, WORKER

_SPECS = "spec.mpiReplicaSpecs"
_FIELD = field_of(_SPECS)
_ROLES = (LAUNCHER, WORKER)
_IS_UNKNOWN = f"!(role in ['{LAUNCHER}', '{WORKER}'])"
"""mpi-operator ignores other roles."""
_IS_V2BETA1 = f"has(spec.flavor) && spec.flavor == '{Flavor.V2BETA1}'"
_IS_NOT_V2BETA1 = f"!({_IS_V2BETA1})"
_NEEDS_LAUNCHER = f"has(spec.flavor) && spec.flavor != '{Flavor.V1}'"


def mpi_rules() -> Iterator[ValidationRule]:
    """Yield the rules of all flavors, then those of v2beta1."""
    yield ValidationRule(
        f"name.size() <= {LONGEST_NAME}",
        f"must have at most {LONGEST_NAME} characters",
        "name",
        on_update=False,
    )
    yield not_empty_rule(_SPECS, _ROLES)
    yield ValidationRule(
        f"{_IS_V2BETA1} || {_SPECS}.all(role, role in ['{LAUNCHER}', '{WORKER}'])",
        f"the names of roles must be {alternatives(_ROLES)}",
        _FIELD,
    )
    # A recording of v1 creates a job without a launcher.
    yield ValidationRule(
        f"!({_NEEDS_LAUNCHER}) || '{LAUNCHER}' in {_SPECS}",
        f"must have the role {LAUNCHER}",
        _FIELD,
        REQUIRED,
    )
    is_other = f"role != '{LAUNCHER}'"
    yield ValidationRule(
        for_replicas(_SPECS, "{replicas} == 1", unless=is_other),
        f"replicas of {LAUNCHER} must be 1 or omitted",
        _FIELD,
        FORBIDDEN,
    )
    yield not_negative_rule(_SPECS)
    yield from template_rules(_SPECS, unless=_IS_UNKNOWN)
    yield restart_policy_rule(_SPECS, tuple(RestartPolicy), unless=_IS_UNKNOWN)
    yield from _v2beta1_rules()


def _v2beta1_rules() -> Iterator[ValidationRule]:
    """Yield the rules about values that a job of no flavor needs."""
    replicas = f"{_SPECS}['{WORKER}'].replicas"
    workers = f"'{WORKER}' in {_SPECS} && has({replicas}) && {replicas} > 1 ? {replicas} - 1 : 0"
    yield ValidationRule(
        f"{_IS_NOT_V2BETA1} || (name.matches('{DNS_1035_LABEL}') && "
        f"name.size() + {len(f'-{WORKER}-')} + string({workers}).size() <= {LONGEST_NAME})",
        f"must have lower-case letters, digits and '-', begin with a letter, and end with a letter or digit; the names of pods, "
        f"<job>-worker-<last index>, must have at most {LONGEST_NAME} characters",
        "name",
        on_update=False,
    )
    yield _v2beta1("slotsPerWorker", "{value} >= 0", "must not be negative")
    names = ", ".join(f"'{policy}'" for policy in CleanPodPolicy)
    yield _v2beta1(
        "runPolicy.cleanPodPolicy",
        f"{{value}} in [{names}]",
        f"must be {alternatives(tuple(CleanPodPolicy))}",
    )
    for field in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"):
        yield _v2beta1(f"runPolicy.{field}", "{value} >= 0", "must not be negative")


def _v2beta1(path: str, condition: str, message: str) -> ValidationRule:
    """Return a rule about a field of the spec, which may be missing. It reads the flavor last: valid values need no flavor."""
    parts = path.split(".")
    parents = ["spec." + ".".join(parts[: length + 1]) for length in range(len(parts))]
    missing = " || ".join(f"!has({parent})" for parent in parents)
    value = condition.format(value=f"spec.{path}")
    return ValidationRule(f"{missing} || {value} || {_IS_NOT_V2BETA1}", message, f".{path}", INVALID)
