"""What the project promises about its own package: names nobody else ships, and locks that hold what it asks for."""

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = {"build": ["build"], "runtime": [], "dev": ["dev"], "demo": ["demo"]}


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
def test_a_lock_has_what_the_project_asks_for(lock: str) -> None:
    """If this fails, run ``make lock``."""
    wanted = set().union(*(group(name) for name in LOCKS[lock]))
    if lock != "build":
        wanted |= {normal(requirement) for requirement in PROJECT["project"]["dependencies"]}

    assert wanted - pins(lock).keys() == set()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes_and_no_address(lock: str) -> None:
    for name, entry in pins(lock).items():
        assert re.match(r"\S+==\S+", entry), name
        assert "--hash=sha256:" in entry, name
        assert "://" not in entry, name


def test_what_runs_in_the_image_is_what_is_tested() -> None:
    def version(entry: str) -> str:
        return entry.split()[0]

    tested = pins("dev")
    assert {version(entry) for entry in pins("runtime").values()} <= {
        version(entry) for entry in tested.values()
    }


def test_nobody_else_ships_our_import_names() -> None:
    """Another distribution with a package ``api`` or ``controller`` would shadow ours, or ours it."""
    shipped = packages_distributions()

    for name in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert set(shipped.get(name, [])) <= {PROJECT["project"]["name"]}
