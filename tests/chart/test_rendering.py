"""The Helm chart, rendered by the real helm: it has the same objects as kustomize."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.command import build_parser
from rallypoint.testing.manifests import build
from tests.support.helm import HelmFailed, helm, template
from tools.chart.__main__ import CHART, main
from tools.chart.templates import COMPONENTS, MONITORING
from tools.chart.values import flags
from tools.version import semantic, source_version

MANIFESTS = CHART.parents[2] / "manifests"
STANDALONE = MANIFESTS / "overlays" / "standalone"
ALL_OF_MONITORING = {"monitoring": dict.fromkeys(MONITORING.values(), True)}
CRDS = "CustomResourceDefinition"


def enabled(*components: str) -> dict[str, Any]:
    values: dict[str, Any] = {
        COMPONENTS[name]: {"enabled": True} for name in components if name in COMPONENTS
    }
    return values | (ALL_OF_MONITORING if "monitoring" in components else {})


def kustomize(folder: Path, **kustomization: Any) -> list[dict[str, Any]]:
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization, default=str))
    return build(folder)


def by_name(documents: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The objects without the Namespace, which Helm creates, and without Helm's policy for CRDs."""
    found = {}
    for document in documents:
        metadata = document["metadata"]
        if document["kind"] == CRDS:
            metadata["annotations"].pop("helm.sh/resource-policy", None)
        found[document["kind"], metadata.get("namespace", ""), metadata["name"]] = document
    return {key: document for key, document in found.items() if key[0] != "Namespace"}


def without_definitions(folder: Path, *components: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The objects that kustomize makes of the base with these components, but for definitions."""
    documents = kustomize(
        folder,
        namespace="rallypoint-system",
        resources=[MANIFESTS / "base" / "rbac", MANIFESTS / "base" / "operator"],
        components=[MANIFESTS / "components" / name for name in components],
        images=yaml.safe_load((STANDALONE / "kustomization.yaml").read_text())["images"],
    )
    return by_name([document for document in documents if document["kind"] != CRDS])


def one(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def arguments(documents: list[dict[str, Any]]) -> list[str]:
    (container,) = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


def test_helm_finds_nothing_wrong() -> None:
    linted = helm("lint", "--strict", CHART)

    assert "1 chart(s) linted, 0 chart(s) failed" in linted


@pytest.mark.parametrize(
    ("overlay", "namespace", "values"),
    [
        ("standalone", "rallypoint-system", {}),
        ("kubeflow", "kubeflow", {}),
        ("without-mpi", "rallypoint-system", {"mpi": {"enabled": False}}),
        ("mpi-v1", "rallypoint-system", {"mpiV1": {"enabled": True}}),
        ("shadow", "rallypoint-shadow", {"shadow": {"enabled": True}}),
    ],
)
def test_the_chart_has_the_objects_of_an_overlay(
    overlay: str, namespace: str, values: dict[str, Any]
) -> None:
    assert by_name(template(values, namespace=namespace)) == by_name(build(STANDALONE.parent / overlay))


OPTIONAL = sorted({path.name for path in (MANIFESTS / "components").iterdir()} - {"flow-control", "mpi"})


@pytest.mark.parametrize("component", OPTIONAL)
def test_a_component_has_the_same_objects_in_both(component: str, tmp_path: Path) -> None:
    """Without definitions, which take long to read: those of all components are compared together."""
    expected = without_definitions(tmp_path, "flow-control", "mpi", component)

    rendered = template({**enabled(component), "crds": {"install": False}})

    assert by_name(rendered) == expected


def test_all_components_have_the_same_objects_in_both(tmp_path: Path) -> None:
    expected = kustomize(
        tmp_path,
        namespace="rallypoint-system",
        resources=[STANDALONE],
        components=[MANIFESTS / "components" / name for name in OPTIONAL],
    )

    assert by_name(template(enabled(*OPTIONAL))) == by_name(expected)


def test_flow_control_can_be_left_out(tmp_path: Path) -> None:
    values = {"flowControl": {"enabled": False}, "crds": {"install": False}}

    assert by_name(template(values)) == without_definitions(tmp_path, "mpi")


def test_an_operator_for_one_namespace_has_the_objects_of_that_overlay(tmp_path: Path) -> None:
    overlay = kustomize(tmp_path, namespace="team", resources=[STANDALONE.parent / "namespaced"])

    assert by_name(template({"watchNamespace": "team"}, namespace="team")) == by_name(overlay)


def test_an_operator_can_serve_a_namespace_that_is_not_its_own() -> None:
    """The rights on jobs are in that namespace, those on Leases in its own, and nothing is cluster-scoped."""
    documents = template({"watchNamespace": "team", "mpiV1": {"enabled": True}}, namespace="operators")
    roles = {
        document["metadata"]["namespace"]: {
            resource for rule in document["rules"] for resource in rule["resources"]
        }
        for document in documents
        if document["kind"] == "Role"
    }
    bindings = [document for document in documents if document["kind"] == "RoleBinding"]

    assert {document["metadata"].get("namespace") for document in documents} == {"operators", "team"}
    assert roles["operators"] == {"leases", "events"}
    assert {"pods", "pytorchjobs", "secrets", "pods/exec"} <= roles["team"]
    assert not roles["team"] & {"leases", "queues", "customresourcedefinitions"}
    assert [binding["subjects"] for binding in bindings] == [
        [{"kind": "ServiceAccount", "name": "training-operator", "namespace": "operators"}]
    ] * 2
    assert "--namespace=team" in arguments(documents)


def test_the_lease_of_another_namespace_comes_with_the_rights_on_it() -> None:
    documents = template({"flags": {"leaderElectionNamespace": "kubeflow", "leaderElectionId": "other"}})
    (schema,) = (
        document for document in documents if document["metadata"]["name"] == "training-operator-leases"
    )
    role, binding = one(documents, "Role"), one(documents, "RoleBinding")

    for document in (role, binding):
        assert document["metadata"]["namespace"] == "kubeflow"
        assert document["metadata"]["name"] == "rallypoint-system-training-operator"
    assert binding["subjects"][0]["namespace"] == "rallypoint-system"
    assert role["rules"][1]["resourceNames"] == ["other", "mpi-operator"]
    assert schema["spec"]["rules"][0]["resourceRules"][0]["namespaces"] == ["kubeflow"]


def test_another_name_changes_all_objects_of_the_operator_and_what_refers_to_them() -> None:
    values = enabled(*(set(OPTIONAL) - {"user-roles", "mpi-flavor-policy"})) | {"fullnameOverride": "second"}
    documents = [document for document in template(values) if document["kind"] != CRDS]
    ours = [document for document in documents if not document["metadata"]["name"].startswith("kubeflow-")]

    assert {document["metadata"]["name"].partition("-")[0] for document in ours} == {"second"}
    names = {(document["kind"], document["metadata"]["name"]) for document in documents}
    for document in ours:
        if "roleRef" in document:
            assert (document["roleRef"]["kind"], document["roleRef"]["name"]) in names
        for subject in document.get("subjects", ()):
            assert subject["name"] == "second"
        if document["kind"] == "FlowSchema":
            assert document["spec"]["rules"][0]["subjects"][0]["serviceAccount"]["name"] == "second"
    pod = one(documents, "Deployment")["spec"]["template"]
    assert pod["spec"]["serviceAccountName"] == "second"
    assert pod["metadata"]["labels"]["control-plane"] == "kubeflow-training-operator"


def test_the_image_has_a_tag_or_a_digest() -> None:
    digest = "sha256:" + 64 * "0"

    def image(**values: str) -> str:
        pod = one(template({"image": values}), "Deployment")["spec"]["template"]["spec"]
        return str(pod["containers"][0]["image"])

    assert image(repository="registry.test/rallypoint") == f"registry.test/rallypoint:{source_version()}"
    assert image(repository="r", tag="main") == "r:main"
    assert image(repository="r", tag="main", digest=digest) == f"r@{digest}"


def test_values_of_the_pods_arrive_in_the_deployment() -> None:
    values: dict[str, Any] = {
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [],
        "priorityClassName": "system-cluster-critical",
    }
    own: dict[str, Any] = {
        "replicas": 1,
        "resources": {"limits": {"memory": "1Gi"}},
        "image": {"pullPolicy": "Always"},
        "podAnnotations": {"sidecar.istio.io/inject": "true", "note": "x"},
        "podLabels": {"app": "other", "team": "ml"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "extraVolumes": [{"name": "config", "configMap": {"name": "init"}}],
        "extraVolumeMounts": [{"name": "config", "mountPath": "/etc/config"}],
        "extraArgs": ["--events=compact"],
    }
    deployment = one(template(values | own), "Deployment")["spec"]
    template_ = deployment["template"]
    pod = template_["spec"]
    (container,) = pod["containers"]

    given = {name: value for name, value in values.items() if value}
    assert {name: pod.get(name) for name in given} == given
    assert "topologySpreadConstraints" not in pod
    assert deployment["replicas"] == 1
    assert template_["metadata"]["annotations"] == own["podAnnotations"]
    assert template_["metadata"]["labels"] == {
        "app": "training-operator",
        "control-plane": "kubeflow-training-operator",
        "team": "ml",
    }
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert container["imagePullPolicy"] == "Always"
    assert own["extraEnv"][0] in container["env"]
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp", "config"]
    assert [mount["name"] for mount in container["volumeMounts"]] == ["tmp", "config"]
    assert container["args"] == ["--leader-elect=true", "--events=compact"]


def test_every_flag_of_the_operator_has_a_value_that_it_accepts() -> None:
    """The schema knows each flag's type, and the operator's parser reads what the template makes of the value."""
    properties = json.loads((CHART / "values.schema.json").read_text())["properties"]["flags"]["properties"]
    samples: dict[str, Any] = {}
    for name, schema in properties.items():
        if schema.get("type") == "array":
            samples[name] = ["TFJob"]
        elif "enum" in schema:
            samples[name] = schema["enum"][-1]
        else:
            samples[name] = {"integer": 2_000_000, "number": 2.5, "boolean": True, "string": "some-text"}[
                schema["type"]
            ]

    documents = template(
        {"flags": samples, "mpiTopology": {"enabled": True}, "secureMetrics": {"enabled": True}}
    )

    parsed = vars(build_parser().parse_args(arguments(documents)))
    assert samples.keys() == flags().keys()
    expected = {
        action.dest: {False: "off", True: "on"}.get(samples[name], samples[name])
        if "enum" in properties[name]
        else samples[name]
        for name, action in flags().items()
    }
    assert {name: _as_value(parsed[name]) for name in expected} == expected


def _as_value(parsed: Any) -> Any:
    """A list that is one argument is one text in the values."""
    return ",".join(parsed) if isinstance(parsed, tuple) else parsed


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replica": 3}, "'replica' not allowed"),
        ({"replicas": "three"}, "at '/replicas': got string, want integer"),
        ({"flags": {"gangSchedulrName": "volcano"}}, "'gangSchedulrName' not allowed"),
        ({"flags": {"events": "some"}}, "at '/flags/events'"),
        ({"flags": {"controllerThreads": 0}}, "at '/flags/controllerThreads'"),
        ({"flags": {"enableScheme": ["TrainJob"]}}, "at '/flags/enableScheme/0'"),
        ({"image": {"digest": "sha256:1"}}, "at '/image/digest'"),
        ({"image": {"pullPolicy": "Sometimes"}}, "at '/image/pullPolicy'"),
        ({"fullnameOverride": "A_b"}, "at '/fullnameOverride'"),
        ({"watchNamespace": "a,b"}, "at '/watchNamespace'"),
        ({"networkPolicy": {"apiServerPorts": []}}, "at '/networkPolicy/apiServerPorts'"),
        ({"mpi": {"enabled": "yes"}}, "at '/mpi/enabled'"),
        ({"extraArgs": ["events"]}, "at '/extraArgs/0'"),
        ({"watchNamespace": "x", "userRoles": {"enabled": True}}, "userRoles.enabled: not possible with"),
        (
            {"watchNamespace": "x", "kueue": {"enabled": True}},
            "kueue.enabled: not possible with watchNamespace",
        ),
        (
            {"shadow": {"enabled": True}, "mxjob": {"enabled": True}},
            "mxjob.enabled: not possible with shadow",
        ),
        ({"shadow": {"enabled": True}, "watchNamespace": "x"}, "watchNamespace: not possible with shadow"),
        ({"mpi": {"enabled": False}, "mpiV1": {"enabled": True}}, "mpiV1.enabled: needs mpi.enabled"),
        ({"flags": {"mpiTopologyLabel": "rack"}}, "flags.mpiTopologyLabel: needs mpiTopology.enabled"),
        ({"flags": {"metricsCertPath": "/certs"}}, "flags.metricsCertPath: needs secureMetrics.enabled"),
        ({"flags": {"enableScheme": ["MXJob"]}}, "flags.enableScheme: MXJob needs mxjob.enabled"),
        (
            {"flags": {"enableScheme": ["MPIJob"]}, "mpi": {"enabled": False}},
            "flags.enableScheme: MPIJob needs mpi.enabled",
        ),
    ],
)
def test_a_bad_value_is_refused_by_its_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmFailed) as refused:
        template(values)

    assert message in str(refused.value)


def test_kinds_to_serve_follow_from_components() -> None:
    def served(**switches: bool) -> list[str]:
        values: dict[str, Any] = {name: {"enabled": switch} for name, switch in switches.items()}
        values["crds"] = {"install": False}
        return build_parser().parse_args(arguments(template(values))).enable_scheme or []

    others = ["PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob"]
    assert served() == []
    assert served(mpi=False) == others
    assert served(mxjob=True) == [*others, "MPIJob", "MXJob"]
    assert served(mpi=False, mxjob=True) == [*others, "MXJob"]


def test_prometheus_selects_objects_by_labels_of_values() -> None:
    documents = template(
        {"monitoring": {"serviceMonitor": True, "alerts": True, "labels": {"release": "prometheus"}}}
    )

    for kind in ("ServiceMonitor", "PrometheusRule"):
        assert one(documents, kind)["metadata"]["labels"] == {
            "app": "training-operator",
            "release": "prometheus",
        }


def test_helm_keeps_the_definitions_at_an_uninstall() -> None:
    documents = [document for document in template(enabled("mxjob")) if document["kind"] == CRDS]

    assert len(documents) == 7
    for document in documents:
        assert document["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not [document for document in template({"crds": {"install": False}}) if document["kind"] == CRDS]


def test_an_archive_has_the_same_bytes_each_time_and_the_objects_of_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = [
        main(["package", f"--output={tmp_path / name}", f"--version={source_version()}"])
        for name in ("first", "second")
    ]

    assert written == [0, 0]
    first, second = (Path(line) for line in capsys.readouterr().out.splitlines())
    assert first.name == f"rallypoint-{semantic(source_version())}.tgz"
    assert first.read_bytes() == second.read_bytes()
    assert template(chart=first) == template()
    with tarfile.open(first) as archive:
        assert archive.getnames()[0] == "rallypoint/Chart.yaml"


def test_an_archive_of_a_release_names_its_version_and_its_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = "sha256:" + 64 * "a"
    main(
        ["package", f"--output={tmp_path}", "--version=1.2.3rc4", "--image=registry.test/r", f"--digest={digest}"]
    )  # fmt: skip
    archive = Path(capsys.readouterr().out.strip())
    chart = yaml.safe_load(helm("show", "chart", archive))

    assert (chart["version"], chart["appVersion"]) == ("1.2.3-rc.4", "1.2.3rc4")
    pod = one(template(chart=archive), "Deployment")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"registry.test/r@{digest}"
