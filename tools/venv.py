"""Makes a virtual environment of exactly what a lock file says, with this project in it.

    python3 tools/venv.py .venv requirements/dev.txt
    python3 tools/venv.py .venv-3.13 requirements/dev.txt 3.13     # of this Python version: see tools/python.py

Nothing is done when the environment already follows the lock and the project's description. Everything is installed
by hash; the project itself comes last, editable, with the build backend of the lock.

Standard library only, and nothing that a Python too old for the project could not read: it has to say so.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

OLDEST = (3, 11)
NEWEST_LOOKED_FOR = 14
PROGRESS_EVERY_SECONDS = 30.0
STAMP = "rallypoint.stamp"
PROJECTS = ("./deploy/operator", ".")
"""The folders whose pyproject.toml describe this project's distributions, the required one first."""

TOO_OLD = (
    "error: {name} is Python {version}, and {oldest[0]}.{oldest[1]} or newer is needed. Install one (apt-get install "
    "python3 python3-venv, https://www.python.org/downloads) or name it: make PYTHON=/path/to/python3.12 ..."
)
NO_VENV = (
    "error: this Python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv"
)


def main(directory: Path, lock: Path) -> int:
    python, stamp = directory / "bin" / "python", directory / STAMP
    # What counts is the environment's own Python: environments that several Pythons share are left alone.
    if stamp.is_file() and usable(python) and stamp.read_text() == fingerprint(lock, version_of(python)):
        print(f"{directory} follows {lock}")
        return 0
    create(directory)
    install(python, lock)
    stamp.write_text(fingerprint(lock, version_of(python)))
    return 0


def fingerprint(lock: Path, version: str = sys.version) -> str:
    """Changes with whatever decides what is installed."""
    digest = hashlib.sha256(version.encode())
    for path in (lock, *(Path(project, "pyproject.toml") for project in PROJECTS), Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def usable(python: Path) -> bool:
    """Whether an interpreter runs and is new enough."""
    try:
        return subprocess.call([str(python), "-c", f"import sys; sys.exit(sys.version_info < {OLDEST})"]) == 0
    except OSError:
        return False


def version_of(python: Path) -> str:
    """``sys.version`` of an interpreter."""
    command = [str(python), "-c", "import sys; sys.stdout.write(sys.version)"]
    return subprocess.check_output(command).decode()


def create(directory: Path) -> None:
    """Leaves a working environment alone; what is installed in it is brought in line by ``install``."""
    if usable(directory / "bin" / "python"):
        return
    if directory.exists():
        shutil.rmtree(str(directory))
    if run_with_progress(f"creating {directory}", [sys.executable, "-m", "venv", str(directory)]):
        shutil.rmtree(str(directory), ignore_errors=True)
        sys.exit(NO_VENV)


def install(python: Path, lock: Path) -> None:
    pins = [line.split("==")[0] for line in lock.read_text().splitlines() if "==" in line.split(";")[0]]
    # On Linux, torch comes with CUDA's libraries and needs them to be there, even where there is no GPU.
    size = ", about 3 GB because of torch" if "torch" in pins else ""
    # The lock names every package, so that there is nothing to resolve.
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    editable = [argument for project in PROJECTS for argument in ("--editable", project)]
    for what, arguments in (
        (f"installing {len(pins)} packages from {lock}{size}", ["--require-hashes", "-r", str(lock)]),
        ("installing this project", ["--no-build-isolation", *editable]),
    ):
        status = run_with_progress(what, [*pip, *arguments])
        if status:
            sys.exit(f"error: {what} failed ({status})")


def run_with_progress(what: str, command: list[str]) -> int:
    """Run a command, print every half minute that it still runs, and return its exit status."""
    started = time.monotonic()
    print(f"{what} ...", flush=True)
    with subprocess.Popen(command) as process:
        while True:
            try:
                return process.wait(PROGRESS_EVERY_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"{what} ... {time.monotonic() - started:.0f} s", flush=True)
            except BaseException:
                process.kill()
                raise


def newer_python() -> str | None:
    """Another Python on PATH that is new enough."""
    for minor in range(NEWEST_LOOKED_FOR, OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found and usable(Path(found)):
            return found
    return None


def interpreter(version: str) -> str:
    """Ends this process where there is none."""
    command = [sys.executable, str(Path(__file__).with_name("python.py")), version]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout.decode().strip()


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        other = newer_python()
        if other is None:
            sys.exit(TOO_OLD.format(name=sys.executable, version=sys.version.split()[0], oldest=OLDEST))
        os.execv(other, [other, *sys.argv])
    if len(sys.argv) > 3:
        other = interpreter(sys.argv[3])
        os.execv(other, [other, *sys.argv[:3]])
    try:
        sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
    except KeyboardInterrupt:
        sys.exit(130)
