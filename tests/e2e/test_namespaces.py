"""Restricted namespaces and the shipped network policy of the operator."""

import json
from typing import Any

import pytest

from rallypoint.testing.cluster.cluster import Cluster
from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.installation import NAMESPACE
from rallypoint.testing.cluster.workloads import Workloads, job
from rallypoint.testing.manifests import build
from rallypoint.testing.service import MANIFESTS

RESTRICTED: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture
def restricted(workloads: Workloads) -> Workloads:
    """A namespace that takes only pods which ask for as little as can be."""
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    workloads.cluster.kubectl("label", "namespace", workloads.namespace, enforced)
    return workloads


def test_a_job_without_privileges_runs_in_a_restricted_namespace(restricted: Workloads) -> None:
    """With what the operator adds to its workers."""
    role = {
        "image": BASE,
        "command": ["sleep", "infinity"],
        "securityContext": RESTRICTED,
        "pod": {"terminationGracePeriodSeconds": 1},
    }
    restricted.apply(job("PyTorchJob", "modest", {"Master": role, "Worker": {**role, "command": ["true"]}}))

    restricted.wait("the worker to end well", lambda: phase(restricted, "modest-worker-0") == "Succeeded")

    (waited,) = restricted.pods("modest")["modest-worker-0"]["spec"]["initContainers"]
    assert waited["name"] == "init-pytorch"
    assert restricted.condition("PyTorchJob", "modest", "Running")


def phase(workloads: Workloads, pod: str) -> str:
    found = workloads.pods("modest").get(pod, {})
    return str(found.get("status", {}).get("phase", ""))


def test_a_privileged_job_gets_an_event_that_says_why_it_does_not_run(restricted: Workloads) -> None:
    restricted.apply(job("PyTorchJob", "bold", {"Master": {"image": BASE, "command": ["true"]}}))

    restricted.wait(
        "the event", lambda: any("violates PodSecurity" in message for message in event_messages(restricted))
    )

    assert restricted.pods("bold") == {}
    assert not restricted.condition("PyTorchJob", "bold", "Running")


def event_messages(workloads: Workloads) -> list[str]:
    events = json.loads(workloads.kubectl("get", "events", "-o", "json"))["items"]
    return [event["message"] for event in events if event["involvedObject"]["kind"] == "PyTorchJob"]


def test_the_network_policy_names_the_operators_pods_and_ports(
    cluster: Cluster,
) -> None:
    """Nothing enforces it here: it is taken by the API server, and fits what runs."""
    (policy,) = build(MANIFESTS / "components" / "network-policy")
    policy["metadata"]["namespace"] = NAMESPACE
    cluster.plane.apply(policy)
    try:
        selector = ",".join("=".join(item) for item in policy["spec"]["podSelector"]["matchLabels"].items())
        listed = cluster.kubectl("-n", NAMESPACE, "get", "pods", "-l", selector, "-o", "json")
        pods = json.loads(listed)["items"]
        stored = cluster.kubectl("-n", NAMESPACE, "get", "networkpolicy", "training-operator", "-o", "json")
    finally:
        cluster.kubectl("-n", NAMESPACE, "delete", "networkpolicy", "training-operator")

    assert len(pods) == 2
    allowed = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert {port["name"] for port in container["ports"]} == allowed
    assert json.loads(stored)["spec"]["policyTypes"] == ["Ingress", "Egress"]
