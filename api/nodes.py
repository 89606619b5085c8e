"""Nodes as the service remembers them: rows that say where each is, by one of its labels."""

import msgspec

from api.meta import Resource

NODES = Resource("", "v1", "Node", "nodes", namespaced=False)


class NodeDomain(msgspec.Struct, frozen=True, gc=False):
    """Where one node is; empty if its label does not say."""

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
    """The row of a node, whole or metadata only, by that label.

    Raises:
        msgspec.DecodeError: this is no object of the API.
    """
    meta = _decode(raw).metadata
    return NodeDomain(meta.name, meta.uid, int(meta.resource_version), (meta.labels or {}).get(label, ""))
