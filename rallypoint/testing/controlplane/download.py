"""Downloads programs of the control plane where their projects publish them, as envtest does.

etcd, kube-apiserver and kubectl come in envtest's archive for the platform, the other Kubernetes programs from the
Kubernetes release, kwok from its own. Everything is held against a published checksum before it gets its name. A
download that does not work is not an error: the programs are then compiled.
"""

import hashlib
import io
import json
import platform
import shutil
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml

from rallypoint.testing.controlplane.programs import KUBERNETES, KWOK

Say = Callable[[str], None]

_TIMEOUT_SECONDS = 20.0
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_IN_ARCHIVE = frozenset({"etcd", "kube-apiserver", "kubectl"})
_IN_RELEASE = frozenset({"kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"})


class Unusable(Exception):
    """A download exists and is not what it should be."""


@dataclass(frozen=True, slots=True)
class Publishers:
    """The URL at which each project publishes; tests set their own server."""

    envtest: str = (
        "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"
    )
    kubernetes: str = "https://dl.k8s.io"
    kwok: str = f"https://api.github.com/repos/kubernetes-sigs/kwok/releases/tags/v{KWOK}"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file to download; ``digest`` is the hex digest by ``algorithm``."""

    url: str
    algorithm: str
    digest: str


def go_platform(system: str, machine: str) -> tuple[str, str]:
    """Return operating system and processor in Go's words."""
    return system.lower(), _MACHINES.get(machine.lower(), machine.lower())


def envtest_archive(index: Any, version: str, os_name: str, arch: str) -> Artifact | None:
    """Return the archive of a version, or of the newest patch of its minor version for the platform."""
    found: dict[tuple[int, ...], Artifact] = {}
    for release, files in index.get("releases", {}).items():
        numbers = release.removeprefix("v").split(".")
        entry = files.get(f"envtest-{release}-{os_name}-{arch}.tar.gz")
        if entry and numbers[:2] == version.split(".")[:2] and all(part.isdigit() for part in numbers):
            found[tuple(map(int, numbers))] = Artifact(entry["selfLink"], "sha512", entry["hash"])
    exact = tuple(map(int, version.split(".")))
    return found.get(exact) or (found[max(found)] if found else None)


def kwok_binary(release: Any, os_name: str, arch: str) -> Artifact | None:
    """Return the program among a release's files, if its checksum is published."""
    for asset in release.get("assets", []):
        algorithm, _, digest = (asset.get("digest") or "").partition(":")
        if asset["name"] == f"kwok-{os_name}-{arch}" and digest:
            return Artifact(asset["browser_download_url"], algorithm, digest)
    return None


def fetch(
    names: Iterable[str],
    into: Path,
    *,
    say: Say,
    version: str = KUBERNETES,
    publishers: Publishers | None = None,
) -> None:
    """Download these programs into the folder; report and omit what fails."""
    where = publishers or Publishers()
    os_name, arch = go_platform(platform.system(), platform.machine())
    wanted = set(names)
    for step in _steps(wanted, where, version, os_name, arch):
        started = time.monotonic()
        try:
            for name, content in step():
                _write_program(name, content, into)
                say(f"  download {name}: {time.monotonic() - started:.0f} s")
        except (OSError, HTTPException, Unusable, ValueError, yaml.YAMLError, tarfile.TarError) as error:
            say(f"  no download: {error}")


_Step = Callable[[], Iterator[tuple[str, bytes]]]


def _steps(wanted: set[str], where: Publishers, version: str, os_name: str, arch: str) -> Iterator[_Step]:
    if archived := wanted & _IN_ARCHIVE:
        yield lambda: _from_envtest(archived, where.envtest, version, os_name, arch)
    if released := wanted & _IN_RELEASE:
        yield lambda: _from_release(released, f"{where.kubernetes}/v{version}/bin/{os_name}/{arch}")
    if "kwok" in wanted:
        yield lambda: _from_kwok(where.kwok, os_name, arch)


def _from_envtest(
    names: set[str], index_url: str, version: str, os_name: str, arch: str
) -> Iterator[tuple[str, bytes]]:
    archive = envtest_archive(yaml.safe_load(_read(index_url)), version, os_name, arch)
    if archive is None:
        raise Unusable(f"envtest has no Kubernetes {version} for {os_name}/{arch}")
    with tarfile.open(fileobj=io.BytesIO(_checked(archive)), mode="r:gz") as tar:
        for member in tar:
            name = Path(member.name).name
            if name in names and member.isfile() and (content := tar.extractfile(member)):
                yield name, content.read()


def _from_release(names: set[str], base: str) -> Iterator[tuple[str, bytes]]:
    for name in sorted(names):
        digest = _read(f"{base}/{name}.sha512").decode().split()[0]
        yield name, _checked(Artifact(f"{base}/{name}", "sha512", digest))


def _from_kwok(release_url: str, os_name: str, arch: str) -> Iterator[tuple[str, bytes]]:
    artifact = kwok_binary(json.loads(_read(release_url)), os_name, arch)
    if artifact is None:
        raise Unusable(f"kwok {KWOK} has no checked program for {os_name}/{arch}")
    yield "kwok", _checked(artifact)


def _checked(artifact: Artifact) -> bytes:
    content = _read(artifact.url)
    if hashlib.new(artifact.algorithm, content).hexdigest() != artifact.digest.lower():
        raise Unusable(f"{artifact.url} does not have the published {artifact.algorithm}")
    return content


def _read(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
            body: bytes = response.read()
            return body
    except OSError as error:
        raise Unusable(f"{url}: {error}") from error


def _write_program(name: str, content: bytes, into: Path) -> None:
    """Write a temporary file and rename it, so that the name always stands for a whole program."""
    with tempfile.NamedTemporaryFile(dir=into, prefix=f".{name}-", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            path = Path(file.name)
            path.chmod(0o755)
            shutil.move(path, into / name)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
