"""The catalog of served resources: built-in ones and those of CustomResourceDefinitions."""

import re
from collections.abc import Iterator

from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources import builtin, customresources
from rallypoint.local.apiserver.resources.resource import Resource

VERSION = re.compile(r"v(?P<major>\d+)(?:(?P<stage>alpha|beta)(?P<minor>\d+))?")
STAGES = ("", "beta", "alpha")


class Catalog:
    """Resources by group, version and plural name."""

    def __init__(self) -> None:
        self._metadata = builtin.schemas().metadata
        definitions = customresources.definition_resource(
            builtin.schemas().kind(customresources.GROUP, "CustomResourceDefinition")
        )
        self._builtin = {_key(resource): resource for resource in [*builtin.resources(), definitions]}
        self._custom: dict[str, list[Resource]] = {}
        self._all = dict(self._builtin)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._all.get((group, version, plural))

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._all.values())

    def group_versions(self) -> dict[str, list[str]]:
        """Return the versions of each group, the preferred one first."""
        groups: dict[str, list[str]] = {}
        for resource in self._all.values():
            versions = groups.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return {group: sorted(versions, key=_rank) for group, versions in groups.items()}

    def of_collection(self, name: str) -> Resource | None:
        """Return a version of the resource that a collection stores, preferably the storage version."""
        found = [resource for resource in self._all.values() if resource.collection == name]
        return next(
            (resource for resource in found if resource.api_version == resource.storage_api_version),
            found[0] if found else None,
        )

    def define(self, definition: Json) -> None:
        """Serve the resources of a new or changed definition."""
        self._custom[definition["metadata"]["name"]] = customresources.resources(definition, self._metadata)
        self._rebuild()

    def undefine(self, definition: Json) -> None:
        self._custom.pop(definition["metadata"]["name"], None)
        self._rebuild()

    def undefine_all(self) -> None:
        """Serve only the built-in resources."""
        self._custom.clear()
        self._rebuild()

    def _rebuild(self) -> None:
        custom = {_key(resource): resource for resources in self._custom.values() for resource in resources}
        self._all = {**self._builtin, **custom}


def _rank(version: str) -> tuple[int, int, int, str]:
    """Return the sort key of a version: stable before beta before alpha, newer first, then other names.

    Source: apimachinery, pkg/version/helpers.go.
    """
    found = VERSION.fullmatch(version)
    if found is None:
        return len(STAGES), 0, 0, version
    return STAGES.index(found["stage"] or ""), -int(found["major"]), -int(found["minor"] or 0), ""


def _key(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural
