"""Temporary denials of a real API server's admission: the job waits, says why, and runs once it is allowed."""

from collections.abc import Iterator
from typing import Any

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.requests import Refused
from rallypoint.testing.service import Service, in_cluster_service, install
from tests.support.jobs import Jobs, job

GROUP = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane) -> Iterator[Service]:
    install(control_plane)
    with in_cluster_service(control_plane) as running:
        yield running


@pytest.fixture
def window(request: pytest.FixtureRequest, control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """A ValidatingAdmissionPolicy that denies all pods of the namespace with the reason of the parameter; its path."""
    if request.config.getoption("oldest"):
        pytest.skip("Kubernetes 1.29 does not serve these policies as v1")
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    validation = {"expression": "false", "message": "maintenance window", **request.param}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    control_plane.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": namespace},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]},
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": namespace},
            "spec": {
                "policyName": namespace,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": selector},
            },
        },
    )
    control_plane.wait("the policy to deny pods", lambda: _is_denied(control_plane, namespace))
    binding = f"{GROUP}/validatingadmissionpolicybindings/{namespace}"
    yield binding
    if control_plane.has(binding):
        control_plane.request("DELETE", binding)
    control_plane.request("DELETE", f"{GROUP}/validatingadmissionpolicies/{namespace}")


def _is_denied(plane: ControlPlane, namespace: str) -> bool:
    pod: dict[str, Any] = {
        "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "a", "image": "b"}]},
    }
    try:
        plane.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    except Refused:
        return True
    return False


@pytest.mark.parametrize(
    "window",
    [
        pytest.param({}, id="422 Invalid, which is the default"),
        pytest.param({"reason": "RequestEntityTooLarge"}, id="413"),
        pytest.param({"reason": "Forbidden"}, id="403"),
    ],
    indirect=True,
)
def test_a_denial_of_an_admission_policy_blocks_a_job_until_it_ends(
    control_plane: ControlPlane, operator: Service, namespace: str, window: str
) -> None:
    jobs = Jobs(control_plane, namespace)
    jobs.create("held", job(workers=1))
    control_plane.wait("the denial", lambda: "maintenance" in _held(jobs).get("message", ""), seconds=30)

    assert (_held(jobs)["status"], _held(jobs)["reason"]) == ("False", "PyTorchJobBlocked")
    assert f"ValidatingAdmissionPolicy '{namespace}'" in _held(jobs)["message"]

    control_plane.request("DELETE", window)
    jobs.wait_for("held", "Running")
    assert jobs.pods("held") == ["held-master-0", "held-worker-0"]


def test_an_object_that_the_api_server_itself_rejects_fails_the_job(
    control_plane: ControlPlane, operator: Service, namespace: str
) -> None:
    jobs = Jobs(control_plane, namespace)
    mount = {"name": "pytorch", "image": "i", "volumeMounts": [{"name": "none", "mountPath": "/x"}]}
    jobs.create("wrong", job(workers=1, roles={"Worker": {"template": {"spec": {"containers": [mount]}}}}))
    jobs.wait_for("wrong", "Failed")

    assert jobs.condition("wrong", "Failed")["reason"] == "PyTorchJobFailedValidation"
    assert "spec.containers[0].volumeMounts[0].name" in jobs.condition("wrong", "Failed")["message"]


def _held(jobs: Jobs) -> dict[str, Any]:
    """The condition Running of the job, empty as long as there is none."""
    types = [type_ for type_, _ in jobs.conditions("held")]
    return jobs.condition("held", "Running") if "Running" in types else {}
