"""Nodes: cached rows with their topology domain, the value of one label, and what is known of nodes that may be lost."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from api.children import time_of
from api.meta import Resource

NODES = Resource("", "v1", "Node", "nodes", namespaced=False)


NODE_LEASES: Final = "kube-node-lease"
"""The namespace of the Leases that kubelets renew every ten seconds."""
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""The taint by which an administrator or a tool declares that a machine is shut down."""
GONE_SECONDS: Final = 40.0
"""A Node object that is missing for this long counts as deleted for good: a kubelet that starts may register its node anew.

Source: kube-controller-manager 1.36, pkg/controller/podgc/gc_controller.go, quarantineTime.
"""
_OF_KUBERNETES, _OF_NVIDIA, _HAS_GPUS = "node.kubernetes.io/", "nvidia.com/", "nvidia.com/gpu"
_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class NodeInterest:
    """What a job wants to know about nodes."""

    nodes: frozenset[str]
    """The nodes of its pods."""
    suspects: frozenset[str]
    """Those of them whose pods terminate or are not ready."""
    lost_seconds: int | None = None
    """After how many seconds without a sign of life the job takes a node as lost; None for never."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """What is known of a node that does not work as it should, or that a job asked about."""

    name: str
    silent_seconds: float = 0.0
    """Seconds since the last sign of life: since its Lease was renewed, it was Ready, or its object existed. 0 while there are such signs."""
    is_gone: bool = False
    """Whether it has no Node object."""
    is_out_of_service: bool = False
    """Whether it is not Ready and has the taint ``OUT_OF_SERVICE``."""
    problems: tuple[str, ...] = ()
    """Its conditions that are True, except Ready, and its taints that name a problem."""

    def loss(self, lost_seconds: int | None) -> str:
        """Return why pods of the node are lost; empty if they are not, as far as is known.

        ``lost_seconds`` is the silence from which on the job's owner takes a node as lost, None for never.
        """
        if self.is_out_of_service:
            return f"node {self.name} is not Ready and has the taint {OUT_OF_SERVICE}"
        if self.is_gone and self.silent_seconds >= GONE_SECONDS:
            return f"node {self.name} does not exist any more"
        if lost_seconds is not None and self.silent_seconds >= lost_seconds:
            return f"node {self.name} has been silent or not Ready for {lost_seconds} s, the nodeLostSeconds of the job"
        return ""


class Node(msgspec.Struct, frozen=True, gc=False):
    """The health of one node."""

    name: str
    not_ready_since: datetime | None = None
    """When its condition Ready became False or Unknown; None while it is True, or was never set."""
    is_out_of_service: bool = False
    problems: tuple[str, ...] = ()


class NodeDomain(msgspec.Struct, frozen=True, gc=False):
    """The topology domain of one node; empty if the node lacks the label."""

    name: str
    uid: str
    resource_version: int
    domain: str = ""
    namespace: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = "0"
    labels: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Meta


class _Taint(msgspec.Struct):
    key: str = ""
    effect: str = ""


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _NodeSpec(msgspec.Struct):
    taints: list[_Taint] | None = None


class _NodeStatus(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Node(msgspec.Struct):
    metadata: _Meta
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _LeaseSpec(msgspec.Struct, rename="camel"):
    renew_time: str | None = None


class _Lease(msgspec.Struct):
    metadata: _Meta
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class _Leases(msgspec.Struct):
    items: list[_Lease]


_decode = msgspec.json.Decoder(_Object).decode
_decode_node = msgspec.json.Decoder(_Node).decode
_decode_leases = msgspec.json.Decoder(_Leases).decode


def node_domain_from_json(label: str, raw: bytes | memoryview | msgspec.Raw) -> NodeDomain:
    """Decode a node, whole or metadata only, with the domain from that label.

    Raises:
        msgspec.DecodeError: this is not an API object.
    """
    meta = _decode(raw).metadata
    return NodeDomain(meta.name, meta.uid, int(meta.resource_version), (meta.labels or {}).get(label, ""))


def node_from_json(raw: bytes | memoryview | msgspec.Raw) -> Node:
    """Decode the health of a node.

    Conditions that are True and taints of node-problem-detector and of NVIDIA's NVSentinel are problems. NVIDIA's taint ``nvidia.com/gpu``
    is none: it keeps pods without GPUs away.

    Raises:
        msgspec.DecodeError: this is not a node.
    """
    node = _decode_node(raw)
    conditions, taints = node.status.conditions or (), node.spec.taints or ()
    unready = [item for item in conditions if item.type == "Ready" and item.status != "True"]
    keys = [taint.key for taint in taints if taint.effect in _KEEPS_AWAY]
    return Node(
        node.metadata.name,
        time_of(unready[0].last_transition_time) if unready else None,
        bool(unready) and OUT_OF_SERVICE in keys,
        (
            *(item.type for item in conditions if item.type != "Ready" and item.status == "True"),
            *(key for key in keys if key.startswith((_OF_KUBERNETES, _OF_NVIDIA)) and key != _HAS_GPUS),
        ),
    )


def renewals_from_json(raw: bytes | memoryview | msgspec.Raw) -> dict[str, str]:
    """Return the ``renewTime`` of each node's Lease in a list of Leases, as text: clocks of nodes may be wrong.

    Raises:
        msgspec.DecodeError: this is not a list of Leases.
    """
    return {lease.metadata.name: lease.spec.renew_time or "" for lease in _decode_leases(raw).items}
