"""The targets of the Makefile: each is a list of steps and creates its environment first."""

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
    "test-full",
    "coverage",
    "test-python",
    "test-oldest",
    "demo",
    "examples",
    "lint",
    "fmt",
    "crds",
    "manifests",
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
    "shadow",
    "monitoring",
    "ui",
    "upgrade",
    "explain",
    "version",
    "test-newest",
    "site",
    "image",
    "image-test",
    "image-lock",
    "workflows",
    "release",
    "release-check",
    "chart",
)


def steps(target: str, *variables: str) -> list[Step]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--dry-run", target, "PYTHON=python3", *variables],
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
def test_the_first_step_of_a_target_creates_its_environment(target: str) -> None:
    first, *rest = steps(target)

    folder, lock = first.command[2:4]
    assert (first.name, first.needed) == ("environment", True)
    assert (ROOT / lock).is_file()
    assert rest
    assert all(folder in step.command[0] for step in rest)


def test_tests_come_last_and_run_after_failed_checks() -> None:
    checks = [step.name for step in steps("test") if not step.needed]

    assert checks == [
        "mpi",
        "lint",
        "format",
        "types",
        "layers",
        "types, second opinion",
        "tests",
        "whole system",
    ]


@pytest.mark.parametrize("target", ["test", "test-full", "test-python"])
def test_the_cost_of_an_optional_step_names_existing_tests(target: str) -> None:
    costs = [step.cost for step in steps(target) if step.name in ("mpi", "browser")]

    for cost in costs:
        named = re.findall(r"tests/\S+\.py", cost)
        assert named
        assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_second_python_is_that_of_the_image() -> None:
    first, *_ = steps("test-python")

    assert first.command[2:] == [f".venv-{image_version()}", "requirements/dev.txt", image_version()]


def test_a_benchmark_compiles_the_go_operators_only_to_compare_with_them() -> None:
    compared = steps("bench", "COMPARE=go HEAD~1")
    with_commit = steps("bench", "COMPARE=HEAD~1")

    assert [step.name for step in compared] == ["environment", "control plane", "Go operators", "measurement"]
    assert compared[-1].command[2:] == ["bench", "controlplane", "--compare", "go", "--compare", "HEAD~1"]
    assert [step.name for step in with_commit] == ["environment", "control plane", "measurement"]
    assert steps("bench")[-1].command[2:] == ["bench", "controlplane"]


def test_the_makefile_has_only_these_targets() -> None:
    declared = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY:")]

    assert [line.split()[1:] for line in declared] == [list(TARGETS)]


def test_a_target_runs_every_test() -> None:
    tests = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    named = {word for target in TARGETS for step in steps(target) for word in step.command}
    paths = [path for path in (*options["testpaths"], *named) if path.startswith("tests/")]

    assert not [
        test for test in tests if not any(test == path or test.startswith(f"{path}/") for path in paths)
    ]
