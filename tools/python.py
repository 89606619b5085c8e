"""Finds a Python interpreter of one version, or gets one.

    python3 tools/python.py 3.13     # prints its path

The places are asked in this order: this interpreter, PATH, the versions of pyenv and of uv, the cache in
``~/.cache/rallypoint/python``. Otherwise Maven, if it is installed, gets a build of CPython that is published as a jar
(Linux on x86_64), which is checked against its digest and unpacked into the cache.

Standard library only, and nothing that a Python too old for the project could not read.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

DOCKERFILE = Path(__file__).resolve().parents[1] / "Dockerfile"
PROBE = "import sys, ssl, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
ARTIFACT = "org.bytedeco:cpython:{version}:jar:linux-x86_64"
FOLDER = "org/bytedeco/cpython/linux-x86_64/"


class Build(NamedTuple):
    """A published build: its version, and the SHA-256 of its jar."""

    version: str
    digest: str


BUILDS = {
    "3.13": Build("3.13.5-1.5.12", "50ad91aa0baa57f0235bb666b87d8bf2a44e215d28c250de1030502906af143b"),
    "3.14": Build("3.14.3-1.5.13", "eb5f1a6fe2dc498ac18927189a37f28a47b0ba06ae6bd85112eff023fe2eb46f"),
}


class Missing(Exception):
    """There is no interpreter of that version, and none can be had."""


def image_version() -> str:
    """The Python version of the image; the Dockerfile is the only place that says it."""
    match = re.search(r"^ARG PYTHON=(\d+\.\d+)$", DOCKERFILE.read_text(), re.MULTILINE)
    if match is None:
        raise Missing(f"{DOCKERFILE} names no Python version")
    return match.group(1)


def interpreter(version: str) -> Path:
    """Return an interpreter of this version, such as ``3.13``; the first time, get one if need be.

    Raises:
        Missing: there is none.
    """
    for candidate in candidates(version):
        if runs(candidate, version):
            return candidate
    return get(version)


def candidates(version: str) -> list[Path]:
    """Where an interpreter of this version may be."""
    name = f"python{version}"
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local/share/uv/python")
    installed = [*(pyenv / "versions").glob(f"{version}.*"), *uv.glob(f"cpython-{version}.*")]
    return [
        Path(sys.executable),
        *(Path(folder, name) for folder in folders),
        *(folder / "bin" / name for folder in installed),
        *([cached(version)] if version in BUILDS else []),
    ]


def runs(path: Path, version: str) -> bool:
    """Whether this is an interpreter of this version that can make environments."""
    if not os.access(str(path), os.X_OK):
        return False
    try:
        done = subprocess.run([str(path), "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.decode().strip() == version


def cached(version: str) -> Path:
    """Where the interpreter of a published build lies, once it is unpacked."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "rallypoint" / "python" / BUILDS[version].version / f"python{version}"


def get(version: str) -> Path:
    """Have Maven get a published build, and unpack it into the cache.

    Raises:
        Missing: there is no build of this version for this machine, or it cannot be had.
    """
    help_ = f"install it, for example with pyenv or uv, so that python{version} is on PATH"
    if version not in BUILDS or (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Missing(f"there is no Python {version} here: {help_}")
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing(f"there is no Python {version} here, nor Maven to get one: {help_}")
    build, target = BUILDS[version], cached(version).parent
    artifact = ARTIFACT.format(version=build.version)
    print(f"getting {artifact} ...", file=sys.stderr, flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=str(target.parent)) as folder:
        command = [maven, "--batch-mode", "--quiet", f"-Dmaven.repo.local={folder}/repository"]
        command += ["dependency:get", "-Dtransitive=false", f"-Dartifact={artifact}"]
        status = subprocess.call(command, stdout=sys.stderr)
        jars = list(Path(folder, "repository/org/bytedeco/cpython").rglob("*.jar"))
        if status or not jars:
            raise Missing(f"{artifact} could not be had ({status}): {help_}")
        if hashlib.sha256(jars[0].read_bytes()).hexdigest() != build.digest:
            raise Missing(f"{artifact} is not what it was: its SHA-256 is not {build.digest}")
        unpack(jars[0], Path(folder, "python"), version)
        if target.exists():
            shutil.rmtree(str(target))
        Path(folder, "python").replace(target)
    if not runs(cached(version), version):
        raise Missing(f"{cached(version)} does not run here: {help_}")
    return cached(version)


def unpack(jar: Path, target: Path, version: str) -> None:
    """Extract the interpreter and its library from the jar."""
    with zipfile.ZipFile(str(jar)) as archive:
        names = [name for name in archive.namelist() if name.startswith(FOLDER)]
        with tempfile.TemporaryDirectory(dir=str(target.parent)) as folder:
            archive.extractall(folder, names)
            Path(folder, FOLDER).replace(target)
    (target / f"python{version}").chmod(0o755)


if __name__ == "__main__":
    try:
        print(interpreter(sys.argv[1]))
    except Missing as error:
        sys.exit(f"error: {error}")
