"""Impersonation in the embedded API server: who may do it, and with which permissions the request runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import pytest

from rallypoint.local.apiserver import ApiServer
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.auth.authorization import GROUP, Authorizer
from rallypoint.local.apiserver.auth.impersonation import acting_user
from rallypoint.local.apiserver.auth.serviceaccounts import ADMINISTRATOR, User, service_account

BOB = User("bob", ("system:authenticated",))
POD = service_account("team", "default")
POD_NAME = "system:serviceaccount:team:default"


@pytest.fixture
def authorizer() -> Authorizer:
    """Lets bob impersonate the user jane and the ServiceAccounts of one namespace."""
    server = ApiServer()
    for plural, name, namespace, fields in (
        ("clusterroles", "jane", "", {"rules": [rule("users", "jane")]}),
        ("clusterrolebindings", "jane", "", binding("ClusterRole", "jane")),
        ("roles", "accounts", "team", {"rules": [rule("serviceaccounts")]}),
        ("rolebindings", "accounts", "team", binding("Role", "accounts")),
    ):
        metadata = {"name": name, "uid": f"{plural}-{name}"} | ({"namespace": namespace} if namespace else {})
        obj = {"apiVersion": f"{GROUP}/v1", "kind": plural, "metadata": metadata, **fields}
        server.store.put(server.store.collection(f"{GROUP}/{plural}"), obj)
    return Authorizer(server.store)


def rule(resource: str, *names: str) -> dict[str, Any]:
    named = {"resourceNames": [*names]} if names else {}
    return {"apiGroups": [""], "resources": [resource], "verbs": ["impersonate"], **named}


def binding(kind: str, role: str) -> dict[str, Any]:
    return {"roleRef": {"kind": kind, "name": role}, "subjects": [{"kind": "User", "name": "bob"}]}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({}, ADMINISTRATOR, id="no headers"),
        pytest.param({"impersonate-user": ["jane"]}, User("jane", ("system:authenticated",)), id="a user"),
        pytest.param({"impersonate-user": [POD_NAME]}, POD, id="a ServiceAccount has its groups"),
        pytest.param(
            {"impersonate-user": [POD_NAME], "impersonate-group": ["a", "b"]},
            User(POD_NAME, ("a", "b", "system:authenticated")),
            id="other groups",
        ),
        pytest.param(
            {"impersonate-user": ["system:anonymous"]},
            User("system:anonymous", ("system:unauthenticated",)),
            id="nobody",
        ),
        pytest.param(
            {"impersonate-user": ["system:anonymous"], "impersonate-group": ["system:authenticated"]},
            User("system:anonymous", ("system:authenticated", "system:unauthenticated")),
            id="nobody has the group of unauthenticated users in any case",
        ),
        pytest.param({"impersonate-user": [""], "impersonate-uid": [""]}, ADMINISTRATOR, id="empty headers"),
    ],
)
def test_the_administrator_acts_as_another_user(
    authorizer: Authorizer, headers: Mapping[str, Sequence[str]], expected: User
) -> None:
    assert acting_user(authorizer, ADMINISTRATOR, headers) == expected


def test_users_may_impersonate_whom_a_role_names(authorizer: Authorizer) -> None:
    assert acting_user(authorizer, BOB, {"impersonate-user": ["jane"]}).name == "jane"
    assert acting_user(authorizer, BOB, {"impersonate-user": [POD_NAME]}) == POD


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        pytest.param(
            {"impersonate-user": ["root"]},
            'users "root" is forbidden: User "bob" cannot impersonate resource "users" in API group "" at the cluster scope',
            id="a user",
        ),
        pytest.param(
            {"impersonate-user": ["system:serviceaccount:other:default"]},
            'serviceaccounts "default" is forbidden: User "bob" cannot impersonate resource "serviceaccounts" in API group "" '
            'in the namespace "other"',
            id="a ServiceAccount",
        ),
        pytest.param(
            {"impersonate-user": ["jane"], "impersonate-group": ["system:masters"]},
            'groups "system:masters" is forbidden: User "bob" cannot impersonate resource "groups" in API group "" '
            "at the cluster scope",
            id="a group",
        ),
        pytest.param(
            {"impersonate-user": ["jane"], "impersonate-extra-scopes": ["x"]},
            'userextras.authentication.k8s.io "x" is forbidden: User "bob" cannot impersonate resource "userextras/scopes" in '
            'API group "authentication.k8s.io" at the cluster scope',
            id="an extra field",
        ),
        pytest.param(
            {"impersonate-user": ["jane"], "impersonate-uid": ["u"]},
            'uids.authentication.k8s.io "u" is forbidden: User "bob" cannot impersonate resource "uids" in '
            'API group "authentication.k8s.io" at the cluster scope',
            id="a UID",
        ),
    ],
)
def test_impersonation_needs_permission(
    authorizer: Authorizer, headers: Mapping[str, Sequence[str]], message: str
) -> None:
    with pytest.raises(StatusError) as refused:
        acting_user(authorizer, BOB, headers)

    assert (refused.value.code, refused.value.message) == (403, message)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"impersonate-group": ["a"]}, id="groups without a user"),
        pytest.param({"impersonate-user": [""], "impersonate-uid": ["u"]}, id="a UID with an empty user"),
        pytest.param({"impersonate-user": ["\udcff"]}, id="a user that is not UTF-8"),
        pytest.param(
            {"impersonate-user": ["jane"], "impersonate-group": ["\udcff"]}, id="a group that is not UTF-8"
        ),
    ],
)
def test_invalid_headers_are_refused(authorizer: Authorizer, headers: Mapping[str, Sequence[str]]) -> None:
    with pytest.raises(StatusError) as refused:
        acting_user(authorizer, BOB, headers)

    assert refused.value.code == 400


@pytest.mark.looptime(False)
async def test_a_request_has_the_permissions_of_the_impersonated_user() -> None:
    server = ApiServer()
    await server.start()
    headers = {"Authorization": f"Bearer {server.token}", "Impersonate-User": POD_NAME}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.get(f"{server.url}/api/v1/namespaces/team/secrets") as response:
            refused = await response.json()
        async with session.get(f"{server.url}/version") as response:
            allowed = response.status
    await server.stop()

    assert (refused["code"], allowed) == (403, 200)
    assert refused["message"] == (
        f'secrets is forbidden: User "{POD_NAME}" cannot list resource "secrets" in API group "" in the namespace "team"'
    )
