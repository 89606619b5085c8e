"""TFJob: chief, workers, parameter servers and evaluator, which find each other by ``TF_CONFIG``.

Source: training-operator 1.9, pkg/controller.v1/tensorflow (util.go, tfjob_controller.go).
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from api.v1.tfjob import ALL_WORKERS, RESOURCE, TFJob
from controller.domain import Counts, Problem, Role, Verdict
from controller.kind import Check, EnvVar, Options, ReplicaKind, Roles, ValidationRule
from controller.kind.completion_rules import losses
from controller.kind.pods import role_port
from controller.kind.validation_rules import alternatives, field_of, has_role, known_roles
from controller.kinds.tensorflow import config
from controller.kinds.tensorflow.config import PS, WORKER

CHIEF = "Chief"
EVALUATOR = "Evaluator"
MASTER = "Master"

_CHIEFS = (CHIEF, MASTER)
"""Two names of one role: ``Master`` is the name in TensorFlow 1."""
_ROLES = (CHIEF, EVALUATOR, MASTER, PS, WORKER)
"""In alphabetical order, which is also that of the roles in TF_CONFIG."""
_SPECS = "spec.tfReplicaSpecs"

RULES = (
    ValidationRule(
        f"{known_roles(_SPECS, _ROLES)} || {' || '.join(has_role(_SPECS, name) for name in (*_CHIEFS, WORKER))}",
        f"the names of roles must be {alternatives(_ROLES)}",
        field_of(_SPECS),
    ),
)
"""The original never sets Running or Succeeded in a job that has an unknown role and no role that ends it."""


def env(job: TFJob, roles: Roles, role: Role, index: int, options: Options) -> list[EnvVar]:
    """Return ``TF_CONFIG``; a job with a single pod does not need it."""
    if sum(role.replicas for role in roles.values()) == 1:
        return []
    render = config.sparse if job.spec.enable_dynamic_worker else config.full
    port = partial(role_port, TENSORFLOW)
    return [("TF_CONFIG", render(job, roles, role, index, options, port))]


def completion_rule(job: TFJob, roles: Roles, counts: Mapping[str, Counts]) -> Verdict:
    """Return the verdict: the chief ends the job; without one worker 0 does, or all workers, depending on the success policy.

    A failure of any role counts, except for dynamic workers.

    Differs: parameter servers and evaluators without any worker end the job themselves; in the original such a job never ends. No rule
    applies after a success. See docs/decisions/0004-cleanup.md and 0008-pods-and-replicas.md.
    """
    name = f"{RESOURCE.kind} {job.metadata.namespace}/{job.metadata.name}"
    deciding = _deciding(roles)
    if deciding and all(_is_done(job, role, counts[role.name]) for role in deciding):
        return Verdict(succeeded=f"{name} successfully completed.")
    failed, restarting = losses(
        RESOURCE.kind,
        job,
        roles,
        counts,
        failure="{kind} {namespace}/{name} has failed because {count} {role} replica(s) failed.",
        restart="job {name} is restarting because {role} replica(s) failed.",
        dispensable=(WORKER,) if job.spec.enable_dynamic_worker else (),
    )
    is_running = any(counts[role.name].active for role in deciding)
    return Verdict(running=f"{name} is running." if is_running else "", failed=failed, restarting=restarting)


def check(job: TFJob, _roles: Roles) -> Iterable[Problem]:
    """Return a problem if two success policies would decide."""
    if job.spec.success_policy and job.spec.policy.success_policy:
        yield Problem("spec.successPolicy", "Forbidden: must not be set with runPolicy.successPolicy")


def is_leader(roles: Roles, role: Role, index: int) -> bool:
    """Return whether the pod is a chief, or the first worker of a job without one."""
    if any(name in roles for name in _CHIEFS):
        return role.name in _CHIEFS
    return role.name == WORKER and index == 0


def _deciding(roles: Roles) -> list[Role]:
    chiefs = [roles[name] for name in _CHIEFS if name in roles and roles[name].replicas]
    workers = [roles[name] for name in (WORKER,) if name in roles]
    return chiefs or workers or [role for role in roles.values() if role.replicas]


def _is_done(job: TFJob, role: Role, count: Counts) -> bool:
    if role.name == WORKER and job.spec.success_policy != ALL_WORKERS and count.first_completed:
        return True
    return 0 < role.replicas <= count.succeeded


TENSORFLOW: Final = ReplicaKind[TFJob](
    resource=RESOURCE,
    model=TFJob,
    framework="tensorflow",
    port=2222,
    role_names=_ROLES,
    pod_set_order=(CHIEF, MASTER, PS, WORKER, EVALUATOR),
    alternative_roles=_CHIEFS,
    # Differs: the original has no /scale for this kind. See docs/decisions/0043-scale.md.
    scalable=True,
    # The original's webhook accepts such a job, and its controller runs it if another role ends it.
    left_to_controller=frozenset({Check.UNKNOWN_ROLE}),
    rules=RULES,
    env=env,
    env_everywhere=False,
    is_addressed=config.is_addressed,
    is_leader=is_leader,
    completion_rule=completion_rule,
    check=check,
)
