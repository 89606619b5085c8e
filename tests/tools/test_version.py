"""The version has one source, and every place that repeats it agrees."""

import datetime
import shutil
from pathlib import Path

import pytest

from tools.version import (
    CHANGELOG,
    PLACES,
    ROOT,
    checked,
    in_form,
    main,
    occurrences,
    sections,
    semantic,
    source_version,
    with_section,
    write,
)

TODAY = datetime.date(2026, 12, 1)


def test_every_place_agrees_with_the_source() -> None:
    """If this fails, run ``make version TO=`` the version of ``pyproject.toml``."""
    version = source_version()

    assert [found for found in occurrences() if found.version != in_form(found, version)] == []


def test_the_changelog_has_a_section_for_the_version() -> None:
    newest = sections((ROOT / CHANGELOG).read_text(encoding="utf-8"))[0]

    assert newest.version == checked(source_version()).base_version


@pytest.mark.parametrize(
    ("version", "of_chart"),
    [
        ("0.2.0", "0.2.0"),
        ("0.2.0rc1", "0.2.0-rc.1"),
        ("1.0.0b12", "1.0.0-b.12"),
        ("0.3.0.dev0", "0.3.0-dev.0"),
    ],
)
def test_a_chart_has_the_version_in_the_form_of_semantic_versioning(version: str, of_chart: str) -> None:
    assert semantic(version) == of_chart


@pytest.mark.parametrize("version", ["", "v0.2.0", "0.2.0-rc1", "0.2", "0.2.0+local", "latest"])
def test_an_odd_version_is_refused_by_name(version: str) -> None:
    with pytest.raises(ValueError, match=f"version '{version}'".replace("+", r"\+")):
        checked(version)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the files that name the version, and pages that name it in every form."""
    for path in {found.path for found in occurrences()} | {ROOT / CHANGELOG}:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    (tmp_path / "docs").mkdir(exist_ok=True)
    version = source_version()
    (tmp_path / "docs" / "page.md").write_text(
        f"https://forge.example/releases/download/v{version}/manifests.yaml, `make release VERSION={version}`.\n"
        f"release.yml@refs/tags/v{version}, ghcr.io/rallypoint-dev/rallypoint:{version}@sha256:0\n"
        f"helm install --version {semantic(version)} and v{version} alone.\n"
    )
    return tmp_path


def test_another_version_is_written_everywhere(copied: Path) -> None:
    old = source_version()
    write("1.2.3rc4", copied, today=TODAY)

    found = list(occurrences(copied))
    assert {in_form(place, "1.2.3rc4") == place.version for place in found} == {True}
    assert len(found) == len(list(occurrences())) + 5
    assert (copied / "docs" / "page.md").read_text() == (
        "https://forge.example/releases/download/v1.2.3rc4/manifests.yaml, `make release VERSION=1.2.3rc4`.\n"
        "release.yml@refs/tags/v1.2.3rc4, ghcr.io/rallypoint-dev/rallypoint:1.2.3rc4@sha256:0\n"
        f"helm install --version 1.2.3-rc.4 and v{old} alone.\n"
    )
    assert write("1.2.3rc4", copied, today=TODAY) == []


def test_every_place_is_found_somewhere() -> None:
    """A place that no file has any more would go unnoticed; pages may come and go."""
    for place in PLACES:
        if place.files not in ("README.md", "docs/**/*.md"):
            assert any(found.path.match(place.files) for found in occurrences()), place


def test_a_candidate_opens_the_section_of_its_release_and_the_release_dates_it() -> None:
    before = "# Changelog\n\nFor people.\n\n## 0.1.0 – 2026-11-27\n\nOld.\n"

    candidate = with_section(before, "0.2.0rc1", TODAY)
    assert candidate == before.replace("## 0.1.0", "## 0.2.0 – unreleased\n\n## 0.1.0")
    assert with_section(candidate, "0.2.0rc2", TODAY) == candidate
    released = with_section(candidate, "0.2.0", TODAY)
    assert released == candidate.replace("unreleased", "2026-12-01")
    assert [(section.version, section.date) for section in sections(released)] == [
        ("0.2.0", "2026-12-01"),
        ("0.1.0", "2026-11-27"),
    ]


@pytest.mark.parametrize("argument", ["TO=", "TO=v1"])
def test_a_missing_or_odd_version_changes_nothing(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([argument]) == 2
    assert capsys.readouterr().err.startswith("error: ")
