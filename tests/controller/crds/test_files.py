"""CustomResourceDefinitions as files; those in ``manifests`` are up to date."""

from pathlib import Path

import yaml

from controller.crds import all_crds
from controller.crds.files import file_name, to_yaml, write
from controller.kinds import DEFAULT

MANIFESTS = Path(__file__).parents[3] / "manifests" / "base" / "crds"


def test_a_file_holds_the_definition(tmp_path: Path) -> None:
    definitions = all_crds()

    paths = write(definitions, tmp_path / "new" / "folder")

    assert [yaml.load(path.read_text(), Loader=yaml.CSafeLoader) for path in paths] == definitions


def test_files_are_named_as_the_original_s() -> None:
    assert "kubeflow.org_pytorchjobs.yaml" in [file_name(definition) for definition in all_crds()]


def test_yaml_has_no_aliases() -> None:
    shared = {"type": "string"}

    assert yaml.safe_load(to_yaml({"a": shared, "b": shared})) == {"a": shared, "b": shared}
    assert "&" not in to_yaml({"a": shared, "b": shared})


def test_the_manifests_are_up_to_date(tmp_path: Path) -> None:
    """If this fails, run ``make deploy``."""
    made = {path.name: path.read_text() for path in write(all_crds(kinds=DEFAULT), tmp_path)}
    committed = {path.name: path.read_text() for path in MANIFESTS.glob("kubeflow.org_*.yaml")}

    assert committed == made


def test_kustomize_knows_every_file() -> None:
    kustomization = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())

    assert sorted(kustomization["resources"]) == sorted(
        path.name for path in MANIFESTS.glob("kubeflow.org_*.yaml")
    )
