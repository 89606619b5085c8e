"""The tables of SECURITY.md list exactly the rights that the manifests grant."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rallypoint.testing.manifests import build

ROOT = Path(__file__).parents[2]
OPERATOR = "training-operator"
CLUSTER, OWN_NAMESPACE = "cluster", "its own namespace"
CODE = re.compile(r"`([^`]+)`")


class Right(NamedTuple):
    """A verb on a resource, in one API group, limited to an object if ``name`` is set; or on a path of the API server or of another one."""

    group: str
    resource: str
    name: str
    verb: str


Rights = dict[tuple[str, str], set[Right]]
"""By kind and name of the role."""


def granted() -> Rights:
    """Return what each role in ``manifests`` grants; a role that only aggregates others grants nothing itself."""
    manifests = ROOT / "manifests"
    folders = [
        manifests / "base" / "rbac",
        manifests / "overlays" / "shadow",
        *sorted((manifests / "components").iterdir()),
    ]
    roles = [
        document
        for folder in folders
        for document in build(folder)
        if document["kind"] in {"ClusterRole", "Role"} and document["rules"]
    ]
    return {
        (role["kind"], role["metadata"]["name"]): {
            right for rule in role["rules"] for right in rights_of(rule)
        }
        for role in roles
    }


def rights_of(rule: Mapping[str, Any]) -> Iterator[Right]:
    for path in rule.get("nonResourceURLs", ()):
        for verb in rule["verbs"]:
            yield Right("", path, "", verb)
    for group in rule.get("apiGroups", ()):
        for resource in rule["resources"]:
            for name in rule.get("resourceNames", [""]):
                for verb in rule["verbs"]:
                    yield Right(group, resource, name, verb)


def documented() -> Rights:
    """Return the rights in the tables with the columns ``resources`` and ``verbs``.

    An empty first cell means the role of the row before. "`/status` of these" means this subresource of the resources named last.
    """
    rights: Rights = {}
    role, resources = OPERATOR, list[str]()
    for row in rows((ROOT / "SECURITY.md").read_text()):
        if named := CODE.findall(row.get("component", "") + row.get("ClusterRole", "")):
            role = f"{OPERATOR}-{named[0]}" if "component" in row else named[0]
        named = CODE.findall(row["resources"])
        if row["resources"].endswith(" of these"):
            named = [resource + named[0] for resource in resources]
        else:
            resources = named
        scope, _, names = row["scope"].partition(", only ")
        kind = {CLUSTER: "ClusterRole", OWN_NAMESPACE: "Role"}[scope]
        rights.setdefault((kind, role), set()).update(
            Right(*split(resource), name, verb)
            for resource in named
            for name in CODE.findall(names) or [""]
            for verb in row["verbs"].split(", ")
        )
    return rights


def rows(page: str) -> Iterator[dict[str, str]]:
    """Yield the rows of the tables about rights, by column."""
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        header, _, *body = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines())
        if {"resources", "verbs", "scope"} <= set(header):
            yield from (dict(zip(header, cells, strict=True)) for cells in body)


def split(text: str) -> tuple[str, str]:
    """Split ``jobs.batch/status`` into the group and the resource with its subresource; a path such as ``/metrics`` has neither."""
    if text.startswith("/"):
        return "", text
    resource, _, subresource = text.partition("/")
    plural, _, group = resource.partition(".")
    return group, f"{plural}/{subresource}" if subresource else plural


GRANTED, DOCUMENTED = granted(), documented()


@pytest.mark.parametrize("role", sorted(GRANTED.keys() | DOCUMENTED.keys()), ids="/".join)
def test_the_page_lists_exactly_the_rights_of_a_role(role: tuple[str, str]) -> None:
    assert DOCUMENTED.get(role, set()) == GRANTED.get(role, set())


def test_the_page_and_the_manifests_have_roles_for_operator_and_users() -> None:
    names = {name for _, name in DOCUMENTED}

    assert {OPERATOR, "training-operator-mpi-v1", "kubeflow-training-edit", "kubeflow-training-view"} <= names
