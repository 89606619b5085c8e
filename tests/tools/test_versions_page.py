"""The pages on versions name what the tests run with."""

import re
import tomllib
from pathlib import Path

import pytest

from rallypoint.testing.controlplane import programs
from tests.support.schedulers.programs import COSCHEDULING, KUEUE, VOLCANO
from tools.chart.__main__ import OLDEST_KUBERNETES
from tools.version import checked, sections, source_version

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def row(page: str, start: str) -> str:
    """Return the row of a table that starts with that."""
    (found,) = (
        line
        for line in (REFERENCE / page).read_text().splitlines()
        if re.match(rf"\| {re.escape(start)}\b", line)
    )
    return found


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


@pytest.mark.parametrize(
    ("version", "word"),
    [
        (programs.OLDEST_KUBERNETES, "the oldest"),
        (programs.KUBERNETES, "with each change"),
        (programs.NEWEST_KUBERNETES, "make test-newest"),
    ],
)
def test_the_table_of_kubernetes_has_the_versions_of_the_control_planes(version: str, word: str) -> None:
    assert word in row("versions.md", minor(version))


def test_the_chart_asks_for_the_oldest_kubernetes() -> None:
    assert OLDEST_KUBERNETES.startswith(f">={minor(programs.OLDEST_KUBERNETES)}.")


@pytest.mark.parametrize(
    ("program", "version"),
    [
        ("training-operator", programs.TRAINING_OPERATOR),
        ("mpi-operator", programs.MPI_OPERATOR),
        ("kubectl", minor(programs.KUBERNETES)),
        ("Kueue, its own integrations", KUEUE.version),
        ("Kueue, with `--kueue", KUEUE.version),
        ("Volcano", VOLCANO.version),
        ("scheduler-plugins", COSCHEDULING.version),
        ("kube-scheduler, native gangs", programs.NEWEST_KUBERNETES),
        ("Dynamic resource allocation", programs.NEWEST_KUBERNETES),
        ("HorizontalPodAutoscaler", programs.KUBERNETES),
        ("Helm", programs.HELM.split(".")[0]),
    ],
)
def test_the_table_of_programs_has_the_tested_versions(program: str, version: str) -> None:
    assert f"| {version.removeprefix('v')}" in row("compatibility.md", program)


def test_the_table_of_schedulers_names_all_their_tests() -> None:
    """And no test that does not exist."""
    _, _, section = (REFERENCE / "compatibility.md").read_text().partition("## Queues and gang schedulers\n")
    named = {
        (REFERENCE / link).resolve()
        for link in re.findall(r"\]\((\S+/tests/[^)]+)\)", section.partition("\n## ")[0])
    }

    assert named >= set((ROOT / "tests" / "schedulers").rglob("test_*.py"))
    assert [path for path in named if not path.is_file()] == []


def test_the_sdk_is_the_one_that_is_tested() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    (pin,) = (entry for entry in groups["sdk"] if isinstance(entry, str))

    assert f"| {pin.partition('==')[2]} |" in row("compatibility.md", "Kubeflow's training SDK")


def test_the_supported_releases_include_this_one() -> None:
    assert row("versions.md", minor(source_version()))


def test_the_sections_of_the_changelog_are_in_order() -> None:
    found = [checked(section.version) for section in sections((ROOT / "CHANGELOG.md").read_text())]

    assert found == sorted(set(found), reverse=True)
