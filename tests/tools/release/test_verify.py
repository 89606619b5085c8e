"""Verification finds what is missing, damaged or of another version in a release."""

import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from tools import registry
from tools.release import (
    CHECKSUMS,
    CRDS,
    IMAGE_SUMMARY,
    MANIFESTS,
    NOTES,
    PROVENANCE,
    WITHOUT_CRDS,
    ReleaseError,
    digests,
    provenance,
)
from tools.release.__main__ import main
from tools.release.verify import verify

VERSION = "1.2.3rc4"
CHART = "rallypoint-1.2.3-rc.4.tgz"
COMMIT = "4f0ec42"
DIGEST = "sha256:0"
WHEEL = f"rallypoint_operator-{VERSION}-py3-none-any.whl"


def archive(path: Path, files: Mapping[str, str]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))


def write_distributions(folder: Path, version: str = VERSION, commit: str = COMMIT) -> None:
    for name in ("rallypoint", "rallypoint_operator"):
        with ZipFile(folder / f"{name}-{VERSION}-py3-none-any.whl", "w") as wheel:
            info = f"{name}-{VERSION}.dist-info"
            wheel.writestr(f"{info}/METADATA", f"Name: {name}\nVersion: {version}\n")
            wheel.writestr(f"{info}/extra_metadata/COMMIT", f"{commit}\n")
        root = f"{name}-{VERSION}"
        metadata = f"Name: {name}\nVersion: {version}\n"
        archive(folder / f"{root}.tar.gz", {f"{root}/PKG-INFO": metadata, f"{root}/COMMIT": f"{commit}\n"})


def write_image(folder: Path, *, revision: str = COMMIT, inside: str = DIGEST) -> None:
    summary = {
        "name": f"{registry.IMAGE}:{VERSION}",
        "version": VERSION,
        "revision": revision,
        "archive": "image.tar",
        "digest": DIGEST,
        "images": [],  # tests/tools/image checks them
    }
    (folder / IMAGE_SUMMARY).write_text(json.dumps(summary))
    archive(folder / "image.tar", {"index.json": json.dumps({"manifests": [{"digest": inside}]})})


def write_manifests(folder: Path, digest: str = DIGEST) -> None:
    """The objects that verification looks at; the real ones are large."""
    definition = {"kind": "CustomResourceDefinition", "spec": {"group": "kubeflow.org"}}
    container = {"image": f"{registry.IMAGE}:{VERSION}@{digest}"}
    deployment = {"kind": "Deployment", "spec": {"template": {"spec": {"containers": [container]}}}}
    (folder / CRDS).write_text(yaml.safe_dump_all([definition]))
    for name in MANIFESTS:
        definitions = [] if name in WITHOUT_CRDS else [definition]
        (folder / name).write_text(yaml.safe_dump_all([*definitions, {"kind": "Service"}, deployment]))


def write_chart(folder: Path, *, version: str = "1.2.3-rc.4", digest: str = DIGEST) -> None:
    files = {
        "rallypoint/Chart.yaml": yaml.safe_dump({"version": version, "appVersion": VERSION}),
        "rallypoint/values.yaml": yaml.safe_dump(
            {"image": {"repository": registry.IMAGE, "tag": "", "digest": digest}}
        ),
    }
    archive(folder / CHART, files)


def seal(folder: Path) -> None:
    """Write the provenance and the checksums of what is there."""
    for name in (PROVENANCE, CHECKSUMS):
        (folder / name).unlink(missing_ok=True)
    (folder / PROVENANCE).write_text(provenance.statement(VERSION, COMMIT, digests(folder, without=())))
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder, without=()).items()]
    (folder / CHECKSUMS).write_text("".join(lines))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A release whose archives hold only what verification reads."""
    folder = tmp_path / VERSION
    folder.mkdir()
    write_manifests(folder)
    write_distributions(folder)
    write_image(folder)
    write_chart(folder)
    (folder / NOTES).write_text(f"kubectl apply -f {registry.download(VERSION, 'manifests.yaml')}\n")
    seal(folder)
    return folder


def test_a_whole_release_is_good(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}: ok\n"


def replace(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (remove(WHEEL), "distributions: found .*; expected .*"),
        (lambda folder: write_distributions(folder, version="1.2.2"), f"{WHEEL} has version 1.2.2"),
        (
            lambda folder: write_distributions(folder, commit="abc-dirty"),
            f"{WHEEL} is built from commit abc-dirty",
        ),
        (lambda folder: write_image(folder, revision="abc"), "image: it has version 1.2.3rc4 and commit abc"),
        (lambda folder: write_image(folder, inside="sha256:1"), "image: image.tar does not contain sha256:0"),
        (remove(IMAGE_SUMMARY), "image: FileNotFoundError"),
        (replace(IMAGE_SUMMARY, '"images": []', '"images": [{"archive": "a", "sbom": "b"}]'), "image: a: "),
        (replace("manifests.yaml", f"@{DIGEST}", ""), "manifests: manifests.yaml has the images"),
        (lambda folder: (folder / CRDS).write_text(""), "manifests: crds.yaml is empty"),
        (
            replace("manifests-kubeflow.yaml", "kubeflow.org", "example.com"),
            "manifests-kubeflow.yaml has other definitions",
        ),
        (lambda folder: write_chart(folder, version="1.2.2"), f"chart: {CHART} has version 1.2.2"),
        (lambda folder: write_chart(folder, digest="sha256:1"), f"chart: {CHART} has the image .*sha256:1"),
        (remove(CHART), "chart: FileNotFoundError"),
        (replace(NOTES, VERSION, "1.2.2"), "release notes: they do not say how to install"),
    ],
)
def test_a_release_that_was_sealed_with_a_mistake_is_refused(
    change: Callable[[Path], None], problem: str, folder: Path
) -> None:
    change(folder)
    seal(folder)

    with pytest.raises(ReleaseError, match=problem):
        verify(folder)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (replace(NOTES, "apply", "delete"), f"checksums: {NOTES} has [0-9a-f]{{64}}, listed is"),
        (remove(NOTES), f"checksums: {NOTES} has no file"),
        (lambda folder: (folder / "more").touch(), "checksums: more has .*, listed is nothing"),
        (remove(CHECKSUMS), "is no release: it has no checksums.txt"),
        (
            replace(PROVENANCE, '"version": "1.2.3rc4"', '"version": "1.2.2"'),
            "provenance: it is of another version",
        ),
        (replace(NOTES, "apply", "delete"), "provenance: its subjects are not the files"),
        (
            replace(PROVENANCE, "in-toto.io/Statement/v1", "in-toto.io/Statement/v0.1"),
            "provenance: it has the types",
        ),
    ],
)
def test_a_file_that_changed_after_the_sealing_is_found(
    change: Callable[[Path], None], problem: str, folder: Path
) -> None:
    change(folder)

    with pytest.raises(ReleaseError, match=problem):
        verify(folder)


def test_a_folder_that_is_no_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="version 'latest'"):
        verify(tmp_path / "latest")


def test_the_statement_names_the_source_and_the_locks() -> None:
    statement = json.loads(provenance.statement(VERSION, COMMIT, {"a.tar": "0" * 64}))
    definition = statement["predicate"]["buildDefinition"]
    source, *locks = definition["resolvedDependencies"]

    assert statement["subject"] == [{"name": "a.tar", "digest": {"sha256": "0" * 64}}]
    assert source == {
        "uri": f"git+{registry.REPOSITORY}@refs/tags/v{VERSION}",
        "digest": {"gitCommit": COMMIT},
    }
    assert {lock["name"] for lock in locks} >= {"requirements/build.txt", "requirements/operator.txt"}
