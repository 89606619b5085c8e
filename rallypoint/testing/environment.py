"""The environment of the operator's image: its locked packages and its wheel."""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(environment: Path, interpreter: Path) -> Path:
    """Make a virtual environment as the Dockerfile does: what ``requirements/operator.txt`` locks, and the operator's wheel.

    Raises:
        CalledProcessError: a package cannot be had, or the wheel cannot be built.
    """
    _run(str(interpreter), "-m", "venv", "--without-pip", str(environment))
    _install(environment, "--require-hashes", "-r", str(ROOT / "requirements" / "operator.txt"))
    with tempfile.TemporaryDirectory() as wheels:
        _install(environment, str(build_wheel(Path(wheels))))
    return environment


def build_wheel(folder: Path) -> Path:
    """Build the wheel of rallypoint-operator into a folder; hatchling comes with ``rallypoint[testing]``."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT / "deploy" / "operator", check=True)
    return next(folder.glob("rallypoint_operator-*.whl"))


def _install(environment: Path, *what: str) -> None:
    uv = Path(sys.executable).with_name("uv")
    options = ("--no-deps", "--only-binary=:all:", "--compile-bytecode", "--quiet")
    _run(str(uv), "pip", "install", *options, "--python", str(environment / "bin" / "python"), *what)


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)
