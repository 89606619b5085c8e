"""The ``deploy`` folder: up to date with ``manifests``, and complete."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rallypoint.testing.manifests import build
from tools.deploy import INSTALLATION, ROOT, SOURCES, installation, main, naming_kinds

DEPLOY = ROOT / "deploy"


def objects(path: Path) -> list[dict[str, Any]]:
    return list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))


def test_the_deploy_folder_is_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails, run ``make deploy``."""
    folder = tmp_path / "new" / "folder"

    for path, text in naming_kinds().items():
        assert (ROOT / path).read_text(encoding="utf-8") == text
    assert (ROOT / INSTALLATION).read_text(encoding="utf-8") == installation()
    assert main([str(folder)]) == 0
    made = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert {path.name: path.read_text(encoding="utf-8") for path in DEPLOY.glob("*.yaml")} == made
    assert capsys.readouterr().out.split() == [str(folder / name) for name in SOURCES]


@pytest.mark.parametrize("name", SOURCES)
def test_a_file_holds_the_objects_of_its_kustomization(name: str) -> None:
    assert objects(DEPLOY / name) == build(ROOT / SOURCES[name])


def test_namespaces_and_definitions_come_first() -> None:
    """kubectl applies in the order of the file: a namespace before what is in it, the definitions before their controller."""
    kinds = [document["kind"] for document in objects(DEPLOY / "standalone.yaml")]

    assert kinds[0] == "Namespace"
    assert kinds.index("CustomResourceDefinition") < kinds.index("Deployment")
