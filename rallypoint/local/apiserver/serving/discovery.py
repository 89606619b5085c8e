"""Discovery documents: groups, versions and resources, also aggregated (``APIGroupDiscoveryList``)."""

from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources.catalog import Catalog
from rallypoint.local.apiserver.resources.resource import Resource

VERSION = {
    "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "",
}  # fmt: skip
"""The Kubernetes release whose behavior the server implements."""

SUBRESOURCE_KINDS = {
    "scale": ("autoscaling", "v1", "Scale"),
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "exec": ("", "v1", "PodExecOptions"),
    "attach": ("", "v1", "PodAttachOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
}

SUBRESOURCE_VERBS = {
    "status": ["get", "patch", "update"],
    "scale": ["get", "patch", "update"],
    "binding": ["create"],
    "eviction": ["create"],
    "exec": ["create", "get"],
    "attach": ["create", "get"],
    "portforward": ["create", "get"],
    "log": ["get"],
    "finalize": ["update"],
}


def api_versions(host: str) -> Json:
    """Return the document of ``/api``."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def group(name: str, version_names: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in version_names]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def api_groups(catalog: Catalog) -> Json:
    """Return the document of ``/apis``."""
    listed = [group(name, found) for name, found in catalog.group_versions().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def api_group(catalog: Catalog, name: str) -> Json | None:
    found = catalog.group_versions().get(name)
    return None if not found or not name else {"kind": "APIGroup", "apiVersion": "v1", **group(name, found)}


def resources(catalog: Catalog, group_name: str, version: str) -> Json | None:
    """Return the document of a group version; None if it is not served."""
    found = [resource for resource in catalog if (resource.group, resource.version) == (group_name, version)]
    if not found:
        return None
    listed = [entry for resource in sorted(found, key=lambda s: s.plural) for entry in _entries(resource)]
    version_name = f"{group_name}/{version}" if group_name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version_name, "resources": listed}


def _entries(resource: Resource) -> list[Json]:
    own: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    own |= _short_names_and_categories(resource)
    return [own, *(_subresource(resource, name) for name in sorted(resource.subresources))]


def _short_names_and_categories(resource: Resource) -> Json:
    lists = {"shortNames": resource.short_names, "categories": resource.categories}
    return {field: list(names) for field, names in lists.items() if names}


def _subresource(resource: Resource, name: str) -> Json:
    group_name, version, kind = SUBRESOURCE_KINDS.get(name, ("", "", resource.kind))
    entry: Json = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": SUBRESOURCE_VERBS[name],
    }
    if version and (group_name or kind == "Scale"):
        entry |= {"group": group_name, "version": version}
    return entry


def aggregated(catalog: Catalog, *, core: bool) -> Json:
    """Return the aggregated document of ``/api`` or ``/apis``."""
    items = []
    for name, found in catalog.group_versions().items():
        if bool(name) != core:
            listed = [_aggregated_version(catalog, name, version) for version in found]
            items.append(
                {"metadata": {"name": name} if name else {"creationTimestamp": None}, "versions": listed}
            )
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_version(catalog: Catalog, name: str, version: str) -> Json:
    found = [resource for resource in catalog if (resource.group, resource.version) == (name, version)]
    listed = [_aggregated_resource(resource) for resource in sorted(found, key=lambda s: s.plural)]
    return {"version": version, "resources": listed, "freshness": "Current"}


def _aggregated_resource(resource: Resource) -> Json:
    entry: Json = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    entry |= _short_names_and_categories(resource)
    if resource.subresources:
        entry["subresources"] = [
            _aggregated_subresource(resource, name) for name in sorted(resource.subresources)
        ]
    return entry


def _aggregated_subresource(resource: Resource, name: str) -> Json:
    group_name, version, kind = SUBRESOURCE_KINDS.get(name, (resource.group, resource.version, resource.kind))
    shown = {"group": group_name, "version": version, "kind": kind}
    return {"subresource": name, "responseKind": shown, "verbs": SUBRESOURCE_VERBS[name]}
