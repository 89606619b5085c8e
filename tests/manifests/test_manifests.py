"""The objects in ``manifests`` against the contract and each other; tests/integration applies them to a real API server."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from controller.app import kinds_named
from controller.command import build_parser, settings_from
from controller.kinds import DEFAULT
from controller.kinds.mpi import MPI
from controller.kinds.mxnet import MXNET
from rallypoint.cli.shadow import NAMESPACE, PORT, SELECTOR
from rallypoint.testing.manifests import build

MANIFESTS = Path(__file__).parents[2] / "manifests"
SEVERAL = {"CustomResourceDefinition", "FlowSchema"}
OF_MPI = "training-operator-mpi"
ACCOUNT = {"kind": "ServiceAccount", "name": "training-operator", "namespace": "rallypoint-system"}


@pytest.fixture(scope="module")
def objects() -> dict[str, dict[str, Any]]:
    """The objects of the overlay ``standalone`` by kind, without ``SEVERAL`` and the rights for MPIJobs; there is one of each."""
    documents = build(MANIFESTS / "overlays" / "standalone")
    return {
        document["kind"]: document
        for document in documents
        if document["kind"] not in SEVERAL and document["metadata"]["name"] != OF_MPI
    }


def test_the_manifests_contain_these_objects(objects: dict[str, dict[str, Any]]) -> None:
    installed = {kind: document["metadata"]["name"] for kind, document in objects.items()}

    assert installed == {
        "Namespace": "rallypoint-system",
        "ServiceAccount": "training-operator",
        "ClusterRole": "training-operator",
        "ClusterRoleBinding": "training-operator",
        "Role": "training-operator",
        "RoleBinding": "training-operator",
        "PodDisruptionBudget": "training-operator",
        "Deployment": "training-operator",
        "Service": "training-operator",
    }


def test_all_objects_are_in_the_created_namespace(objects: dict[str, dict[str, Any]]) -> None:
    placed = {
        document["metadata"]["namespace"]
        for document in objects.values()
        if "namespace" in document["metadata"]
    }

    assert placed == {objects["Namespace"]["metadata"]["name"]} == {ACCOUNT["namespace"]}


def test_permissions_and_priority_levels_belong_to_the_service_account_of_the_deployment(
    objects: dict[str, dict[str, Any]],
) -> None:
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    schemas = build(MANIFESTS / "components" / "flow-control")
    account = {"name": ACCOUNT["name"], "namespace": ACCOUNT["namespace"]}

    assert objects["ServiceAccount"]["metadata"]["name"] == pod["serviceAccountName"] == ACCOUNT["name"]
    for binding in ("ClusterRoleBinding", "RoleBinding"):
        assert objects[binding]["subjects"] == [ACCOUNT]
    for schema in schemas:
        (rule,) = schema["spec"]["rules"]
        assert rule["subjects"] == [{"kind": "ServiceAccount", "serviceAccount": account}]


@pytest.mark.parametrize("overlay", ["standalone", "without-mpi", "mpi-v1"])
def test_only_a_namespace_of_its_own_is_part_of_an_overlay(overlay: str) -> None:
    """Who deletes the objects of the overlay deletes its namespace; it enforces what the operator's pods satisfy."""
    namespaces = [
        document["metadata"]
        for document in build(MANIFESTS / "overlays" / overlay)
        if document["kind"] == "Namespace"
    ]

    assert namespaces == [
        {"name": "rallypoint-system", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    ]


def test_the_kubeflow_overlay_differs_by_the_namespace_alone() -> None:
    """Every object and every reference is in ``kubeflow``, and no Namespace is among them, because others use it."""
    standalone = [
        document
        for document in build(MANIFESTS / "overlays" / "standalone")
        if document["kind"] != "Namespace"
    ]
    expected = json.loads(json.dumps(standalone).replace('"rallypoint-system"', '"kubeflow"'))

    assert build(MANIFESTS / "overlays" / "kubeflow") == expected


def test_the_base_names_no_namespace() -> None:
    """kustomize puts an overlay's namespace only where the base names none, in the subjects of bindings above all."""
    documents = build(MANIFESTS / "base")

    assert not [manifest for manifest in documents if "namespace" in manifest["metadata"]]
    assert not [
        manifest
        for manifest in documents
        for subject in manifest.get("subjects", ())
        if "namespace" in subject
    ]


def test_the_role_names_the_leases_of_both_originals(objects: dict[str, dict[str, Any]]) -> None:
    names = {name for rule in objects["Role"]["rules"] for name in rule.get("resourceNames", ())}

    assert names == {build_parser().parse_args([]).leader_election_id, "mpi-operator"}


def test_the_network_policy_allows_the_ports_of_the_pods(objects: dict[str, dict[str, Any]]) -> None:
    (policy,) = build(MANIFESTS / "components" / "network-policy")
    template = objects["Deployment"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (incoming,) = policy["spec"]["ingress"]

    assert policy["spec"]["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert [port["port"] for port in incoming["ports"]] == [port["name"] for port in container["ports"]]


def test_prometheus_operator_finds_the_service(objects: dict[str, dict[str, Any]]) -> None:
    monitoring = build(MANIFESTS / "components" / "monitoring")
    (monitor,) = (manifest for manifest in monitoring if manifest["kind"] == "ServiceMonitor")
    service = objects["Service"]
    (endpoint,) = monitor["spec"]["endpoints"]

    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_replicas_elect_a_leader_and_an_update_waits_for_the_new_replica(
    objects: dict[str, dict[str, Any]],
) -> None:
    deployment = objects["Deployment"]["spec"]
    (container,) = deployment["template"]["spec"]["containers"]

    assert build_parser().parse_args(container["args"]).leader_elect is True
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_a_node_can_be_drained_despite_a_broken_pod(
    objects: dict[str, dict[str, Any]],
) -> None:
    budget, deployment = objects["PodDisruptionBudget"]["spec"], objects["Deployment"]["spec"]

    assert budget["selector"] == deployment["selector"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_only_its_own_pods_get_a_token(objects: dict[str, dict[str, Any]]) -> None:
    assert objects["ServiceAccount"]["automountServiceAccountToken"] is False
    assert objects["Deployment"]["spec"]["template"]["spec"]["automountServiceAccountToken"] is True


def test_the_service_reaches_the_pods(objects: dict[str, dict[str, Any]]) -> None:
    template = objects["Deployment"]["spec"]["template"]
    ports = {
        port["containerPort"]
        for container in template["spec"]["containers"]
        for port in container.get("ports", ())
    }
    service = objects["Service"]

    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    assert service["metadata"]["annotations"]["prometheus.io/port"] == str(
        service["spec"]["ports"][0]["port"]
    )


def test_the_role_covers_every_kind(objects: dict[str, dict[str, Any]]) -> None:
    granted = {
        resource
        for rule in objects["ClusterRole"]["rules"]
        if rule["apiGroups"] == ["kubeflow.org"]
        for resource in rule["resources"]
    }

    for kind in DEFAULT:
        plural = kind.resource.plural
        assert {plural, f"{plural}/status", f"{plural}/finalizers"} <= granted


def test_the_role_grants_nothing_by_wildcard(objects: dict[str, dict[str, Any]]) -> None:
    rules = objects["ClusterRole"]["rules"]

    assert not any("*" in rule[field] for rule in rules for field in ("apiGroups", "resources", "verbs"))


def test_the_pod_can_run_in_a_restricted_namespace(objects: dict[str, dict[str, Any]]) -> None:
    """The pod follows the Pod Security profile ``restricted`` and has a read-only root file system."""
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "memory" in container["resources"]["limits"]


def test_the_image_runs_as_the_deployment_says(objects: dict[str, dict[str, Any]]) -> None:
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    lines = (MANIFESTS.parent / "Dockerfile").read_text().splitlines()
    said = {instruction: rest for instruction, _, rest in (line.partition(" ") for line in lines)}

    user = pod["securityContext"]
    assert said["USER"] == f"{user['runAsUser']}:{user['runAsGroup']}"
    assert json.loads(said["ENTRYPOINT"]) == container["command"]
    assert {int(port) for port in said["EXPOSE"].split()} == {
        port["containerPort"] for port in container["ports"]
    }


def test_the_image_is_built_from_all_of_the_operators_wheel() -> None:
    root = MANIFESTS.parent
    project = root / "deploy" / "operator"
    build_options = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    sources = [".", *build_options["hooks"]["custom"]["folders"]]

    assert {f"!{(project / source).resolve().relative_to(root)}" for source in sources} <= set(
        (root / ".dockerignore").read_text().splitlines()
    )


def test_permissions_for_v1_mpijobs_are_a_separate_component() -> None:
    """The base hands on nothing; the component holds what launchers are given, for the same account."""
    base = {resource for resource, _ in rights(build(MANIFESTS / "base" / "rbac"))}
    component = rights(build(MANIFESTS / "components" / "mpi-v1"))

    assert not base & {"roles", "rolebindings", "serviceaccounts", "pods/exec"}
    assert {("pods/exec", "create"), ("pods/exec", "get"), ("roles", "create")} <= component
    assert not {verb for _, verb in component} & {"*", "list", "watch", "bind", "escalate"}


def test_an_overlay_binds_the_permissions_for_v1_mpijobs_to_the_account() -> None:
    documents = build(MANIFESTS / "overlays" / "mpi-v1")
    bindings = [manifest for manifest in documents if manifest["kind"] == "ClusterRoleBinding"]

    assert [binding["roleRef"]["name"] for binding in bindings] == [
        "training-operator",
        OF_MPI,
        "training-operator-mpi-v1",
    ]
    assert all(binding["subjects"] == [ACCOUNT] for binding in bindings)


def test_only_the_topology_component_grants_watching_nodes() -> None:
    """Of lost nodes single ones are read, by name."""
    base = rights(build(MANIFESTS / "base" / "rbac"))
    role, binding = build(MANIFESTS / "components" / "mpi-topology")

    assert [verb for resource, verb in base if resource == "nodes"] == ["get"]
    assert rights([role]) == {("nodes", "get"), ("nodes", "list"), ("nodes", "watch")}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_only_the_component_for_kueue_grants_changing_jobs_and_workloads() -> None:
    base = rights(build(MANIFESTS / "base" / "rbac"))
    documents = build(MANIFESTS / "components" / "kueue")

    assert not [resource for resource, _ in base if resource.startswith("workloads")]
    assert ("pytorchjobs", "patch") not in base
    assert {("pytorchjobs", "patch"), ("workloads", "create"), ("workloads/status", "patch")} <= rights(
        documents
    )


@pytest.mark.parametrize(
    ("component", "granted"),
    [
        ("progress", {("pods/log", "get")}),
        ("progress-exec", {("pods/exec", "get"), ("pods/exec", "create")}),
    ],
)
def test_logs_and_commands_in_pods_are_components_of_their_own(
    component: str, granted: set[tuple[str, str]]
) -> None:
    base = rights([*build(MANIFESTS / "base" / "rbac"), *build(MANIFESTS / "components" / "mpi")])
    role, binding = build(MANIFESTS / "components" / component)

    assert not {resource for resource, _ in base} & {"pods/log", "pods/exec"}
    assert rights([role]) == granted
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_rights_on_secrets_and_configmaps_are_a_component_of_mpijobs() -> None:
    """Secrets are never listed. The shipped manifest serves MPIJobs; an installation over the base alone has none of these rights."""
    base = rights(build(MANIFESTS / "base"))
    component = rights(build(MANIFESTS / "components" / "mpi"))

    assert not {resource for resource, _ in base} & {"secrets", "configmaps", "jobs", "jobs/status"}
    assert {verb for resource, verb in component if resource == "secrets"} == {"get", "create"}
    assert component < rights(build(MANIFESTS / "overlays" / "standalone"))


def test_an_operator_for_one_namespace_has_no_object_outside_of_it(tmp_path: Path) -> None:
    """Its Role has the rules of the base and of MPIJobs, and its process serves the namespace that it runs in."""
    overlay = os.path.relpath(MANIFESTS / "overlays" / "namespaced", tmp_path)
    kustomization = {"namespace": "team", "resources": [overlay]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization))
    documents = {document["kind"]: document for document in build(tmp_path)}

    assert {document["metadata"].get("namespace") for document in documents.values()} == {"team"}
    assert sorted(documents) == [
        "Deployment",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    ]
    assert documents["RoleBinding"]["subjects"] == [ACCOUNT | {"namespace": "team"}]
    shipped = [*build(MANIFESTS / "base" / "rbac"), *build(MANIFESTS / "components" / "mpi")]
    cluster_scoped = {("customresourcedefinitions", "get"), ("nodes", "get"), ("queues", "get")}
    expected = rights(shipped, "ClusterRole", "Role") - cluster_scoped
    assert rights([documents["Role"]], "Role") == expected
    (container,) = documents["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image_of(MANIFESTS / "overlays" / "standalone")
    assert "--namespace=$(MY_POD_NAMESPACE)" in container["args"]
    assert "MY_POD_NAMESPACE" in {variable["name"] for variable in container["env"]}


def test_an_operator_without_mpijobs_serves_the_other_kinds_without_rights_on_secrets() -> None:
    folder = MANIFESTS / "overlays" / "without-mpi"
    (deployment,) = (document for document in build(folder) if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]

    served = kinds_named(build_parser().parse_args(container["args"]).enable_scheme)
    assert served == tuple(kind for kind in DEFAULT if kind is not MPI)
    assert rights(build(folder)) == rights(build(MANIFESTS / "base"))
    assert container["image"] == image_of(MANIFESTS / "overlays" / "standalone")


@pytest.mark.parametrize("role", ["edit", "view"])
def test_users_can_read_what_explains_a_job(role: str) -> None:
    """What ``rallypoint why`` reads in a namespace; nodes and other namespaces are not theirs."""
    (found,) = (
        document
        for document in build(MANIFESTS / "components" / "user-roles")
        if document["metadata"]["name"] == f"kubeflow-training-{role}"
    )
    granted = rights([found])

    for resource in ("pods", "events", "jobs", "podgroups", "workloads"):
        assert {verb for what, verb in granted if what == resource} == {"get", "list", "watch"}
    assert ("pods/log", "get") in granted
    assert not {resource for resource, _ in granted} & {"nodes", "secrets", "configmaps", "pods/exec"}


def test_users_who_can_edit_jobs_can_scale_them() -> None:
    roles = {role["metadata"]["name"]: role for role in build(MANIFESTS / "components" / "user-roles")}
    scalable = {f"{kind.resource.plural}/scale" for kind in DEFAULT if kind.scalable}
    edit = rights([roles["kubeflow-training-edit"]])
    view = rights([roles["kubeflow-training-view"]])

    assert {right for right in edit if right[0].endswith("/scale")} == {
        (resource, verb) for resource in scalable for verb in ("get", "patch", "update")
    }
    assert not {resource for resource, _ in view} & scalable


def test_permissions_to_migrate_mpijobs_are_a_separate_component() -> None:
    """The component may write that definition only; the base may only read it."""
    base = rights(build(MANIFESTS / "base" / "rbac"))
    role, binding = build(MANIFESTS / "components" / "mpi-versions")

    assert ("mpijobs", "patch") not in base
    assert rights([role]) == {("mpijobs", "patch"), ("customresourcedefinitions/status", "patch")}
    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, ["mpijobs.kubeflow.org"]]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_roles_for_users_cover_every_kind_without_its_status() -> None:
    roles = {
        role["metadata"]["name"].removeprefix("kubeflow-training-"): role
        for role in build(MANIFESTS / "components" / "user-roles")
    }
    edit, view = rights([roles["edit"]]), rights([roles["view"]])
    (selector,) = roles["admin"]["aggregationRule"]["clusterRoleSelectors"]

    for kind in DEFAULT:
        assert {(kind.resource.plural, verb) for verb in ("create", "delete", "patch")} <= edit
        assert {verb for resource, verb in view if resource == kind.resource.plural} == {
            "get",
            "list",
            "watch",
        }
        assert {verb for resource, verb in edit | view if resource == f"{kind.resource.plural}/status"} == {
            "get"
        }
    assert selector["matchLabels"].items() <= roles["edit"]["metadata"]["labels"].items()
    assert [
        role
        for role, document in roles.items()
        if f"rbac.authorization.kubeflow.org/aggregate-to-kubeflow-{role}" in document["metadata"]["labels"]
    ] == ["admin", "edit", "view"]


def test_mxjobs_are_installed_by_their_component_alone(tmp_path: Path) -> None:
    """The definition, the rights on it, and the flags by which the controller serves it beside all other kinds."""
    base = build(MANIFESTS / "overlays" / "standalone")
    kustomization = {
        "namespace": "rallypoint-system",
        "resources": [str(MANIFESTS / "overlays" / "standalone")],
        "components": [str(MANIFESTS / "components" / "mxjob")],
    }
    (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization))
    documents = build(tmp_path)
    added = [(document["kind"], document["metadata"]["name"]) for document in documents[len(base) :]]
    (deployment,) = (document for document in documents if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (binding,) = (document for document in documents[len(base) :] if document["kind"] == "ClusterRoleBinding")

    assert "mxjobs" not in json.dumps(base)
    assert added == [
        ("CustomResourceDefinition", "mxjobs.kubeflow.org"),
        ("ClusterRole", "training-operator-mxjob"),
        ("ClusterRoleBinding", "training-operator-mxjob"),
        ("ClusterRole", "kubeflow-training-mxjob-edit"),
        ("ClusterRole", "kubeflow-training-mxjob-view"),
    ]
    assert binding["subjects"] == [ACCOUNT]
    assert kinds_named(build_parser().parse_args(container["args"]).enable_scheme) == (*DEFAULT, MXNET)


@pytest.mark.parametrize("monitored", [True, False])
def test_the_metrics_are_protected_by_a_component(tmp_path: Path, monitored: bool) -> None:
    """With the component monitoring before it, prometheus-operator's Prometheus sends its token."""
    components = [*(["monitoring"] if monitored else []), "secure-metrics"]
    overlay = {
        "namespace": ACCOUNT["namespace"],
        "resources": [os.path.relpath(MANIFESTS / "overlays" / "standalone", tmp_path)],
        "components": [os.path.relpath(MANIFESTS / "components" / name, tmp_path) for name in components],
    }
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))

    by_name = {(found["kind"], found["metadata"]["name"]): found for found in build(tmp_path)}

    (container,) = by_name["Deployment", "training-operator"]["spec"]["template"]["spec"]["containers"]
    assert build_parser().parse_args(container["args"]).metrics_secure is True
    assert (
        by_name["Service", "training-operator"]["metadata"]["annotations"]["prometheus.io/scheme"] == "https"
    )
    assert by_name["ClusterRoleBinding", "training-operator-secure-metrics"]["subjects"] == [ACCOUNT]
    assert by_name["ClusterRole", "training-operator-metrics-reader"]["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]
    if monitored:
        (endpoint,) = by_name["ServiceMonitor", "training-operator"]["spec"]["endpoints"]
        assert endpoint == {
            "port": "monitoring-port",
            "path": "/metrics",
            "interval": "15s",
            "scheme": "https",
            "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
            "tlsConfig": {"insecureSkipVerify": True},
        }


def test_users_have_the_same_permissions_on_mxjobs_as_on_other_kinds() -> None:
    own = build(MANIFESTS / "components" / "mxjob")
    for role in build(MANIFESTS / "components" / "user-roles"):
        name = role["metadata"]["name"].replace("training-", "training-mxjob-")
        found = [rights([candidate]) for candidate in own if candidate["metadata"]["name"] == name]
        expected = {
            (resource.replace("pytorchjobs", "mxjobs"), verb)
            for resource, verb in rights([role])
            if "pytorchjobs" in resource and (MXNET.scalable or not resource.endswith("/scale"))
        }
        assert found == ([expected] if expected else [])


def test_a_shadow_only_reads_and_shares_no_name_with_an_operator() -> None:
    documents = build(MANIFESTS / "overlays" / "shadow")
    others = [*build(MANIFESTS / "overlays" / "standalone"), *build(MANIFESTS / "overlays" / "kubeflow")]
    names = {(document["kind"], document["metadata"]["name"]) for document in documents}

    assert {verb for _, verb in rights(documents)} == {"get", "list", "watch"}
    assert not [right for right in rights(documents) if right[0] == "secrets" and right[1] != "get"]
    assert not names & {(document["kind"], document["metadata"]["name"]) for document in others}
    assert {name for _, name in names} == {"rallypoint-shadow"}
    assert "CustomResourceDefinition" not in {kind for kind, _ in names}


def test_a_shadow_may_read_every_kind_and_all_that_the_operator_writes() -> None:
    granted = {resource for resource, _ in rights(build(MANIFESTS / "overlays" / "shadow"))}
    operator = rights(build(MANIFESTS / "overlays" / "mpi-v1"))
    children = {
        resource
        for resource, verb in operator
        if verb == "create" and "/" not in resource and resource != "events"
    }

    assert children | {kind.resource.plural for kind in DEFAULT} <= granted


def test_the_deployment_of_a_shadow_starts_one_as_the_operator_does() -> None:
    documents = {document["kind"]: document for document in build(MANIFESTS / "overlays" / "shadow")}
    operator = next(
        document
        for document in build(MANIFESTS / "overlays" / "standalone")
        if document["kind"] == "Deployment"
    )
    pod, own = (manifest["spec"]["template"]["spec"] for manifest in (documents["Deployment"], operator))
    (container,), (reference,) = pod["containers"], own["containers"]
    settings = settings_from(build_parser().parse_args(container["args"]))

    assert settings.shadow
    assert not settings.leader_elect
    assert settings.pprof_bind_address == f"127.0.0.1:{PORT}"
    assert pod["securityContext"] == own["securityContext"]
    for field in ("image", "command", "livenessProbe", "readinessProbe", "securityContext", "ports"):
        assert container[field] == reference[field]
    labels = documents["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert documents["Service"]["spec"]["selector"] == labels == {"app": SELECTOR.removeprefix("app=")}
    assert documents["Namespace"]["metadata"]["name"] == NAMESPACE


def image_of(folder: Path) -> str:
    """The image of the Deployment in a kustomization."""
    (deployment,) = (document for document in build(folder) if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


def rights(documents: list[dict[str, Any]], *kinds: str) -> set[tuple[str, str]]:
    """What the roles of these kinds among them grant, by default the ClusterRoles: resource and verb."""
    return {
        (resource, verb)
        for document in documents
        if document["kind"] in (kinds or ("ClusterRole",))
        for rule in document["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
