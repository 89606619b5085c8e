"""The declarations: each has a page, and each covers what it is about and nothing beside it."""

from pathlib import Path

import pytest

from controller.shadow.comparable import MISSING
from controller.shadow.declared import DECLARATIONS, NAMES, Declaration, Difference, Rule, settle

ROOT = Path(__file__).parents[3]

INIT = "/spec/initContainers/init-pytorch/securityContext"
JOB_NAME = "/metadata/labels/training.kubeflow.org~1job-name"
EXAMPLES = {
    "init-container": ("PyTorchJob", Difference(Rule.POD, "Pod a", INIT, "an object", MISSING)),
    "failed-before": (
        "TFJob",
        Difference(
            Rule.POD, "Pod a", "/metadata/annotations/training.kubeflow.org~1failed-before", MISSING, "2"
        ),
    ),
    "deadline": ("TFJob", Difference(Rule.CONDITION, "status", "/activeDeadlineSeconds", "True X", MISSING)),
    "backoff-limit": (
        "TFJob",
        Difference(Rule.COUNTER, "status", "/replicaStatuses/PS/restarts", "1", MISSING),
    ),
    "completion-time": ("TFJob", Difference(Rule.TIME, "status", "/completionTime", "set", MISSING)),
    "services-of-finished-jobs": (
        "TFJob",
        Difference(Rule.CLEANUP, "Service a", "/finished", "deleted", "kept"),
    ),
    "removed-role": ("TFJob", Difference(Rule.COUNTER, "status", "/removedRoles/PS", MISSING, "1")),
    "selector": (
        "PyTorchJob",
        Difference(Rule.COUNTER, "status", "/replicaStatuses/Worker/selector", "a=b", MISSING),
    ),
    "why-idle": (
        "TFJob",
        Difference(Rule.CONDITION, "status", "/conditions/Running", "False TFJobWaitingForPods", MISSING),
    ),
    "invalid-job": (
        "TFJob",
        Difference(Rule.VALIDATION, "status", "/invalid", "invalid: spec", "not started"),
    ),
    "unnamed-port": ("TFJob", Difference(Rule.CHILDREN, "Service a", "/unnamedPort", "created", MISSING)),
    "lost-pod": ("XGBoostJob", Difference(Rule.RESTART, "Pod a", "/failed", "replaced", "job failed")),
    "running": ("XGBoostJob", Difference(Rule.CONDITION, "status", "/conditions/Running", MISSING, "True X")),
    "pod-group": (
        "TFJob",
        Difference(Rule.CHANGE, "PodGroup a", "/spec/minResources/cpu", "changed", "not changed"),
    ),
    "managed-by": ("MPIJob/v1", Difference(Rule.CHANGE, "spec", "/runPolicy/managedBy", "a", MISSING)),
    "owner-version": ("MPIJob/v1", Difference(Rule.POD, "Pod a", "/metadata/owner/apiVersion", "a", "b")),
    "job-label": ("MPIJob/v2beta1", Difference(Rule.SERVICE, "Service a", JOB_NAME, "a", MISSING)),
    "addresses-before-ready": (
        "MPIJob/v2beta1",
        Difference(Rule.SERVICE, "Service a", "/spec/publishNotReadyAddresses", "true", MISSING),
    ),
    "open-mpi-5": (
        "MPIJob/v1",
        Difference(
            Rule.POD, "Pod a-launcher", "/spec/containers/mpi/env/PRTE_MCA_plm_ssh_agent", "x", MISSING
        ),
    ),
    "launcher-ttl": (
        "MPIJob/v2beta1",
        Difference(Rule.LAUNCHER, "Job a-launcher", "/spec/ttlSecondsAfterFinished", MISSING, "5"),
    ),
    "hosts": (
        "MPIJob/v2beta1",
        Difference(Rule.SUPPORT, "ConfigMap a-config", "/data/discover_hosts.sh", "a\nb", "b\na\nc"),
    ),
    "evicted-worker": ("MPIJob/v2beta1", Difference(Rule.RESTART, "Pod a", "/evicted", "replaced", "kept")),
    "kubectl-image": (
        "MPIJob/v1",
        Difference(
            Rule.POD,
            "Pod a-launcher",
            "/spec/initContainers/kubectl-delivery/image",
            "kubeflow/kubectl-delivery:latest",
            "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest",
        ),
    ),
    "launcher-rights": (
        "MPIJob/v1",
        Difference(Rule.SUPPORT, "Role a-launcher", "/rules/0/verbs", "get", "*"),
    ),
}


def test_each_declaration_has_an_example_here() -> None:
    assert EXAMPLES.keys() == {declaration.name for declaration in DECLARATIONS}
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_declaration_covers_its_example(name: str) -> None:
    kind, difference = EXAMPLES[name]

    settled = settle(kind, difference)
    assert (settled.rule, settled.is_declared) == (name, True)
    assert (ROOT / settled.page).is_file()


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_declaration_covers_no_other_field(name: str) -> None:
    kind, difference = EXAMPLES[name]
    other = Difference(difference.rule, difference.subject, "/spec/other", "a", "b")

    assert settle(kind, other) is other


@pytest.mark.parametrize(
    "declaration", [own for own in DECLARATIONS if own.jobs != "*"], ids=lambda own: own.name
)
def test_a_declaration_for_some_kinds_covers_no_other_kind(declaration: Declaration) -> None:
    _, difference = EXAMPLES[declaration.name]

    assert settle("PaddleJob", difference) is difference


@pytest.mark.parametrize(
    ("kind", "difference"),
    [
        pytest.param(
            "MPIJob/v2beta1",
            Difference(Rule.SUPPORT, "ConfigMap a", "/data/discover_hosts.sh", "a\nx", "a\nb"),
            id="a host that the other operator does not list",
        ),
        pytest.param(
            "TFJob",
            Difference(Rule.RESTART, "Pod a", "/failed", "job failed", "replaced"),
            id="a job that would fail",
        ),
        pytest.param(
            "TFJob",
            Difference(Rule.VALIDATION, "status", "/invalid", "invalid: spec", "started"),
            id="a job that runs",
        ),
        pytest.param(
            "PyTorchJob", Difference(Rule.POD, "Pod a", INIT, MISSING, "an object"), id="the other way round"
        ),
    ],
)
def test_these_differences_are_undeclared(kind: str, difference: Difference) -> None:
    assert not settle(kind, difference).is_declared
