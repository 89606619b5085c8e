"""Builds the files of a release into ``dist/VERSION``. Each is the same, byte by byte, wherever the commit is built."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from controller.crds.files import to_yaml
from rallypoint.testing import manifests
from tools import registry, version
from tools.release import (
    CHECKSUMS,
    CRDS,
    IMAGE_SUMMARY,
    MANIFESTS,
    NOTES,
    PROVENANCE,
    ReleaseError,
    digests,
    provenance,
    verify,
)
from tools.version import ROOT

PROJECTS = (ROOT / "deploy" / "operator", ROOT)
_EMPTY = re.compile(r"^### .*\n+(?=### |\Z)", re.MULTILINE)
"""A heading of the changelog without anything below it."""
_UNQUALIFIED = "rallypoint"
"""The name of the image in ``manifests``."""


def build(release: str) -> Path:
    """Build, verify and return the folder of a release.

    Raises:
        ReleaseError: this checkout is not one of the release, or a file cannot be built or verified.
    """
    commit = check_source(release)
    folder = ROOT / "dist" / release
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder.parent) as scratch:
        made = Path(scratch, release)
        made.mkdir()
        environment = _environment(commit)
        _distributions(made, environment)
        (wheel,) = made.glob("rallypoint_operator-*.whl")
        image, options = f"{registry.IMAGE}:{release}", [f"--output={made}", f"--version={release}"]
        _tool("image", "build", *options, f"--wheel={wheel}", f"--name={image}", environment=environment)
        digest = verify.read_json(made / IMAGE_SUMMARY)["digest"]
        for name, source in {**MANIFESTS, CRDS: Path("manifests/base/crds")}.items():
            (made / name).write_text(render(source, f"{image}@{digest}", release), encoding="utf-8")
        chosen = [f"--image={registry.IMAGE}", f"--digest={digest}"]
        _tool("chart", "package", *options, *chosen, environment=environment)
        (made / NOTES).write_text(notes(release), encoding="utf-8")
        statement = provenance.statement(release, commit, digests(made, without=()))
        (made / PROVENANCE).write_text(statement, encoding="utf-8")
        lines = [f"{sha256}  {name}\n" for name, sha256 in digests(made, without=()).items()]
        (made / CHECKSUMS).write_text("".join(lines), encoding="utf-8")
        verify.verify(made)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.relative_to(ROOT)}")
    return folder


def check_source(release: str, root: Path = ROOT) -> str:
    """Return the commit of the checkout if it is one to build the release from.

    Raises:
        ReleaseError: it has changes, another version, no section in the changelog, or the tag is at another commit.
    """
    try:
        version.checked(release)
    except ValueError as error:
        raise ReleaseError(str(error)) from error
    for found in version.occurrences(root):
        if found.version != version.in_form(found, release):
            name = found.path.relative_to(root)
            raise ReleaseError(
                f"VERSION={release}: {name} has version {found.version}. Run `make version TO={release}` and commit"
            )
    if changes := _git(root, "status", "--porcelain"):
        raise ReleaseError(f"the checkout has changes; commit or remove them:\n{changes}")
    section(release, root)
    commit = _git(root, "rev-parse", "HEAD")
    tagged = _git(root, "rev-parse", "--verify", "--quiet", f"refs/tags/v{release}^{{commit}}", check=False)
    if tagged not in ("", commit):
        raise ReleaseError(f"the tag v{release} is at commit {tagged}, and the checkout at {commit}")
    return commit


def section(release: str, root: Path = ROOT) -> version.Section:
    """Return the section of the changelog for a release; a candidate has that of its release.

    Raises:
        ReleaseError: there is none, it is empty, or it has no date although this is no candidate.
    """
    parsed = version.checked(release)
    changelog = (root / version.CHANGELOG).read_text(encoding="utf-8")
    for found in version.sections(changelog):
        if found.version == parsed.base_version:
            if not found.text.strip():
                raise ReleaseError(f"{version.CHANGELOG}: the section {found.version} is empty")
            if found.date == version.UNRELEASED and not parsed.is_prerelease:
                raise ReleaseError(
                    f"{version.CHANGELOG}: the section {found.version} has no date. Run `make version TO={release}` and commit"
                )
            return found
    raise ReleaseError(
        f"{version.CHANGELOG}: no section {parsed.base_version}. Run `make version TO={release}`"
    )


def notes(release: str, root: Path = ROOT) -> str:
    """Return the release notes: how to install and verify, and the section of the changelog, with links that work anywhere."""
    from deploy.operator.hatch_build import absolute_links

    manifests_url = registry.download(release, "manifests.yaml")
    chart = f"oci://{registry.CHARTS}/rallypoint --version {version.semantic(release)} --namespace rallypoint-system --create-namespace"
    install = (
        f"    kubectl apply --server-side -f {manifests_url}\n\n"
        f"or `helm install rallypoint {chart}`; [install](docs/how-to/install.md) has all ways, "
        "[verify](docs/how-to/verify.md) says how to check signatures and checksums.\n\n"
    )
    filled = _EMPTY.sub("", section(release, root).text)
    return absolute_links(install + filled.rstrip() + "\n", registry.REPOSITORY, release)


def render(source: Path, image: str, release: str) -> str:
    """Return the objects of a kustomization as one file, with this image."""
    documents = manifests.build(ROOT / source)
    for document in documents:
        for container in containers(document):
            if container["image"].partition(":")[0] == _UNQUALIFIED:
                container["image"] = image
    header = f"# Rallypoint {release}: {source.as_posix()} of {registry.REPOSITORY}/tree/v{release}\n"
    return header + "".join(map(to_yaml, documents))


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of a Deployment; none of another object."""
    found: list[dict[str, Any]] = (
        document["spec"]["template"]["spec"]["containers"] if document["kind"] == "Deployment" else []
    )
    return found


def _distributions(folder: Path, environment: dict[str, str]) -> None:
    for project in PROJECTS:
        command = [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "-t",
            "sdist",
            "-t",
            "wheel",
            "-d",
            str(folder),
        ]
        _run(command, project, environment)
    built = [str(path) for path in sorted(folder.iterdir())]
    _run([sys.executable, "-m", "twine", "check", "--strict", *built], ROOT, environment)


def _tool(name: str, *arguments: str, environment: dict[str, str]) -> None:
    _run([sys.executable, "-m", f"tools.{name}", *arguments], ROOT, environment)


def _run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    print(f"==> {' '.join(command[1:])}", flush=True)
    if status := subprocess.run(command, cwd=folder, env=environment, check=False).returncode:
        raise ReleaseError(f"`{' '.join(command[1:])}` ended with {status}")


def _environment(commit: str) -> dict[str, str]:
    """Return this environment with all that could leave traces in a file set to fixed values."""
    return os.environ | {
        "SOURCE_DATE_EPOCH": _git(ROOT, "show", "--no-patch", "--format=%ct", commit),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(ROOT),
    }


def _git(root: Path, *arguments: str, check: bool = True) -> str:
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise ReleaseError(f"`git {' '.join(arguments)}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()
