"""From which checkouts a release is built, and what its notes say."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.release import ReleaseError, build
from tools.version import CHANGELOG, ROOT, occurrences, source_version

VERSION = source_version()


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments]
    return subprocess.check_output(command, text=True, stderr=subprocess.STDOUT).strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that name the version."""
    for path in {found.path for found in occurrences()} | {ROOT / CHANGELOG}:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=first")
    return tmp_path


def test_a_clean_checkout_of_the_version_is_a_source(checkout: Path) -> None:
    assert build.check_source(VERSION, checkout) == git(checkout, "rev-parse", "HEAD")
    git(checkout, "tag", f"v{VERSION}")
    assert build.check_source(VERSION, checkout) == git(checkout, "rev-parse", "HEAD")


def test_a_file_that_is_not_committed_is_named(checkout: Path) -> None:
    (checkout / "new.py").touch()

    with pytest.raises(ReleaseError, match=r"the checkout has changes.*\n\?\? new\.py"):
        build.check_source(VERSION, checkout)


@pytest.mark.parametrize("version", ["9.9.9", "9.9.9rc1"])
def test_another_version_is_refused_with_the_file_and_the_remedy(version: str, checkout: Path) -> None:
    remedy = f"VERSION={version}: pyproject.toml has version {VERSION}. Run `make version TO={version}`"
    with pytest.raises(ReleaseError, match=remedy):
        build.check_source(version, checkout)


def test_an_odd_version_is_refused(checkout: Path) -> None:
    with pytest.raises(ReleaseError, match="version 'latest'"):
        build.check_source("latest", checkout)


def test_a_tag_at_another_commit_is_refused(checkout: Path) -> None:
    git(checkout, "tag", f"v{VERSION}")
    git(checkout, "commit", "--quiet", "--allow-empty", "--message=second")

    with pytest.raises(ReleaseError, match=f"the tag v{VERSION} is at commit"):
        build.check_source(VERSION, checkout)


@pytest.mark.parametrize(
    ("headings", "version", "problem"),
    [
        ("## 0.1.0 – 2026-11-27\n\nOld.\n", "0.2.0", "no section 0.2.0"),
        ("## 0.2.0 – unreleased\n\nNew.\n", "0.2.0", "the section 0.2.0 has no date"),
        ("## 0.2.0 – 2026-12-01\n\n## 0.1.0 – 2026-11-27\n\nOld.\n", "0.2.0", "the section 0.2.0 is empty"),
    ],
)
def test_the_changelog_must_have_the_section(
    headings: str, version: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / CHANGELOG).write_text(f"# Changelog\n\n{headings}")

    with pytest.raises(ReleaseError, match=problem):
        build.section(version, tmp_path)


def test_a_candidate_has_the_section_of_its_release(tmp_path: Path) -> None:
    (tmp_path / CHANGELOG).write_text(
        "## 0.2.0 – unreleased\n\n### Breaking\n\n### Added\n\nNew: [page](docs/README.md).\n\n### Fixed\n\n## 0.1.0 – 2026-11-27\n\nOld.\n"
    )

    notes = build.notes("0.2.0rc1", tmp_path)

    assert "Old." not in notes
    assert "Breaking" not in notes
    assert notes.endswith(
        "\n\n### Added\n\nNew: [page](https://github.com/rallypoint-dev/rallypoint/blob/v0.2.0rc1/docs/README.md).\n"
    )
    assert "/releases/download/v0.2.0rc1/manifests.yaml" in notes
    assert "rallypoint --version 0.2.0-rc.1" in notes


def test_manifests_name_the_image_by_version_and_digest() -> None:
    text = build.render(Path("manifests/overlays/standalone"), "example.com/rallypoint:1@sha256:0", "1.0.0")

    assert "image: rallypoint" not in text
    assert [line.strip() for line in text.splitlines() if "image: example.com" in line] == [
        "image: example.com/rallypoint:1@sha256:0"
    ]
    assert text.startswith("# Rallypoint 1.0.0: manifests/overlays/standalone of https://github.com/")
