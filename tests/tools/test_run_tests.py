"""What runs again after a failure, and what the exit status is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.run_tests import MAX_RETRIED, options

TOOL = Path(__file__).parents[2] / "tools/run_tests.py"
PASSES_THE_SECOND_TIME = """
from pathlib import Path
def test_slow():
    state = Path(__file__).with_name("ran")
    ran = state.exists()
    state.touch()
    assert ran
"""


def run(folder: Path, tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(tests)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, TOOL, *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_test_that_passes_alone_is_reported_as_flaky(tmp_path: Path) -> None:
    done = run(tmp_path, PASSES_THE_SECOND_TIME + "def test_other(): pass\n", "-n", "2", "--dist", "loadfile")

    assert done.returncode == 0
    assert "flaky: test_it.py::test_slow" in done.stdout
    assert done.stdout.count("test_other") == 0


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, PASSES_THE_SECOND_TIME + "def test_wrong(): assert False\n")

    assert done.returncode == 1
    assert "flaky: test_it.py::test_slow" in done.stdout
    assert "failed twice: test_it.py::test_wrong" in done.stdout


@pytest.mark.parametrize(
    ("tests", "status"),
    [
        pytest.param("def test(): pass\n", 0, id="all pass"),
        pytest.param("import missing_module\n", 2, id="a module cannot be imported"),
        pytest.param(
            "import pytest\n"
            f"@pytest.mark.parametrize('n', range({MAX_RETRIED + 1}))\n"
            "def test(n): assert False\n",
            1,
            id="more failures than run again",
        ),
        pytest.param("", 5, id="no tests"),
    ],
)
def test_other_outcomes_are_final(tmp_path: Path, tests: str, status: int) -> None:
    done = run(tmp_path, tests)

    assert done.returncode == status
    assert "again" not in done.stdout


def test_the_second_run_keeps_options_but_not_tests() -> None:
    given = ["-n", "2", "--dist", "loadfile", "--oldest", "tests/api", "--ignore=tests/x.py", "--cov=api"]

    assert options(given) == ["--oldest", "--ignore=tests/x.py"]
