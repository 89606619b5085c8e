"""Cached rows of nodes with their topology domain, the value of one label."""

import msgspec

from api.meta import Resource

NODES = Resource("", "v1", "Node", "nodes", namespaced=False)


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


class _Node(msgspec.Struct):
    metadata: _Meta


_decode = msgspec.json.Decoder(_Node).decode


def node_domain_from_json(label: str, raw: bytes | memoryview | msgspec.Raw) -> NodeDomain:
    """Decode a node, whole or metadata only, with the domain from that label.

    Raises:
        msgspec.DecodeError: this is not an API object.
    """
    meta = _decode(raw).metadata
    return NodeDomain(meta.name, meta.uid, int(meta.resource_version), (meta.labels or {}).get(label, ""))
