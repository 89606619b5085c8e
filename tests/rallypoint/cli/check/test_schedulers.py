"""Gang schedulers and Kueue, from Deployments, API versions and a ConfigMap."""

from typing import Any

import pytest
import yaml

from api.meta import COSCHEDULING_POD_GROUPS, VOLCANO_POD_GROUPS
from rallypoint.cli.check.findings import Level
from rallypoint.cli.check.jobs import JobSummary
from rallypoint.cli.check.schedulers import (
    gang_findings,
    managed_findings,
    managed_frameworks,
    native_finding,
)

KINDS = ["PyTorchJob", "MPIJob"]


def scheduler(image: str, *args: str, ready: int = 1, name: str = "s") -> dict[str, Any]:
    containers = [{"image": image, "args": list(args)}]
    return {
        "metadata": {"name": name, "namespace": "schedulers"},
        "spec": {"template": {"spec": {"containers": containers}}},
        "status": {"readyReplicas": ready},
    }


VOLCANO = scheduler("volcanosh/vc-scheduler:v1.14.1")


@pytest.mark.parametrize(
    ("versions", "workloads", "level", "says"),
    [
        pytest.param([], [VOLCANO], Level.BLOCKER, "does not serve", id="no definition"),
        pytest.param(["v1"], [VOLCANO], Level.BLOCKER, "the operator needs v1beta1", id="another version"),
        pytest.param(["v1beta1"], [], Level.WARNING, "no Deployment of a scheduler", id="no scheduler"),
        pytest.param(
            ["v1beta1"],
            [scheduler("vc-scheduler", ready=0)],
            Level.WARNING,
            "no ready replica",
            id="not ready",
        ),
        pytest.param(["v1", "v1beta1"], [VOLCANO], Level.OK, "volcano runs: schedulers/s", id="fine"),
    ],
)
def test_volcano(versions: list[str], workloads: list[dict[str, Any]], level: Level, says: str) -> None:
    (finding,) = gang_findings("volcano", VOLCANO_POD_GROUPS, versions, workloads)

    assert finding.level is level
    assert says in finding.text


@pytest.mark.parametrize(
    ("workload", "level"),
    [
        (scheduler("registry.k8s.io/scheduler-plugins/kube-scheduler:v0.32.7"), Level.OK),
        (scheduler("own:1", name="gangs"), Level.OK),
        (scheduler("own:1", "--scheduler-name=gangs"), Level.OK),
        (scheduler("registry.k8s.io/kube-scheduler:v1.36.3"), Level.WARNING),
    ],
)
def test_a_scheduler_with_coscheduling(workload: dict[str, Any], level: Level) -> None:
    (finding,) = gang_findings("gangs", COSCHEDULING_POD_GROUPS, ["v1alpha1"], [workload])

    assert finding.level is level


@pytest.mark.parametrize(
    ("versions", "level", "says"),
    [
        pytest.param([], Level.BLOCKER, "which the cluster does not serve: no job", id="not served"),
        pytest.param(
            ["v1alpha2"], Level.BLOCKER, "does not serve (only v1alpha2): no job", id="an older one"
        ),
        pytest.param(["v1beta1"], Level.OK, "podgroups.scheduling.k8s.io/v1beta1 is served", id="fine"),
    ],
)
def test_the_gangs_of_kubernetes(versions: list[str], level: Level, says: str) -> None:
    finding = native_finding(versions)

    assert finding.level is level
    assert says in finding.text


def configuration(text: str) -> dict[str, Any]:
    return {"data": {"other": "a: b", "controller_manager_config.yaml": text}}


def test_the_frameworks_of_kueues_configuration() -> None:
    text = yaml.safe_dump({"kind": "Configuration", "integrations": {"frameworks": ["batch/job"]}})

    assert managed_frameworks(configuration(text)) == frozenset({"batch/job"})
    assert managed_frameworks(configuration("kind: Configuration")) == frozenset()
    assert managed_frameworks(configuration("{")) is None
    assert managed_frameworks(None) is None


def job(kind: str) -> JobSummary:
    return JobSummary(kind, "n", "j", "u", False, False, False, "research", ())


def test_kinds_that_kueue_does_not_manage() -> None:
    (some,) = managed_findings(frozenset({"kubeflow.org/mpijob"}), KINDS, [job("PyTorchJob"), job("MPIJob")])
    (every,) = managed_findings(frozenset({"kubeflow.org/mpijob", "kubeflow.org/pytorchjob"}), KINDS, [])

    assert (some.level, every.level) == (Level.WARNING, Level.OK)
    assert some.text == (
        "Kueue does not manage PyTorchJob; jobs with a queue that run outside any quota (1): PyTorchJob n/j"
    )
    assert '"kubeflow.org/pytorchjob"' in some.remedy
    assert some.remedy.endswith("or let the operator queue PyTorchJob (--kueue)")
