"""RBAC rules that ``tests/contract/test_rights.py`` does not compare with a real API server."""

from typing import Any

import pytest

from rallypoint.local.apiserver import ApiServer
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.auth.authorization import GROUP, Attributes, Authorizer, rule_allows
from rallypoint.local.apiserver.auth.serviceaccounts import ADMINISTRATOR, service_account

POD = service_account("team", "default")


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


def put(server: ApiServer, plural: str, name: str, namespace: str = "", **fields: Any) -> None:
    meta = {"name": name, "uid": f"{plural}-{name}", "namespace": namespace, **fields.pop("metadata", {})}
    meta = {key: value for key, value in meta.items() if value}
    obj = {"apiVersion": f"{GROUP}/v1", "kind": plural, "metadata": meta, **fields}
    server.store.put(server.store.collection(f"{GROUP}/{plural}"), obj)


def bind(server: ApiServer, role: str, subject: dict[str, Any], namespace: str = "") -> None:
    plural = "rolebindings" if namespace else "clusterrolebindings"
    reference = {"kind": "ClusterRole", "name": role}
    put(server, plural, "b", namespace, roleRef=reference, subjects=[subject])


def get(resource: str, namespace: str = "team", verb: str = "get") -> Attributes:
    return Attributes(verb, "", resource, namespace, "x")


@pytest.mark.parametrize(
    ("role", "allowed", "denied"),
    [
        ("view", get("pods/log"), get("secrets")),
        ("view", get("pods"), get("pods/portforward", verb="create")),
        ("edit", get("pods/portforward", verb="create"), get("nodes", "")),
        ("edit", get("pods/exec", verb="create"), Attributes("get", GROUP, "roles", "team")),
        ("admin", Attributes("get", GROUP, "roles", "team"), get("nodes", "")),
    ],
)
def test_user_facing_roles_allow_and_deny(
    server: ApiServer, role: str, allowed: Attributes, denied: Attributes
) -> None:
    bind(server, role, {"kind": "ServiceAccount", "name": "default"}, "team")
    rights = Authorizer(server.store)

    assert rights.allows(POD, allowed)
    assert not rights.allows(POD, denied)


def test_an_aggregated_role_has_the_rules_of_the_roles_with_its_labels(server: ApiServer) -> None:
    trains = {"apiGroups": ["example.com"], "resources": ["trains"], "verbs": ["get"]}
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    put(server, "clusterroles", "trains", metadata={"labels": labels}, rules=[trains])
    bind(server, "view", {"kind": "ServiceAccount", "name": "default", "namespace": "team"})

    assert Authorizer(server.store).allows(POD, Attributes("get", "example.com", "trains", "any"))


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        pytest.param({"kind": "ServiceAccount", "name": "default", "namespace": "team"}, True, id="the account"),
        pytest.param({"kind": "ServiceAccount", "name": "default", "namespace": "other"}, False, id="one of another namespace"),
        pytest.param({"kind": "User", "name": "system:serviceaccount:team:default"}, True, id="its user name"),
        pytest.param({"kind": "Group", "name": "system:serviceaccounts"}, True, id="all accounts"),
        pytest.param({"kind": "Group", "name": "system:serviceaccounts:team"}, True, id="all of its namespace"),
        pytest.param({"kind": "Group", "name": "system:serviceaccounts:other"}, False, id="all of another namespace"),
        pytest.param({"kind": "Group", "name": "system:masters"}, False, id="a group that it is not in"),
    ],
)  # fmt: skip
def test_a_binding_matches_its_subjects(server: ApiServer, subject: dict[str, Any], expected: bool) -> None:
    bind(server, "cluster-admin", subject)

    assert Authorizer(server.store).allows(POD, get("secrets")) is expected


def test_a_binding_to_a_missing_role_grants_nothing(server: ApiServer) -> None:
    bind(server, "missing", {"kind": "ServiceAccount", "name": "default", "namespace": "team"})

    assert not Authorizer(server.store).allows(POD, get("pods"))


def test_the_administrator_is_allowed_everything_without_bindings(server: ApiServer) -> None:
    bindings = server.store.collection(f"{GROUP}/clusterrolebindings")
    for entry in bindings.select():
        server.store.remove(bindings, entry.object)

    assert Authorizer(server.store).allows(ADMINISTRATOR, get("secrets"))
    assert not Authorizer(server.store).allows(POD, Attributes("get", path="/version"))


def test_the_verb_bind_allows_binding_a_role_with_more_permissions(server: ApiServer) -> None:
    bound = {
        "metadata": {"name": "b", "namespace": "team"},
        "roleRef": {"kind": "ClusterRole", "name": "view"},
    }
    rights = Authorizer(server.store)
    with pytest.raises(StatusError, match="attempting to grant RBAC permissions not currently held"):
        rights.require_no_escalation(POD, "rolebindings", bound)
    allowed = {
        "apiGroups": [GROUP],
        "resources": ["clusterroles"],
        "verbs": ["bind"],
        "resourceNames": ["view"],
    }
    put(server, "clusterroles", "binder", rules=[allowed])
    bind(server, "binder", {"kind": "ServiceAccount", "name": "default"}, "team")

    rights.require_no_escalation(POD, "rolebindings", bound)


@pytest.mark.parametrize(
    ("paths", "path", "expected"),
    [
        (["/api/*"], "/api/v1", True),
        (["/api/*"], "/apis", False),
        (["/api"], "/api/v1", False),
        (["*"], "/metrics", True),
    ],
)
def test_non_resource_paths(paths: list[str], path: str, expected: bool) -> None:
    assert rule_allows({"nonResourceURLs": paths, "verbs": ["get"]}, Attributes("get", path=path)) is expected
