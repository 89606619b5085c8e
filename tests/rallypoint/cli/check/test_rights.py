"""The rights that an operator with its flags uses, from the shipped roles."""

from typing import Any

from rallypoint.cli.check.installation import objects, roles
from rallypoint.cli.check.operators import Operator, find_operators
from rallypoint.cli.check.rights import Right, needed_rights, remedy


def operator(*arguments: str, namespace: str = "rallypoint-system") -> Operator:
    container = {"image": "rallypoint:1", "args": ["--leader-elect=true", *arguments]}
    body: dict[str, Any] = {
        "metadata": {"name": "training-operator", "namespace": namespace},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    (found,) = find_operators([body])
    return found


def needed(*arguments: str) -> list[Right]:
    return needed_rights(operator(*arguments), roles())


def of_role(rights: list[Right], role: str) -> list[Right]:
    return [right for right in rights if right.role == role]


def test_the_default_flags_need_the_base_and_mpi() -> None:
    rights = needed()

    assert {right.role for right in rights} == {"base", "mpi", "leases"}
    assert Right("base", "patch", "kubeflow.org", "mpijobs/status") in rights
    assert Right("mpi", "get", "", "secrets") in rights
    assert "podgroups" not in {right.resource for right in rights}


def test_flags_add_and_remove_rights() -> None:
    assert of_role(needed("--enable-scheme=TFJob"), "mpi") == []
    assert {right.resource for right in needed("--enable-scheme=TFJob") if right.group == "kubeflow.org"} == {
        "tfjobs",
        "tfjobs/status",
        "tfjobs/finalizers",
    }
    assert "podgroups" in {right.resource for right in needed("--gang-scheduler-name=volcano")}
    assert of_role(needed("--mpi-topology-label=zone"), "mpi-topology") != []
    assert of_role(needed("--enable-scheme=MXJob"), "mxjob") != []


def test_secure_metrics_need_reviews_in_the_whole_cluster() -> None:
    review = Right("secure-metrics", "create", "authentication.k8s.io", "tokenreviews")

    assert review not in needed()
    assert review in needed("--metrics-secure")
    assert review in needed("--metrics-secure=true", "--shadow", "--namespace=team")


def test_flavors_and_priority_classes_belong_to_the_cluster() -> None:
    assert of_role(needed(), "kueue") == []
    rights = of_role(needed("--kueue", "--namespace=team"), "kueue")

    assert Right("kueue", "create", "kueue.x-k8s.io", "workloads", "team") in rights
    assert Right("kueue", "get", "kueue.x-k8s.io", "resourceflavors") in rights


def test_a_lease_is_checked_by_its_name_where_it_is() -> None:
    rights = of_role(needed("--leader-election-namespace=kubeflow", "--leader-election-id=x"), "leases")

    assert Right("leases", "update", "coordination.k8s.io", "leases", "kubeflow", "x") in rights
    assert Right("leases", "create", "coordination.k8s.io", "leases", "kubeflow") in rights
    assert {right.namespace for right in rights} == {"kubeflow"}


def test_an_operator_of_one_namespace_needs_nothing_of_the_cluster() -> None:
    rights = needed("--namespace=team")

    assert {right.namespace for right in rights} == {"team", "rallypoint-system"}
    assert "customresourcedefinitions" not in {right.resource for right in rights}


def test_the_remedy_names_the_objects_that_grant_the_right() -> None:
    assert "ClusterRole" in remedy("base", operator())
    assert "component mpi" in remedy("mpi", operator())
    assert "Role and the RoleBinding" in remedy("mpi", operator("--namespace=team"))
    assert "in namespace team" in remedy("base", operator("--namespace=team"))


def test_a_shadow_needs_its_own_role() -> None:
    rights = needed("--shadow")

    assert {right.role for right in rights} == {"shadow"}
    assert {right.verb for right in rights} <= {"get", "list", "watch"}
    assert "podgroups" not in {right.resource for right in rights}
    assert "podgroups" in {right.resource for right in needed("--shadow", "--gang-scheduler-name=volcano")}


def test_a_review_names_the_subresource() -> None:
    right = Right("mpi-v1", "create", "", "pods/exec", "n")

    assert right.attributes() == {
        "verb": "create",
        "resource": "pods",
        "subresource": "exec",
        "namespace": "n",
    }


def test_the_shipped_installation_has_no_definitions_and_all_roles() -> None:
    kinds = [document["kind"] for document in objects()]

    assert "CustomResourceDefinition" not in kinds
    assert {"Deployment", "ClusterRole", "Role"} <= set(kinds)
    assert {"base", "leases", "mpi", "mpi-v1", "mpi-versions", "mpi-topology", "mxjob"} <= roles().keys()
