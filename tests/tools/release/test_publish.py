"""What is uploaded and signed, in which order, and by which commands."""

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest

from tools.release import CHECKSUMS, IMAGE_SUMMARY, NOTES, PROVENANCE, ReleaseError, digests, publish
from tools.release.__main__ import main

VERSION = "0.2.0rc1"
PROGRAMS = ("cosign", "gh", "helm", "jq", "skopeo", "twine")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A release with files of the right names."""
    folder = tmp_path / "a folder" / VERSION
    folder.mkdir(parents=True)
    images = [
        {"digest": "sha256:1", "sbom": "sbom-amd64.cdx.json"},
        {"digest": "sha256:2", "sbom": "sbom-arm64.cdx.json"},
    ]
    name = f"ghcr.io/rallypoint-dev/rallypoint:{VERSION}"
    summary = {"name": name, "archive": "image.tar", "digest": "sha256:0", "images": images}
    (folder / IMAGE_SUMMARY).write_text(json.dumps(summary))
    for file in ("image.tar", "rallypoint-0.2.0-rc.1.tgz", f"rallypoint-{VERSION}.tar.gz", NOTES, PROVENANCE):
        (folder / file).write_text(file)
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder, without=()).items()]
    (folder / CHECKSUMS).write_text("".join(lines))
    return folder


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the calls of programs that do nothing else than to write them there."""
    log, programs = tmp_path / "calls", tmp_path / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        program = programs / name
        program.write_text(
            f'#!/bin/sh\necho {name} "$@" >> "{log}"\ncase "$*" in *inspect*) printf manifest;; esac\n'
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return log


def test_everything_is_pushed_before_it_is_signed_and_the_page_comes_last(folder: Path, calls: Path) -> None:
    publish.run(folder, [], dry_run=False)

    # Both ends of the pipe write, in any order.
    done = [
        line.replace(str(folder), "F")
        for line in calls.read_text().splitlines()
        if not line.startswith("jq ")
    ]
    image = "ghcr.io/rallypoint-dev/rallypoint"
    chart = "ghcr.io/rallypoint-dev/charts"
    assert done[:-1] == [
        f"skopeo copy --all --preserve-digests oci-archive:F/image.tar docker://{image}:{VERSION}",
        f"cosign sign --yes --recursive {image}@sha256:0",
        f"cosign attest --yes --type slsaprovenance1 --predicate - {image}@sha256:0",
        f"cosign attest --yes --type cyclonedx --predicate F/sbom-amd64.cdx.json {image}@sha256:1",
        f"cosign attest --yes --type cyclonedx --predicate F/sbom-arm64.cdx.json {image}@sha256:2",
        f"helm push F/rallypoint-0.2.0-rc.1.tgz oci://{chart}",
        f"skopeo inspect --raw docker://{chart}/rallypoint:0.2.0-rc.1",
        f"cosign sign --yes {chart}/rallypoint@sha256:{sha256(b'manifest').hexdigest()}",
        f"twine upload F/rallypoint-{VERSION}.tar.gz",
        f"cosign sign-blob --yes --bundle F/{CHECKSUMS}.sigstore.json F/{CHECKSUMS}",
    ]
    assert done[-1].startswith(
        f"gh release create v{VERSION} --verify-tag --title v{VERSION} --prerelease --notes-file F/{NOTES} F/{CHECKSUMS} "
    )
    uploaded = {path.name for path in folder.iterdir()} - {NOTES} | {f"{CHECKSUMS}.sigstore.json"}
    assert {name.removeprefix("F/") for name in done[-1].split()[10:]} == uploaded


def test_a_dry_run_prints_the_commands_and_runs_none(
    folder: Path, calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", str(folder), "distributions", "--dry-run"]) == 0
    assert capsys.readouterr().out == f"twine upload '{folder}/rallypoint-{VERSION}.tar.gz'\n"
    assert not calls.exists()


def test_a_changed_file_is_not_published(
    folder: Path, calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "image.tar").write_text("another")
    (folder / "more").touch()

    assert main(["publish", str(folder)]) == 1
    assert capsys.readouterr().err == f"error: {folder}: not the files of {CHECKSUMS}: image.tar, more\n"
    assert not calls.exists()


def test_a_failed_command_ends_it(folder: Path, calls: Path) -> None:
    (calls.parent / "programs" / "cosign").write_text("#!/bin/sh\nexit 3\n")

    with pytest.raises(ReleaseError, match="image: the command ended with 3: cosign sign "):
        publish.run(folder, ["image", "chart"], dry_run=False)
    assert "helm" not in calls.read_text()


def test_a_folder_without_checksums_is_no_release(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="is no release"):
        publish.run(tmp_path, [], dry_run=True)


def test_publishing_needs_nothing_but_python() -> None:
    """Jobs with credentials install nothing."""
    import subprocess
    import sys

    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        "import sys; sys.path.insert(0, '.'); import tools.release.__main__",
    ]
    root = Path(__file__).parents[3]
    assert subprocess.run(command, cwd=root, check=False).returncode == 0
