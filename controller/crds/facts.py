"""Facts about fields that a Python type cannot express: integer widths, enumerations, defaults, transition rules, and descriptions that
are those of one kind.

``jobs`` merges these tables over the schemas of the types. MPIJob has an additional table, and one for each version: their
differences tell the API server in which version a job was created.

Source: training-operator 1.9, manifests/base/crds and pkg/webhooks; mpi-operator 0.8, manifests/base/kubeflow.org_mpijobs.yaml.
"""

from collections.abc import Mapping

from api.failure_policy import (
    ExitCodeOperator,
    ExitCodes,
    FailureAction,
    FailurePolicy,
    FailureRule,
    RestartStrategy,
)
from api.job import Job, JobSpec, JobStatus, RunPolicy, SchedulingPolicy
from api.labels import MANAGED_BY_MPI_OPERATOR, MANAGED_BY_MULTIKUEUE, MANAGED_BY_US
from api.meta import Wire
from api.mpijob import Flavor, MPIJob, MPIJobSpec, go_operator
from api.success_policy import SuccessPolicy, SuccessRule
from controller.crds.openapi import Schema
from controller.policy import success
from controller.policy.recovery import HIGHEST_EXIT_CODE, MOST_RULES

Facts = Mapping[tuple[type[Wire], str], Schema]
"""By model and field, with the Python name of the field."""

_MANAGED_BY = "(has({0}.runPolicy) && has({0}.runPolicy.managedBy) ? {0}.runPolicy.managedBy : '')"  # the enum excludes ''

_QUEUE: Schema = {
    "x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "spec.runPolicy.schedulingPolicy.queue is immutable"}
    ]
}

_COMMON: Facts = {
    (Job, "spec"): {
        "x-kubernetes-validations": [
            {
                # On the spec, because a rule on the field itself does not apply when the field is added or removed.
                "rule": f"{_MANAGED_BY.format('self')} == {_MANAGED_BY.format('oldSelf')}",
                "message": "field is immutable",
                "fieldPath": ".runPolicy.managedBy",
            }
        ]
    },
    (RunPolicy, "active_deadline_seconds"): {"format": "int64"},
    (RunPolicy, "suspend"): {"default": False},
    # An enumeration, because a rule at the root would block a stored job forever: the operator writes no status to the job of another.
    (RunPolicy, "managed_by"): {"enum": [MANAGED_BY_US, MANAGED_BY_MULTIKUEUE]},
    (SchedulingPolicy, "queue"): _QUEUE,
    (FailurePolicy, "rules"): {"maxItems": MOST_RULES},
    (FailurePolicy, "max_restarts"): {"minimum": 0},
    (FailurePolicy, "restart_strategy"): {"enum": [strategy.value for strategy in RestartStrategy]},
    (FailureRule, "action"): {"enum": [action.value for action in FailureAction]},
    **{
        (FailureRule, name): {"minItems": 1, "maxItems": 32}
        for name in ("roles", "containers", "on_pod_conditions", "on_reasons")
    },
    (FailureRule, "for_seconds"): {"minimum": 0},
    (RunPolicy, "pending_timeout_seconds"): {"minimum": 1},
    (SuccessPolicy, "rules"): {"minItems": 1, "maxItems": success.MOST_RULES},
    (SuccessRule, "roles"): {"minItems": 1, "maxItems": 32},
    (SuccessRule, "succeeded_count"): {"minimum": 1},
    (ExitCodes, "operator"): {"enum": [operator.value for operator in ExitCodeOperator]},
    (ExitCodes, "values"): {
        "items": {"type": "integer", "format": "int32", "minimum": 1, "maximum": HIGHEST_EXIT_CODE},
        "minItems": 1,
        "maxItems": HIGHEST_EXIT_CODE,
        "x-kubernetes-list-type": "set",
    },
}

_MPIJOB: Facts = {
    # The originals never validated MPIJobs by webhook: any managedBy may be stored. The default depends on the version.
    (JobSpec, "run_policy"): {"default": {}},
    (Job, "spec"): {},
    (RunPolicy, "managed_by"): {},
    (RunPolicy, "suspend"): {},
    (SchedulingPolicy, "queue"): {},
    (MPIJobSpec, "active_deadline_seconds"): {"format": "int64"},
    (MPIJobSpec, "mpi_implementation"): {"enum": ["OpenMPI", "Intel", "MPICH"]},
    (JobStatus, "conditions"): {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    },
}

_MANAGER = (
    f"Controller that manages the job. `{MANAGED_BY_US}` and `{MANAGED_BY_MPI_OPERATOR}` are this operator."
)
_RETRIES: Schema = {"description": "Number of retries of the launcher. Defaults to `6`."}

_MPIJOB_VERSIONS: Mapping[str, Facts] = {
    Flavor.V1: {(RunPolicy, "suspend"): {"default": False}, (SchedulingPolicy, "queue"): _QUEUE},
    Flavor.V1ALPHA2: {(RunPolicy, "backoff_limit"): _RETRIES},
    Flavor.V2BETA1: {
        (RunPolicy, "backoff_limit"): _RETRIES,
        (RunPolicy, "suspend"): {"default": False},
        (MPIJobSpec, "slots_per_worker"): {"default": 1},
        (MPIJobSpec, "run_launcher_as_worker"): {"default": False},
        (MPIJobSpec, "ssh_auth_mount_path"): {"default": "/root/.ssh"},
        (MPIJobSpec, "launcher_creation_policy"): {"default": "AtStartup"},
        (MPIJobSpec, "mpi_implementation"): {
            **_MPIJOB[MPIJobSpec, "mpi_implementation"],
            "default": "OpenMPI",
        },
    },
}


def facts(model: type[Job], version: str) -> Facts:
    """Return everything to merge over the types of a kind in one of its versions."""
    if model is not MPIJob:
        return _COMMON
    stamp: Facts = {
        (MPIJobSpec, "flavor"): _stamp(version),
        (RunPolicy, "managed_by"): {"description": _MANAGER, "default": go_operator(Flavor(version))},
    }
    return {**_COMMON, **_MPIJOB, **_MPIJOB_VERSIONS[version], **stamp}


def _stamp(version: str) -> Schema:
    """The immutable field that the API server sets from the version of the request that creates a job."""
    return {
        "enum": sorted(flavor.value for flavor in Flavor),
        "default": version,
        "x-kubernetes-validations": [
            {
                "rule": "self == oldSelf",
                "message": "the flavor of an MPIJob is immutable; delete and create it again, "
                "or write it through the version it was created in, or with a patch",
            }
        ],
    }
