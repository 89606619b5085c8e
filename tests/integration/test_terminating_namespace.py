"""A namespace is deleted with its jobs, on a real kube-apiserver: the calls of the controller in it.

The test acts as the namespace controller, in the worst order: pods are deleted first, and their jobs last.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rallypoint.testing.audit import calls, policy
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import administrator
from rallypoint.testing.service import service
from tests.support.jobs import Jobs, job

CRDS = Path(__file__).parents[2] / "manifests" / "base" / "crds"
USER, TEAM = "operator", "team"
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
PATH = f"/api/v1/namespaces/{TEAM}"
JOBS = 15
UNDER_WAY = 32
"""Requests that one controller has under way at most: so many may be refused before the first answer is there."""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(
        users=[administrator(USER)],
        controllers=(),
        service_account_admission=False,
        audit_policy=policy((USER,)),
        nodes=2,
    ) as running:
        running.apply_files(*(path for path in CRDS.glob("*.yaml") if path.name != "kustomization.yaml"))
        yield running


def remove_all(plane: ControlPlane, path: str) -> None:
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    plane.request("DELETE", path, options)
    plane.wait(f"nothing in {path}", lambda: not plane.request("GET", path)["items"])


def refused(plane: ControlPlane) -> Counter[str]:
    """The controller's creates in the namespace that were refused, by resource."""
    assert plane.audit_log is not None
    found = [call for call in calls(plane.audit_log) if (call.namespace, call.verb) == (TEAM, "create")]
    return Counter(call.resource for call in found if call.code == 403)


def test_a_terminating_namespace_gets_no_creates_and_its_successor_gets_all(plane: ControlPlane) -> None:
    plane.apply(NAMESPACE)
    jobs = Jobs(plane, TEAM)
    names = [f"train-{number:02}" for number in range(JOBS)]
    with service(plane, plane.kubeconfig(USER)) as running:
        for name in names:
            jobs.create(name, job(workers=1))
        for name in names:
            jobs.wait_for(name, "Running")
        plane.request("DELETE", PATH)
        remove_all(plane, f"{PATH}/pods")
        plane.wait("a refusal", lambda: refused(plane).total() > 0)
        marker = jobs.path(names[-1])
        plane.request("PATCH", marker, {"spec": {"runPolicy": {"activeDeadlineSeconds": 1}}})
        plane.wait("later reconciles", partial(_has_failed, jobs, names[-1]))
        rejected = refused(plane)
        assert rejected.total() <= UNDER_WAY, rejected

        remove_all(plane, jobs.path())
        remove_all(plane, f"{PATH}/services")
        plane.request("PUT", f"{PATH}/finalize", {**NAMESPACE, "spec": {"finalizers": []}})
        plane.wait("the namespace to be gone", lambda: not plane.has(PATH))
        assert refused(plane) == rejected

        plane.apply(NAMESPACE)
        jobs.create("again", job(workers=1))
        jobs.wait_for("again", "Running")
        plane.wait("its events", lambda: "SuccessfulCreatePod" in _reasons(plane))
        running.process.check()


def _has_failed(jobs: Jobs, name: str) -> bool:
    return ("Failed", "True") in jobs.conditions(name)


def _reasons(plane: ControlPlane) -> set[str]:
    events = plane.request("GET", f"{PATH}/events")["items"]
    return {event["reason"] for event in events if event["involvedObject"]["name"] == "again"}
