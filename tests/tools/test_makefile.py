"""The targets of the Makefile: that each is a list of steps, and that its own set-up comes first."""

import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from tools.python import image_version
from tools.steps import Step, parse

ROOT = Path(__file__).parents[2]
TARGETS = (
    "test",
    "coverage",
    "test-python",
    "test-oldest",
    "demo",
    "examples",
    "lint",
    "fmt",
    "crds",
    "deploy",
    "docs",
    "bench",
    "controlplane",
    "cluster",
    "cluster-down",
    "e2e",
    "e2e-full",
    "schedulers",
    "lock",
    "takeover",
    "upgrade",
)


def steps(target: str) -> list[Step]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--dry-run", target, "PYTHON=python3"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    interpreter, script, title, *texts = shlex.split(done.stdout.replace("\\\n", " "))
    assert [interpreter, script, title] == ["python3", "tools/steps.py", f"make {target}"]
    return [parse(text) for text in texts]


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_makes_its_environment_first(target: str) -> None:
    first, *rest = steps(target)

    folder, lock = first.command[2:4]
    assert (first.name, first.needed) == ("environment", True)
    assert (ROOT / lock).is_file()
    assert rest
    assert all(folder in step.command[0] for step in rest)


def test_the_tests_come_last_and_run_whatever_the_checks_say() -> None:
    checks = [step.name for step in steps("test") if not step.needed]

    assert checks == [
        "mpi",
        "browser",
        "lint",
        "format",
        "types",
        "layers",
        "types, second opinion",
        "tests",
        "whole system",
    ]


@pytest.mark.parametrize("target", ["test", "test-python"])
def test_what_an_optional_step_costs_names_tests_that_exist(target: str) -> None:
    costs = [step.cost for step in steps(target) if step.name in ("mpi", "browser")]

    for cost in costs:
        named = re.findall(r"tests/\S+\.py", cost)
        assert named
        assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_other_python_is_that_of_the_image() -> None:
    first, *_ = steps("test-python")

    assert first.command[2:] == [f".venv-{image_version()}", "requirements/dev.txt", image_version()]


def test_only_these_targets_are_offered() -> None:
    declared = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY:")]

    assert [line.split()[1:] for line in declared] == [list(TARGETS)]


def test_every_test_runs_by_some_target() -> None:
    tests = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    named = {word for target in TARGETS for step in steps(target) for word in step.command}
    paths = [path for path in (*options["testpaths"], *named) if path.startswith("tests/")]

    assert not [
        test for test in tests if not any(test == path or test.startswith(f"{path}/") for path in paths)
    ]
