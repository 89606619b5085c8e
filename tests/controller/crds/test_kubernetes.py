"""The shipped Kubernetes release, and how a release is read and written."""

from controller.crds.kubernetes import Release, shipped
from controller.crds.openapi import Schema


def test_a_release_survives_its_file() -> None:
    release = Release("v1.37.2", {"a.B": {"type": "string"}, "a.C": {"$ref": "a.B"}})

    assert Release.from_json(release.to_json()) == release


def test_a_release_has_a_definition_per_line() -> None:
    lines = Release("v1.37.2", {"a.B": {"type": "string"}, "a.C": {"$ref": "a.B"}}).to_json().splitlines()

    assert [line for line in lines if b"a." in line] == [
        b'    "a.B": {"type":"string"},',
        b'    "a.C": {"$ref":"a.B"}',
    ]


def test_the_shipped_template_is_keyed_as_the_original_s() -> None:
    pod = shipped().template["properties"]["spec"]
    container = pod["properties"]["containers"]["items"]

    assert pod["required"] == ["containers"]
    assert _keys(pod, "containers") == ["name"]
    assert _keys(container, "env") == ["name"]
    assert _keys(container, "ports") == ["containerPort", "protocol"]
    assert container["properties"]["ports"]["items"]["properties"]["protocol"]["default"] == "TCP"


def test_the_shipped_template_keeps_five_fields_of_metadata() -> None:
    metadata = shipped().template["properties"]["metadata"]

    assert sorted(metadata["properties"]) == ["annotations", "finalizers", "labels", "name", "namespace"]


def test_the_shipped_template_has_pod_fields_of_new_releases() -> None:
    """Fields that typed operators built against an older release drop; see docs of Kubernetes 1.34 and later."""
    pod = shipped().template["properties"]["spec"]["properties"]

    assert {"resourceClaims", "schedulingGates", "resources", "hostnameOverride"} <= pod.keys()
    assert "restartPolicyRules" in pod["containers"]["items"]["properties"]


def _keys(schema: Schema, name: str) -> object:
    return schema["properties"][name]["x-kubernetes-list-map-keys"]
