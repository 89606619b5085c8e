"""Rows of nodes, read from what the API server sends."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from api.nodes import (
    OUT_OF_SERVICE,
    Node,
    NodeDomain,
    node_domain_from_json,
    node_from_json,
    renewals_from_json,
)


@pytest.mark.parametrize(
    ("labels", "domain"),
    [
        pytest.param({"rack": "a", "zone": "z"}, "a", id="with the label"),
        pytest.param({"zone": "z"}, "", id="with another label"),
        pytest.param(None, "", id="without labels"),
    ],
)
def test_the_domain_of_a_node_is_its_topology_label(labels: dict[str, str] | None, domain: str) -> None:
    raw = msgspec.json.encode(
        {"metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": labels}}
    )

    assert node_domain_from_json("rack", raw) == NodeDomain("n", "u", 7, domain)


def read(*conditions: dict[str, str], taints: dict[str, str] | None = None) -> Node:
    given = [{"key": key, "effect": effect} for key, effect in (taints or {}).items()]
    node: dict[str, Any] = {
        "metadata": {"name": "n"},
        "spec": {"taints": given},
        "status": {"conditions": conditions},
    }
    return node_from_json(msgspec.json.encode(node))


READY = {"type": "Ready", "status": "True"}
UNKNOWN = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T12:00:00Z"}


def test_a_node_is_not_ready_since_its_condition_says_so() -> None:
    assert read(READY).not_ready_since is None
    assert read(UNKNOWN).not_ready_since == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert read().not_ready_since is None


def test_a_node_that_is_ready_is_not_out_of_service_whatever_its_taints() -> None:
    """As Kubernetes has it: its kubelet ends the pods."""
    taints = {OUT_OF_SERVICE: "NoExecute"}

    assert read(UNKNOWN, taints=taints).is_out_of_service
    assert not read(READY, taints=taints).is_out_of_service
    assert not read(UNKNOWN).is_out_of_service


def test_conditions_and_taints_of_health_tools_are_problems() -> None:
    conditions = [
        {"type": "KernelDeadlock", "status": "True"},
        {"type": "ReadonlyFilesystem", "status": "False"},
        {"type": "GpuNvlinkWatch", "status": "True"},
        {"type": "MemoryPressure", "status": "Unknown"},
    ]
    taints = {
        "nvidia.com/gpu": "NoSchedule",
        "nvidia.com/gpu-xid-error": "NoSchedule",
        "nvidia.com/gpu-thermal": "PreferNoSchedule",
        "node.kubernetes.io/unschedulable": "NoSchedule",
        "team": "NoSchedule",
    }

    assert read(READY, *conditions, taints=taints).problems == (
        "KernelDeadlock",
        "GpuNvlinkWatch",
        "nvidia.com/gpu-xid-error",
        "node.kubernetes.io/unschedulable",
    )


def test_a_node_without_a_status_has_no_problems() -> None:
    assert node_from_json(b'{"metadata": {"name": "n"}}') == Node("n")


def test_renewals_of_leases_are_read_by_node() -> None:
    leases = [
        {"metadata": {"name": "n"}, "spec": {"renewTime": "2026-01-01T12:00:00.000000Z"}},
        {"metadata": {"name": "m"}},
    ]

    found = renewals_from_json(msgspec.json.encode({"items": leases}))

    assert found == {"n": "2026-01-01T12:00:00.000000Z", "m": ""}
