"""The rules by which differences are reported, and the differences that are on purpose.

A difference that no declaration matches is undeclared: either this operator or the other one does something that nobody has described.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from controller.shadow.comparable import MISSING


class Rule(StrEnum):
    """What an undeclared difference is about."""

    CHILDREN = "children"
    """A child that this operator would create, or that it does not know."""
    DELETION = "deletion"
    """A child that this operator would delete."""
    CHANGE = "change"
    """A child that this operator would change."""
    POD = "pod"
    LAUNCHER = "launcher"
    SERVICE = "service"
    SUPPORT = "support"
    """Another child: a ConfigMap, a Secret, an account, a Role, an autoscaler or a PodGroup."""
    CONDITION = "condition"
    COUNTER = "counter"
    TIME = "time"
    """Whether the job has a start time or a completion time."""
    RESTART = "restart"
    """What happens to a failed pod and its job."""
    CLEANUP = "cleanup"
    """What remains of a finished job."""
    EXPIRY = "expiry"
    """Whether a finished job is deleted."""
    VALIDATION = "validation"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. ``subject`` is a child as ``Kind name``, or ``status``; ``field`` is a JSON pointer in it.

    ``rule`` is a ``Rule``, or the name of the declaration that covers the difference, whose page is ``page``.
    """

    rule: str
    subject: str
    field: str
    ours: str
    theirs: str
    page: str = ""

    @property
    def is_declared(self) -> bool:
        return self.page != ""


def _always(difference: Difference) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Declaration:
    """Differences that are on purpose. The patterns are those of ``fnmatch``; ``jobs`` is matched with the kind, of MPIJobs with ``/`` and
    the flavor.
    """

    name: str
    reason: str
    page: str
    jobs: str
    subject: str
    fields: tuple[str, ...]
    when: Callable[[Difference], bool] = _always

    def covers(self, job_kind: str, difference: Difference) -> bool:
        return (
            fnmatchcase(job_kind, self.jobs)
            and fnmatchcase(difference.subject, self.subject)
            and any(fnmatchcase(difference.field, pattern) for pattern in self.fields)
            and self.when(difference)
        )


def _only_ours(difference: Difference) -> bool:
    return difference.theirs == MISSING


def _only_theirs(difference: Difference) -> bool:
    return difference.ours == MISSING


def _is_subset(difference: Difference) -> bool:
    """Return whether each host that this operator lists is listed by the other one, too."""
    return set(difference.ours.splitlines()) <= set(difference.theirs.splitlines())


def _is_idle(difference: Difference) -> bool:
    """Return whether this operator would explain why the job does not run."""
    reason = difference.ours.partition(" ")[2]
    return difference.ours.startswith("False ") and ("Blocked" in reason or "WaitingFor" in reason)


_DECISIONS = "docs/decisions"
_LIMITS = f"{_DECISIONS}/0003-limits.md"
_CLEANUP = f"{_DECISIONS}/0004-cleanup.md"
_PODS = f"{_DECISIONS}/0008-pods-and-replicas.md"
_GANG = f"{_DECISIONS}/0015-gang-scheduling.md"
_VERSIONS = f"{_DECISIONS}/0017-mpijob-versions.md"
_V2BETA1 = f"{_DECISIONS}/0018-mpijob-v2beta1.md"
_V1 = f"{_DECISIONS}/0020-mpijob-v1.md"
_BACKOFF = f"{_DECISIONS}/0022-replacement-backoff.md"
_DIFFERENCES = "docs/reference/differences-from-training-operator.md"

BACKOFF_LIMIT: Final = "/backoffLimit"
"""The field of a decision about a failed pod of a job with a limit for restarts."""

DECLARATIONS: Final[Sequence[Declaration]] = (
    Declaration(
        "init-container",
        "the init container also runs in a namespace of the restricted security level",
        f"{_DECISIONS}/0006-init-container.md",
        "*",
        "Pod *",
        (
            "/spec/initContainers/init-pytorch/securityContext*",
            "/spec/initContainers/kubectl-delivery/securityContext*",
        ),
        _only_ours,
    ),
    Declaration(
        "failed-before",
        "a replacement pod says how many pods of its name have failed before it",
        _BACKOFF,
        "*",
        "Pod *",
        ("/metadata/annotations/training.kubeflow.org~1failed-before", "/metadata/annotations"),
        lambda difference: (
            _only_theirs(difference)
            and (difference.field.endswith("failed-before") or difference.theirs.endswith("/failed-before"))
        ),
    ),
    Declaration(
        "deadline",
        "a deadline ends the job when it passes; training-operator sets no timer",
        _LIMITS,
        "*",
        "status",
        ("/activeDeadlineSeconds",),
    ),
    Declaration(
        "backoff-limit",
        "restarts of replaced pods count towards backoffLimit",
        _LIMITS,
        "*",
        "*",
        (BACKOFF_LIMIT, "/replicaStatuses/*/restarts", "/replicaStatuses/*/replacing"),
    ),
    Declaration(
        "completion-time",
        "each failed job has a completionTime, so that its TTL ends",
        _CLEANUP,
        "*",
        "status",
        ("/completionTime",),
        _only_ours,
    ),
    Declaration(
        "services-of-finished-jobs",
        "a Service is deleted although its pod is gone already",
        _CLEANUP,
        "*",
        "Service *",
        ("/finished",),
        lambda difference: difference.ours == "deleted",
    ),
    Declaration(
        "removed-role",
        "the status omits roles that the spec no longer has",
        _DIFFERENCES,
        "*",
        "status",
        ("/removedRoles/*",),
        _only_theirs,
    ),
    Declaration(
        "selector",
        "the selector of a scalable role is always in the status",
        _DIFFERENCES,
        "*",
        "status",
        ("/replicaStatuses/*/selector",),
        _only_ours,
    ),
    Declaration(
        "why-idle",
        "the status says why a job does not run",
        "docs/reference/events.md",
        "*",
        "status",
        ("/conditions/Running",),
        _is_idle,
    ),
    Declaration(
        "invalid-job",
        "a job that cannot run fails with the field named",
        f"{_DECISIONS}/0002-validation.md",
        "*",
        "status",
        ("/invalid",),
        lambda difference: difference.theirs == "not started",
    ),
    Declaration(
        "unnamed-port",
        "a port without a name stays out of the Service, so the job gets its Services and pods",
        f"{_DECISIONS}/0005-ports.md",
        "*",
        "*",
        ("/unnamedPort",),
    ),
    Declaration(
        "lost-pod",
        "a failed pod is replaced under OnFailure and Always; training-operator also fails the job",
        _PODS,
        "XGBoostJob",
        "Pod *",
        ("/failed",),
        lambda difference: (difference.ours, difference.theirs) == ("replaced", "job failed"),
    ),
    Declaration(
        "running",
        "Running means that a pod that decides about the job runs",
        _DIFFERENCES,
        "XGBoostJob",
        "status",
        ("/conditions/Running",),
        _only_theirs,
    ),
    Declaration(
        "pod-group",
        "the PodGroup asks for what its first pods request, and none outlives its job",
        _GANG,
        "*",
        "PodGroup *",
        ("/spec/minResources*", "/spec/minMember", "/finished"),
    ),
    Declaration(
        "managed-by",
        "managedBy names the Go operator of the job's flavor",
        _VERSIONS,
        "MPIJob/*",
        "spec",
        ("/runPolicy/managedBy",),
    ),
    Declaration(
        "owner-version",
        "the owner is named in the version that Kueue knows",
        _VERSIONS,
        "MPIJob/*",
        "*",
        ("/metadata/owner/apiVersion",),
    ),
    Declaration(
        "job-label",
        "the operator watches the Services and ConfigMaps that have the label with the job's name",
        _V2BETA1,
        "MPIJob/*",
        "*",
        ("/metadata/labels/training.kubeflow.org~1job-name", "/metadata/labels"),
        lambda difference: (
            _only_ours(difference)
            and (
                difference.field.endswith("job-name")
                or difference.ours.endswith(" training.kubeflow.org/job-name")
            )
        ),
    ),
    Declaration(
        "addresses-before-ready",
        "names resolve before pods are ready",
        _V2BETA1,
        "MPIJob/v2beta1",
        "Service *",
        ("/spec/publishNotReadyAddresses",),
        _only_ours,
    ),
    Declaration(
        "open-mpi-5",
        "the launcher also has the variables of Open MPI 5, and those that MPICH reads",
        _V2BETA1,
        "MPIJob/*",
        "*-launcher",
        ("*/env/PRTE_MCA_*", "*/env/HYDRA_LAUNCHER_EXTRA_ARGS"),
        _only_ours,
    ),
    Declaration(
        "launcher-ttl",
        "the launcher gets its TTL when it has ended",
        _V2BETA1,
        "MPIJob/*",
        "Job *",
        ("/spec/ttlSecondsAfterFinished",),
    ),
    Declaration(
        "hosts",
        "only workers that are ready are listed, and several changes are written at once",
        _V2BETA1,
        "MPIJob/*",
        "ConfigMap *",
        ("/data/discover_hosts.sh",),
        _is_subset,
    ),
    Declaration(
        "evicted-worker",
        "an evicted worker is replaced, and the job continues",
        _V2BETA1,
        "MPIJob/v2beta1",
        "*",
        ("/evicted",),
    ),
    Declaration(
        "kubectl-image",
        "training-operator's releases push the same image under both names; --mpi-kubectl-delivery-image chooses another one",
        "docs/reference/differences-from-mpi-operator.md",
        "MPIJob/v1*",
        "Pod *-launcher",
        ("/spec/initContainers/kubectl-delivery/image",),
        lambda difference: all(
            image.endswith("/kubectl-delivery:latest") for image in (difference.ours, difference.theirs)
        ),
    ),
    Declaration(
        "launcher-rights",
        "a launcher may use only the workers of its own job, and only while it runs",
        _V1,
        "MPIJob/v1*",
        "Role *",
        ("/rules*",),
    ),
)

NAMES: Final = (*Rule, *(declaration.name for declaration in DECLARATIONS))


def settle(job_kind: str, difference: Difference) -> Difference:
    """Return the difference under the declaration that covers it, or unchanged."""
    for declaration in DECLARATIONS:
        if declaration.covers(job_kind, difference):
            return Difference(
                declaration.name,
                difference.subject,
                difference.field,
                difference.ours,
                difference.theirs,
                declaration.page,
            )
    return difference
