"""An operator for one namespace, with the shipped Role and no right outside of its namespace."""

from collections.abc import Generator
from pathlib import Path

import pytest
import yaml

from rallypoint.testing.audit import calls, policy
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.manifests import build
from rallypoint.testing.service import STANDALONE, in_cluster_service
from tests.support.jobs import Jobs, job
from tests.support.rights import denied_rights

NAMESPACED = STANDALONE.parent / "namespaced"
NAMESPACE, OTHER = "team", "default"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:training-operator"


@pytest.fixture
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=1, audit_policy=policy([ACCOUNT], watches=True)) as plane:
        plane.apply(*build(STANDALONE.parents[1] / "base" / "crds"))
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        yield plane


@pytest.fixture
def overlay(plane: ControlPlane, tmp_path: Path) -> Path:
    """The overlay for the namespace, whose objects are installed."""
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    kustomization = {"namespace": NAMESPACE, "resources": [str(NAMESPACED)]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    plane.apply(*(document for document in build(overlay) if document["kind"] != "Deployment"))
    return overlay


def test_jobs_of_its_namespace_run_without_any_other_right(plane: ControlPlane, overlay: Path) -> None:
    ours, others = Jobs(plane, NAMESPACE), Jobs(plane, OTHER)

    with in_cluster_service(plane, overlay=overlay):
        others.create("other", job(workers=1))
        ours.create("own", job(workers=1))
        ours.wait_for("own", "Running")
        ours.end_pod("own-master-0", "Succeeded", 0)
        ours.wait_for("own", "Succeeded")

    assert others.conditions("other") == []
    assert denied_rights(plane) == []
    assert plane.audit_log is not None
    assert {call.namespace for call in calls(plane.audit_log) if call.resource} == {NAMESPACE}


def test_a_job_that_asks_about_nodes_runs_and_says_that_they_are_unknown(
    plane: ControlPlane, overlay: Path
) -> None:
    jobs = Jobs(plane, NAMESPACE)
    with in_cluster_service(plane, overlay=overlay):
        jobs.create("asks", job(workers=1, runPolicy={"nodeLostSeconds": 60}))
        jobs.wait_for("asks", "Running")
        plane.wait("an event", lambda: "NodesUnknown" in jobs.event_reasons("asks"), seconds=60)
        jobs.end_pod("asks-master-0", "Succeeded", 0)
        jobs.wait_for("asks", "Succeeded")

    (message,) = [item["message"] for item in jobs.items("events") if item["reason"] == "NodesUnknown"]
    assert message.startswith("nodeLostSeconds has no effect: the Leases of nodes cannot be read: ")
    assert set(denied_rights(plane)) == {("coordination.k8s.io", "leases", "list")}
