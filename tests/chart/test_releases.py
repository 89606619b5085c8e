"""Releases of the chart on a real API server, by the real helm: jobs of all kinds run on while the operator changes.

The operator runs as the installed Deployment says and as its ServiceAccount; the audit log has no refusal.
"""

import json
import re
from collections.abc import Generator
from pathlib import Path

import pytest

from rallypoint.testing.audit import calls, policy
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.manifests import build
from rallypoint.testing.service import ACCOUNT, KUBEFLOW, STANDALONE
from tests.support.helm import HelmFailed, Release
from tests.support.jobs import Jobs as NamespacedJobs
from tests.support.jobs import job
from tests.support.kubectl import run
from tests.support.rights import denied_rights
from tests.support.running_jobs import MPI_V1, MPI_V2BETA1, OTHERS, Jobs
from tools.chart.__main__ import files, package

KINDS = (*OTHERS, MPI_V1, MPI_V2BETA1)
PYTORCH = OTHERS[0]
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pytorchjobs.kubeflow.org"
ALL_COMPONENTS = {
    "kueue": {"enabled": True},
    "mpiV1": {"enabled": True},
    "mpiTopology": {"enabled": True},
    "mpiVersions": {"enabled": True},
    "mxjob": {"enabled": True},
    "progress": {"enabled": True},
    "progressExec": {"enabled": True},
    "userRoles": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "monitoring": {"dashboards": True},
}
"""But for those whose definitions are prometheus-operator's, and for the policies, which old servers do not have."""
MOST_BYTES = 2**20
"""The limit of a Secret."""
ROOM = 0.5
"""The share of it that a release takes at most, so that later versions may have more fields."""
TEAM = "team"


@pytest.fixture
def plane() -> Generator[ControlPlane]:
    accounts = [ACCOUNT, *(f"system:serviceaccount:{name}:training-operator" for name in (TEAM, "kubeflow"))]
    with ControlPlane(nodes=1, audit_policy=policy(accounts, watches=True)) as plane:
        yield plane


def printed_columns(plane: ControlPlane) -> int:
    (version,) = plane.request("GET", DEFINITION)["spec"]["versions"]
    return len(version.get("additionalPrinterColumns", ()))


def older_chart(folder: Path) -> Path:
    """A chart of version 0.1.0, whose definition of PyTorchJob prints no columns."""
    contents = files("0.1.0")
    path = "templates/crds/kubeflow.org_pytorchjobs.yaml"
    head, spec, tail = re.split(r"^spec: (.*)$", contents[path], maxsplit=1, flags=re.MULTILINE)
    definition = json.loads(spec)
    del definition["versions"][0]["additionalPrinterColumns"]
    contents[path] = f"{head}spec: {json.dumps(definition)}{tail}"
    return package(folder, contents)


def test_a_release_serves_jobs_and_leaves_them_when_it_is_uninstalled(plane: ControlPlane) -> None:
    release, jobs = Release(plane), NamespacedJobs(plane, "default")
    release.install()
    with release.operator():
        jobs.create("train", job(workers=1))
        jobs.wait_for("train", "Running")

    release.uninstall()

    assert denied_rights(plane) == []
    assert not plane.has("/api/v1/namespaces/rallypoint-system/serviceaccounts/training-operator")
    assert plane.has(jobs.path("train"))
    assert len(jobs.pods("train")) == 2


def test_jobs_run_on_through_upgrade_rollback_uninstall_and_a_new_installation(
    plane: ControlPlane, tmp_path: Path
) -> None:
    release, jobs = Release(plane), Jobs(plane)
    release.install({"mpiV1": {"enabled": True}}, chart=older_chart(tmp_path))
    assert printed_columns(plane) == 0
    with release.operator():
        jobs.start(KINDS, "old")
    jobs.remember_now()
    pods = jobs.pods()

    release.upgrade({**ALL_COMPONENTS, "replicas": 3, "flags": {"events": "compact"}})
    assert printed_columns(plane) > 0
    assert release.deployment()["spec"]["replicas"] == 3
    with release.operator():
        jobs.start(KINDS, "upgraded")

    release.rollback()
    assert printed_columns(plane) == 0
    assert release.deployment()["spec"]["replicas"] == 2
    with release.operator():
        jobs.start(KINDS, "restored")
    assert max(release.sizes_bytes()) < ROOM * MOST_BYTES

    release.uninstall()
    assert (
        run(plane, "kubectl get deployments,serviceaccounts,roles -A -o name -l app=training-operator") == ""
    )
    assert (
        run(
            plane, "kubectl get clusterroles,clusterrolebindings,flowschemas -o name -l app=training-operator"
        )
        == ""
    )
    assert plane.has(DEFINITION)

    release.install({"mpiV1": {"enabled": True}})
    with release.operator():
        jobs.start(KINDS, "new")
        assert [change for change in jobs.changes(but="") if "-old-" in change] == []
        assert {name: pod for name, pod in jobs.pods().items() if name in pods} == pods
        for kind in KINDS:
            jobs.finish(kind, "old")
    assert denied_rights(plane) == []


def test_a_release_takes_over_what_kubectl_has_installed_when_it_is_told_to(plane: ControlPlane) -> None:
    """And not otherwise, so that it does not take the rights of an operator in another namespace by mistake."""
    release, jobs = Release(plane), Jobs(plane)
    run(plane, f"kubectl apply --server-side -k {STANDALONE}")
    with release.operator():
        jobs.start(OTHERS, "old")
    jobs.remember_now()

    with pytest.raises(HelmFailed, match="invalid ownership metadata"):
        release.install()
    release.install(None, "--take-ownership", "--force-conflicts")
    with release.operator():
        jobs.start(OTHERS, "new")
        assert jobs.changes(but="-new-") == []
        for kind in OTHERS:
            jobs.finish(kind, "old")

    assert denied_rights(plane) == []


def test_two_operators_never_have_the_rights_at_once_by_mistake(plane: ControlPlane) -> None:
    """One in kubeflow stays as it is when the chart is installed elsewhere."""
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}}, *build(KUBEFLOW))

    with pytest.raises(HelmFailed, match="cannot be imported into the current release"):
        Release(plane).install({"crds": {"install": False}})

    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/training-operator"
    assert [subject["namespace"] for subject in plane.request("GET", path)["subjects"]] == ["kubeflow"]
    assert not plane.has("/apis/apps/v1/namespaces/rallypoint-system/deployments/training-operator")


@pytest.mark.parametrize("watched", [TEAM, "default"], ids=["its own", "another one"])
def test_an_operator_for_one_namespace_calls_for_no_other(plane: ControlPlane, watched: str) -> None:
    plane.apply(*build(STANDALONE.parents[1] / "base" / "crds"))
    release, ours = Release(plane, TEAM), NamespacedJobs(plane, watched)
    release.install({"watchNamespace": watched})
    others = NamespacedJobs(plane, ({TEAM, "default"} - {watched}).pop())

    with release.operator():
        others.create("other", job(workers=1))
        ours.create("own", job(workers=1))
        ours.wait_for("own", "Running")
        ours.end_pod("own-master-0", "Succeeded", 0)
        ours.wait_for("own", "Succeeded")

    assert others.conditions("other") == []
    assert denied_rights(plane) == []
    assert plane.audit_log is not None
    called = [call for call in calls(plane.audit_log) if call.resource and call.resource != "events"]
    assert {call.namespace for call in called if call.resource == "leases"} == {TEAM}
    assert {call.namespace for call in called if call.resource != "leases"} == {watched}
