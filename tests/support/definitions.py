"""CustomResourceDefinitions for tests that need a kind to be served, whatever its fields."""

from typing import Any

from api.meta import Resource


def open_definition(resource: Resource, *, has_status: bool = True) -> dict[str, Any]:
    """Return a definition that accepts all fields. Without ``has_status`` the status is written with the object."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": resource.version, "served": True, "storage": True, "schema": schema}
    if has_status:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {"kind": resource.kind, "plural": resource.plural, "singular": resource.singular},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }
