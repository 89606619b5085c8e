"""The forge's workflows pass the real actionlint, which knows the syntax, the contexts and the inputs of common actions."""

import subprocess
from pathlib import Path

from rallypoint.testing.controlplane import binaries

WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"


def actionlint(*paths: Path) -> str:
    program = binaries.ensure(["actionlint"])["actionlint"]
    command = [str(program), "-no-color", "-oneline", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_the_workflows_have_no_mistake() -> None:
    paths = sorted(WORKFLOWS.glob("*.yml"))

    assert paths
    assert actionlint(*paths) == ""


def test_a_mistake_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    text = (WORKFLOWS / "release.yml").read_text()
    broken.write_text(text.replace("needs: [images, distributions]", "needs: [images, nothing]"))

    assert "nothing" in actionlint(broken)
