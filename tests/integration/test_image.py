"""The controller with the image's Python, packages and user, as a pod, beside an API server of a managed cluster."""

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from rallypoint.testing.contained import USER, build_environment
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.jobs import Jobs, job
from rallypoint.testing.service import in_cluster_service, install
from tools.python import Missing, image_version, interpreter

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
    return build_environment(tmp_path_factory.mktemp("image"), python)


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
    launcher = ("rallypoint.testing.contained", str(environment))
    with in_cluster_service(plane, launcher=launcher) as running:
        process = psutil.Process(running.process.pid)
        jobs.create("digits", job(workers=2))
        jobs.wait_for("digits", "Running")

        assert set(process.uids()) == set(process.gids()) == {USER}
        assert process.cmdline()[:3] == [f"{environment}/bin/python", "-m", "controller"]
        assert jobs.pods("digits") == ["digits-master-0", "digits-worker-0", "digits-worker-1"]


def test_the_environment_has_the_images_python_and_nothing_of_the_tests(environment: Path) -> None:
    ask = (
        "import controller, importlib.util as u, sys; "
        "print('%d.%d' % sys.version_info[:2], controller.__file__, u.find_spec('pytest'))"
    )
    done = subprocess.run(
        [environment / "bin" / "python", "-c", ask], cwd="/", capture_output=True, text=True, check=True
    )

    version, place, pytest_there = done.stdout.split()
    assert (version, pytest_there) == (image_version(), "None")
    assert Path(place).is_relative_to(environment / "lib")
