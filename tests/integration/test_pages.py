"""The commands of pages for administrators, run as the pages have them, against a real control plane with simulated nodes.

A block of commands runs here if no comment precedes it; tests/test_docs.py says which comments there are. The blocks of a page run in
their order, each in a shell of its own, in a folder that looks like a checkout. Files that a page shows, whose first line is their path,
are written there. Pods of the operator run without containers, so nothing reconciles jobs.
"""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
import yaml

from rallypoint.testing.controlplane import ControlPlane, binaries
from rallypoint.testing.controlplane.flags import TEST_CONTROLLERS
from rallypoint.testing.manifests import build
from tests.support.pages import PAGES_TO_RUN, commands_to_run, files

pytestmark = (
    pytest.mark.newest
)  # the page about tenants has a ValidatingAdmissionPolicy, which is stable since 1.30

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
FOLDERS = ("bench", "deploy", "examples", "manifests")
RELEASE = re.compile(r"https://github\.com/[\w-]+/[\w-]+/releases/download/v[\w.]+/")
"""Where a release's files are. A folder stands for it."""
CONTROLLERS = (
    *TEST_CONTROLLERS,
    "deployment-controller",
    "replicaset-controller",
    "disruption-controller",
    "resourcequota-controller",
)
SECONDS = 60.0
"""How long a block may take."""


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=2, scheduler=True, controllers=CONTROLLERS) as plane:
        for node in plane.request("GET", "/api/v1/nodes")[
            "items"
        ]:  # no controller removes the taint of new nodes
            plane.request("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": None}})
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
        yield plane


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of a release."""
    folder = tmp_path_factory.mktemp("release")
    (folder / "manifests.yaml").symlink_to(ROOT / "deploy" / "standalone.yaml")
    (folder / "crds.yaml").symlink_to(ROOT / "deploy" / "crds.yaml")
    documents = build(ROOT / "manifests" / "overlays" / "kubeflow")
    (folder / "manifests-kubeflow.yaml").write_text(yaml.dump_all(documents, Dumper=yaml.CSafeDumper))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Like a checkout, and like the folder that it is in, for files of the reader that refer to it."""
    for name in FOLDERS:
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "rallypoint").symlink_to(ROOT)
    return tmp_path


@pytest.mark.parametrize("name", PAGES_TO_RUN)
def test_the_commands_of_a_page_succeed(name: str, plane: ControlPlane, release: Path, folder: Path) -> None:
    page = HOW_TO / f"{name}.md"
    for path, text in files(page):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)

    for block in commands_to_run(page):
        script = RELEASE.sub(f"{release}/", block.text)
        done = run(script, plane, folder)
        assert done.returncode == 0, f"{page.name}:{block.line}\n{script}\n{done.stdout}\n{done.stderr}"
    if name == PAGES_TO_RUN[0]:
        run("kubectl apply -n team-a -f examples/pytorch/digits.yaml", plane, folder)


def run(script: str, plane: ControlPlane, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script with ``kubectl`` and ``rallypoint`` of this test, as an administrator of the cluster."""
    kubectl = binaries.ensure(["kubectl"])["kubectl"]
    path = os.pathsep.join((str(Path(sys.executable).parent), str(kubectl.parent), os.environ["PATH"]))
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | {"PATH": path, "HOME": str(folder), "KUBECONFIG": str(plane.kubeconfig())},
        stdin=subprocess.DEVNULL,
        timeout=SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
