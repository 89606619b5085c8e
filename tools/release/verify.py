"""Checks the files of a release: that all are there, whole, of one version and one commit, and point at one another."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from email.parser import BytesParser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import yaml

from tools import registry, version
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
from tools.release.publish import read_checksums


def verify(folder: Path) -> None:
    """Check a release; the folder's name is its version.

    Raises:
        ReleaseError: with everything that is wrong.
    """
    release = folder.name
    try:
        version.checked(release)
    except ValueError as error:
        raise ReleaseError(f"{folder}: {error}") from error
    problems = [
        f"{name}: {problem}" for name, check in _CHECKS.items() for problem in _run(check, folder, release)
    ]
    if problems:
        raise ReleaseError(f"{folder} is no good release:\n" + "\n".join(problems))


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


_Check = Callable[[Path, str], Iterator[str]]


def _run(check: _Check, folder: Path, release: str) -> Iterator[str]:
    try:
        yield from check(folder, release)
    except (OSError, KeyError, ValueError, tarfile.TarError, yaml.YAMLError) as error:
        # A damaged or missing file; ValueError includes what JSON and ZIP files raise.
        yield f"{type(error).__name__}: {error}"


def _checksums(folder: Path, release: str) -> Iterator[str]:
    found = digests(folder, without=(CHECKSUMS,))
    listed = read_checksums(folder)
    for name in sorted(found.keys() | listed.keys()):
        if found.get(name) != listed.get(name):
            yield f"{name} has {found.get(name, 'no file')}, listed is {listed.get(name, 'nothing')}"


def _distributions(folder: Path, release: str) -> Iterator[str]:
    expected = {
        f"{name}-{release}{suffix}"
        for name in ("rallypoint", "rallypoint_operator")
        for suffix in ("-py3-none-any.whl", ".tar.gz")
    }
    found = {path.name for pattern in ("*.whl", "*.tar.gz") for path in folder.glob(pattern)}
    if found != expected:
        yield f"found {', '.join(sorted(found))}; expected {', '.join(sorted(expected))}"
    commit = source_commit(folder)
    for name in sorted(found & expected):
        metadata, built_from = _metadata(folder / name)
        if metadata != release:
            yield f"{name} has version {metadata} in its metadata"
        if built_from != commit:
            yield f"{name} is built from commit {built_from}, the release from {commit}"


def _metadata(path: Path) -> tuple[str, str]:
    """Return version and commit in a wheel or a source distribution."""
    if path.suffix == ".whl":
        with ZipFile(path) as wheel:
            files = {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" in name}
        ends = ("/METADATA", "/extra_metadata/COMMIT")
    else:
        root = path.name.removesuffix(".tar.gz")
        ends = (f"{root}/PKG-INFO", f"{root}/COMMIT")
        with tarfile.open(path) as archive:
            files = {name: _read(archive, name) for name in ends}
    metadata, commit = (
        next(content for name, content in files.items() if name.endswith(end)) for end in ends
    )
    return str(BytesParser().parsebytes(metadata)["Version"]), commit.decode().strip()


def _image(folder: Path, release: str) -> Iterator[str]:
    summary = read_json(folder / IMAGE_SUMMARY)
    if summary["name"] != (expected := f"{registry.IMAGE}:{release}"):
        yield f"its name is {summary['name']}, expected {expected}"
    if (summary["version"], summary["revision"]) != (release, commit := source_commit(folder)):
        yield f"it has version {summary['version']} and commit {summary['revision']}, the release {release} and {commit}"
    with tarfile.open(folder / summary["archive"]) as archive:
        index = json.loads(_read(archive, "index.json"))
    if [entry["digest"] for entry in index["manifests"]] != [summary["digest"]]:
        yield f"{summary['archive']} does not contain {summary['digest']}"
    for described in summary["images"]:
        yield from _check_archive(folder / described["archive"], folder / described["sbom"])
        bill = read_json(folder / described["sbom"])
        if (found := bill["metadata"]["component"]["version"]) != release:
            yield f"{described['sbom']} is of version {found}"


def _check_archive(archive: Path, bill: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "tools.image", "check", str(archive), str(bill)]
    done = subprocess.run(command, cwd=version.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"{archive.name}: {done.stderr.strip() or done.returncode}"


def _manifests(folder: Path, release: str) -> Iterator[str]:
    expected = pinned_image(folder, release)
    definitions = _documents(folder / CRDS)
    if not definitions:
        yield f"{CRDS} is empty"
    for name in MANIFESTS:
        documents = _documents(folder / name)
        images = [
            container["image"]
            for document in documents
            if document["kind"] == "Deployment"
            for container in document["spec"]["template"]["spec"]["containers"]
        ]
        if images != [expected]:
            yield f"{name} has the images {images}, expected {expected}"
        found = [document for document in documents if document["kind"] == "CustomResourceDefinition"]
        if found != ([] if name in WITHOUT_CRDS else definitions):
            yield f"{name} has other definitions than {CRDS}"


def _chart(folder: Path, release: str) -> Iterator[str]:
    name = f"rallypoint-{version.semantic(release)}.tgz"
    with tarfile.open(folder / name) as archive:
        chart = yaml.safe_load(_read(archive, "rallypoint/Chart.yaml"))
        values = yaml.safe_load(_read(archive, "rallypoint/values.yaml"))
    if (chart["version"], chart["appVersion"]) != (version.semantic(release), release):
        yield f"{name} has version {chart['version']} and appVersion {chart['appVersion']}"
    described = values["image"]
    found = f"{described['repository']}:{described['tag'] or chart['appVersion']}@{described['digest']}"
    if found != (expected := pinned_image(folder, release)):
        yield f"{name} has the image {found}, expected {expected}"


def _provenance(folder: Path, release: str) -> Iterator[str]:
    statement = read_json(folder / PROVENANCE)
    if (statement["_type"], statement["predicateType"]) != (provenance.STATEMENT, provenance.PREDICATE):
        yield f"it has the types {statement['_type']} and {statement['predicateType']}"
    if statement["predicate"]["buildDefinition"]["externalParameters"]["version"] != release:
        yield "it is of another version"
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    if subjects != digests(folder, without=(CHECKSUMS, PROVENANCE)):
        yield "its subjects are not the files of the release"


def _notes(folder: Path, release: str) -> Iterator[str]:
    if registry.download(release, next(iter(MANIFESTS))) not in (folder / NOTES).read_text(encoding="utf-8"):
        yield "they do not say how to install this version"


_CHECKS: dict[str, _Check] = {
    "checksums": _checksums,
    "distributions": _distributions,
    "image": _image,
    "manifests": _manifests,
    "chart": _chart,
    "provenance": _provenance,
    "release notes": _notes,
}


def source_commit(folder: Path) -> str:
    """Return the commit that the provenance names."""
    source, *_ = read_json(folder / PROVENANCE)["predicate"]["buildDefinition"]["resolvedDependencies"]
    commit: str = source["digest"]["gitCommit"]
    return commit


def pinned_image(folder: Path, release: str) -> str:
    """Return the name of the image by version and digest."""
    return f"{registry.IMAGE}:{release}@{read_json(folder / IMAGE_SUMMARY)['digest']}"


def _documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is not a file")
    return file.read()
