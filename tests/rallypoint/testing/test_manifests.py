"""The part of kustomize that our manifests use."""

from pathlib import Path

import pytest

from rallypoint.testing.manifests import build


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write(
        tmp_path / "base",
        kustomization="resources: [all.yaml]",
        all="""
kind: Deployment
metadata: {name: d}
spec: {template: {spec: {containers: [{name: a, image: ours}, {name: b, image: other}]}}}
---
kind: ClusterRoleBinding
metadata: {name: b}
subjects: [{kind: ServiceAccount, name: s}]
""",
    )


def test_an_overlay_sets_namespace_and_image_tags(base: Path, tmp_path: Path) -> None:
    overlay = write(
        tmp_path / "overlay",
        kustomization="{resources: [../base], namespace: here, images: [{name: ours, newTag: '2'}]}",
    )

    deployment, binding = build(overlay)

    assert deployment["metadata"] == {"name": "d", "namespace": "here"}
    assert [container["image"] for container in deployment["spec"]["template"]["spec"]["containers"]] == [
        "ours:2",
        "other",
    ]
    assert binding["metadata"] == {"name": "b"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "s", "namespace": "here"}]


def test_components_come_after_resources(base: Path, tmp_path: Path) -> None:
    schema = "{kind: FlowSchema, metadata: {name: f}}"
    write(tmp_path / "component", kustomization="{kind: Component, resources: [f.yaml]}", f=schema)
    overlay = write(
        tmp_path / "overlay",
        kustomization="{components: [../component], resources: [../base], namespace: here}",
    )

    assert [document["kind"] for document in build(overlay)] == [
        "Deployment",
        "ClusterRoleBinding",
        "FlowSchema",
    ]
    assert build(overlay)[-1]["metadata"] == {"name": "f"}


def test_config_maps_are_generated_from_files(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "maps",
        kustomization="""
resources: []
namespace: here
generatorOptions: {disableNameSuffixHash: true, labels: {a: b}}
configMapGenerator: [{name: m, files: [all.yaml]}]
""",
        all="text",
    )

    assert build(folder) == [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "m", "labels": {"a": "b"}, "namespace": "here"},
            "data": {"all.yaml": "text"},
        }
    ]


def test_a_generator_of_names_with_a_hash_is_an_error(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "maps",
        kustomization="{resources: [], configMapGenerator: [{name: m, files: [all.yaml]}]}",
        all="text",
    )

    with pytest.raises(ValueError, match="is not understood"):
        build(folder)


def test_an_unsupported_field_is_an_error(base: Path, tmp_path: Path) -> None:
    overlay = write(tmp_path / "overlay", kustomization="{resources: [../base], namePrefix: x-}")

    with pytest.raises(ValueError, match="namePrefix is not understood"):
        build(overlay)
