"""The two distributions: what each contains and requires, and the locks of their dependencies."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPERATOR: dict[str, Any] = tomllib.loads((ROOT / "deploy" / "operator" / "pyproject.toml").read_text())
LOCKS = {"build": ["build"], "operator": [], "tracing": [], "dev": ["dev"], "demo": ["demo"]}
NOT_IN_THE_IMAGE = {
    "common-expression-language",
    "hatchling",
    "kubernetes-asyncio",
    "nvidia-ml-py",
    "psutil",
    "pyroute2",
    "rallypoint",
    "rich",
}


def normal(requirement: str) -> str:
    """The distribution's name in a requirement, in the spelling that a lock uses."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def group(name: str) -> set[str]:
    names: set[str] = set()
    for entry in PROJECT["dependency-groups"][name]:
        names |= {normal(entry)} if isinstance(entry, str) else group(entry["include-group"])
    return names


def pins(lock: str) -> dict[str, str]:
    """Name and everything after it of each package in a lock."""
    text = re.sub(r"^\s*#.*$", "", (ROOT / "requirements" / f"{lock}.txt").read_text(), flags=re.MULTILINE)
    entries = re.split(r"\n(?=\S)", text.replace("\\\n", " ").strip())
    return {normal(entry): entry for entry in entries}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_satisfies_the_requirements_of_the_project(lock: str) -> None:
    """If this fails, run ``make lock``."""
    wanted = set().union(*(group(name) for name in LOCKS[lock]))
    if lock != "build":
        wanted |= {normal(requirement) for requirement in OPERATOR["project"]["dependencies"]}
    if lock in {"tracing", "dev"}:
        wanted |= {
            normal(requirement) for requirement in OPERATOR["project"]["optional-dependencies"]["tracing"]
        }
    if lock not in {"build", "operator", "tracing"}:
        wanted |= {normal(requirement) for requirement in PROJECT["project"]["dependencies"]}
        wanted |= {
            normal(requirement) for requirement in OPERATOR["project"]["optional-dependencies"]["kubeconfig"]
        }

    assert wanted - {"rallypoint-operator"} - pins(lock).keys() == set()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes_and_no_address(lock: str) -> None:
    for name, entry in pins(lock).items():
        assert re.match(r"\S+==\S+", entry), name
        assert "--hash=sha256:" in entry, name
        assert "://" not in entry, name


def test_the_image_contains_the_tested_versions() -> None:
    def version(entry: str) -> str:
        return entry.split()[0]

    tested = pins("dev")
    assert {version(entry) for entry in pins("operator").values()} <= {
        version(entry) for entry in tested.values()
    }


def test_an_image_with_traces_has_the_same_versions_and_opentelemetry_beside_them() -> None:
    more = {name: entry.split()[0] for name, entry in pins("tracing").items()}
    plain = {name: entry.split()[0] for name, entry in pins("operator").items()}

    assert plain.items() <= more.items()
    assert "opentelemetry-sdk" in more.keys() - plain.keys()
    assert NOT_IN_THE_IMAGE & more.keys() == set()


def test_the_image_has_only_what_the_operator_needs() -> None:
    assert NOT_IN_THE_IMAGE & pins("operator").keys() == set()


def test_both_distributions_have_the_same_version() -> None:
    version = OPERATOR["project"]["version"]

    assert PROJECT["project"]["version"] == version
    assert f"rallypoint-operator[kubeconfig]=={version}" in PROJECT["project"]["dependencies"]


def test_the_wheels_hold_every_file_of_their_packages_and_nothing_else(tmp_path: Path) -> None:
    for project, name, folders in (
        (ROOT / "deploy" / "operator", "rallypoint_operator", ("api", "controller")),
        (ROOT, "rallypoint", ("rallypoint", "bench")),
    ):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
        subprocess.run(command, cwd=project, check=True, capture_output=True)
        (wheel,) = tmp_path.glob(f"{name}-*.whl")
        with ZipFile(wheel) as archive:
            contents = {entry for entry in archive.namelist() if ".dist-info/" not in entry}
        tracked = subprocess.check_output(["git", "ls-files", *folders], cwd=ROOT, text=True).splitlines()

        assert contents == {file for file in tracked if not file.startswith("bench/results/")}


def test_no_other_distribution_has_our_import_names() -> None:
    """Another distribution with a package ``api`` or ``controller`` would shadow ours, or ours it."""
    shipped = packages_distributions()

    for name in ("api", "controller", "rallypoint", "bench"):
        assert set(shipped.get(name, [])) <= {"rallypoint", "rallypoint-operator"}
