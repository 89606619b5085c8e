"""The permissions of a launcher: its own pods by name, and none without pods."""

from typing import Any

import pytest

from api.mpijob import Flavor, MPIJob
from controller.domain import Role, WriteMode
from controller.kinds.mpi import rbac

OWNER = Flavor.V1.resource
HVD = MPIJob.model_validate({"metadata": {"name": "hvd", "namespace": "ml", "uid": "u"}})
REFERENCE = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "MPIJob",
    "name": "hvd",
    "uid": "u",
    "controller": True,
    "blockOwnerDeletion": True,
}


def launcher(account: str = "") -> Role:
    spec: dict[str, Any] = {"containers": [{"name": "mpi", "image": "img"}]}
    return Role(
        "Launcher", 1, "Never", {"spec": {**spec, **({"serviceAccountName": account} if account else {})}}
    )


def test_the_rules_name_every_pod() -> None:
    names = ["hvd-worker-0", "hvd-worker-1"]

    assert rbac.rules(names) == [
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": names},
        {"verbs": ["create", "get"], "apiGroups": [""], "resources": ["pods/exec"], "resourceNames": names},
    ]


def test_without_pods_there_are_no_rules() -> None:
    """A rule without names would be one for every pod of the namespace."""
    assert rbac.rules([]) == []


def test_role() -> None:
    child = rbac.role(OWNER, HVD, ["hvd-worker-0"])

    assert child.write_mode is WriteMode.APPLY
    assert child.body() == {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "hvd-launcher", "labels": {"app": "hvd"}, "ownerReferences": [REFERENCE]},
        "rules": rbac.rules(["hvd-worker-0"]),
    }


def test_binding_of_an_account_of_its_own() -> None:
    assert rbac.binding(OWNER, HVD, "hvd-launcher").body() == {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "hvd-launcher", "labels": {"app": "hvd"}, "ownerReferences": [REFERENCE]},
        "subjects": [{"kind": "ServiceAccount", "name": "hvd-launcher", "namespace": "ml"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hvd-launcher"},
    }


def test_binding_of_the_account_that_the_template_names() -> None:
    body = rbac.binding(OWNER, HVD, "trainer").body()

    assert body["metadata"]["name"] == "hvd-launcher"
    assert body["subjects"][0]["name"] == "trainer"


def test_account() -> None:
    assert rbac.account(OWNER, HVD, launcher()).body() == {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "hvd-launcher", "labels": {"app": "hvd"}, "ownerReferences": [REFERENCE]},
    }


def test_only_an_account_that_the_template_names_can_have_another_owner() -> None:
    own, named = rbac.account(OWNER, HVD, launcher()), rbac.account(OWNER, HVD, launcher("trainer"))

    assert (own.name, own.write_mode) == ("hvd-launcher", WriteMode.APPLY)
    assert (named.name, named.write_mode) == ("trainer", WriteMode.CREATE_IF_ABSENT)


def test_a_permission_is_revoked_only_if_it_exists() -> None:
    child = rbac.role(OWNER, HVD, [], WriteMode.UPDATE_IF_PRESENT)

    assert (child.write_mode, child.body()["rules"]) == (WriteMode.UPDATE_IF_PRESENT, [])
    assert child.version != rbac.role(OWNER, HVD, ["hvd-worker-0"]).version


def test_without_the_permission_nothing_else_is_created() -> None:
    children = (
        rbac.account(OWNER, HVD, launcher()),
        rbac.role(OWNER, HVD, ["hvd-worker-0"]),
        rbac.binding(OWNER, HVD, "hvd-launcher"),
    )

    assert all(child.first and child.lasting for child in children)


@pytest.mark.parametrize(
    ("words", "is_reported"),
    [
        (
            'serviceaccounts is forbidden: User "x" cannot create resource "serviceaccounts" in API group ""',
            True,
        ),
        (
            'roles.rbac.authorization.k8s.io "j" is forbidden: user "x" is attempting to grant RBAC permissions',
            True,
        ),
        ('pods "hvd-worker-0" is forbidden: exceeded quota: small', False),
        ('pods "hvd-worker-0" is forbidden: violates PodSecurity "restricted:latest"', False),
    ],
)
def test_a_missing_permission_is_reported(words: str, is_reported: bool) -> None:
    event = rbac.missing_rights_event(words)

    assert (event is not None) is is_reported
    if event:
        assert event.reason == "MissingPermissions"
        assert (
            event.message
            == f"{words}: MPIJobs of v1 and v1alpha2 require the component manifests/components/mpi-v1"
        )
