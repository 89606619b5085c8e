"""A release that depends on who builds it, and where, is found."""

import subprocess
from pathlib import Path

import pytest

from tools.release import ReleaseError, twice

MAKEFILE = """
release:
	mkdir -p dist/$(VERSION)
	echo same > dist/$(VERSION)/same
	%s
"""


def repository(folder: Path, command: str) -> Path:
    (folder / "Makefile").write_text(MAKEFILE % command)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for arguments in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message=first"]):
        subprocess.run(["git", "-C", str(folder), *arguments], check=True)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "pwd > dist/$(VERSION)/other",
        'echo "$$HOME" > dist/$(VERSION)/other',
        "umask > dist/$(VERSION)/other",
        "date -d @0 > dist/$(VERSION)/other",
        "touch dist/$(VERSION)/other && stat --format=%%a dist/$(VERSION)/other >> dist/$(VERSION)/other",
        'test "$$TZ" = Pacific/Kiritimati || touch dist/$(VERSION)/other',
    ],
)
def test_what_depends_on_the_place_is_named(command: str, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"not the same in both clones: other$"):
        twice.compare("1.0.0", repository(tmp_path, command % ()))


def test_what_depends_on_the_commit_alone_is_equal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somebody's")
    twice.compare("1.0.0", repository(tmp_path, 'echo "$${XDG_CACHE_HOME-none}" > dist/$(VERSION)/other'))

    assert "2 files, equal in both clones" in capfd.readouterr().out


def test_a_commit_during_the_builds_is_in_neither(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    commit = 'git -C "$$(git config remote.origin.url)" -c user.name=a -c user.email=a@b.c commit --allow-empty -qm x'
    twice.compare("1.0.0", repository(tmp_path, f"{commit}; git rev-parse HEAD > dist/$(VERSION)/commit"))

    assert "2 files, equal in both clones" in capfd.readouterr().out


def test_a_failed_build_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"`make release VERSION=1\.0\.0 .*` ended with 2"):
        twice.compare("1.0.0", repository(tmp_path, "false"))
