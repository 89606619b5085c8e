"""The controller with the image's Python, packages and user, as a pod, with an API server of a managed cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest
import yaml
from packaging.requirements import Requirement

from controller.crds import all_crds
from controller.kinds import DEFAULT
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.environment import build
from rallypoint.testing.service import in_cluster_service, install
from tests.support.contained import USER
from tests.support.jobs import Jobs, job
from tools.python import Missing, image_version, interpreter

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 120.0
"""A command that should end but serves instead, ends with this error."""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0,
    reason="acts as another user in a mount namespace: Linux, root",
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment as in the image."""
    try:
        python = interpreter(image_version())
    except Missing as error:
        pytest.skip(str(error))
    return build(tmp_path_factory.mktemp("image") / "environment", python)


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    """As on managed clusters: certificates have no key identifiers, which Python 3.13 requires by default."""
    with ControlPlane(nodes=1, key_identifiers=False) as plane:
        install(plane)
        yield plane


def test_a_job_runs_on_a_cluster_whose_authority_has_no_key_identifiers(
    plane: ControlPlane, environment: Path
) -> None:
    jobs = Jobs(plane, "default")
    launcher = ("tests.support.contained", str(environment))
    with in_cluster_service(plane, launcher=launcher) as running:
        process = psutil.Process(running.process.pid)
        jobs.create("digits", job(workers=2))
        jobs.wait_for("digits", "Running")

        assert set(process.uids()) == set(process.gids()) == {USER}
        assert process.cmdline()[:3] == [f"{environment}/bin/python", "-m", "controller"]
        assert jobs.pods("digits") == ["digits-master-0", "digits-worker-0", "digits-worker-1"]


def test_the_environment_has_the_images_python_and_only_the_locked_packages(environment: Path) -> None:
    ask = (
        "import controller, importlib.metadata as m, json, sys; "
        "print('%d.%d' % sys.version_info[:2], controller.__file__); "
        "print(json.dumps([d.name.lower().replace('_', '-') for d in m.distributions()]))"
    )
    version_and_file, installed = run_python(environment, "-c", ask).stdout.splitlines()

    version, file = version_and_file.split()
    assert version == image_version()
    assert Path(file).is_relative_to(environment / "lib")
    assert set(json.loads(installed)) == {*locked_packages(), "rallypoint-operator"}


def test_the_definitions_are_printed_without_the_rest_of_the_project(environment: Path) -> None:
    printed = run_python(environment, "-m", "controller.crds").stdout

    assert list(yaml.load_all(printed, Loader=yaml.CSafeLoader)) == all_crds(kinds=DEFAULT)


def test_a_kubeconfig_with_a_login_is_rejected_with_the_name_of_the_missing_extra(
    environment: Path, plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig, file = yaml.safe_load(plane.kubeconfig().read_text()), tmp_path / "kubeconfig"
    kubeconfig["users"][0]["user"] = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "login"}
    }
    file.write_text(yaml.safe_dump(kubeconfig))

    done = run_python(environment, "-m", "controller", "--kubeconfig", str(file), check=False)

    assert done.returncode == 1
    assert "rallypoint-operator[kubeconfig]" in done.stdout + done.stderr


def run_python(environment: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the environment's Python in a folder where it finds nothing else of the project."""
    command = [str(environment / "bin" / "python"), *arguments]
    return subprocess.run(
        command, cwd="/", capture_output=True, text=True, check=check, timeout=TIMEOUT_SECONDS
    )


def locked_packages() -> set[str]:
    """Return the names in the operator's lock that apply to this platform."""
    requirements = [
        Requirement(line.removesuffix(" \\"))
        for line in (ROOT / "requirements" / "operator.txt").read_text().splitlines()
        if line[:1].isalpha()
    ]
    return {
        requirement.name
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate()
    }
