"""The content of the images: programs and packages of this machine, this interpreter, and the examples."""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from rallypoint.testing import rootfs

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = Path("/rallypoint")
"""The folder of ``examples``, as in examples/Dockerfile."""
_PROGRAMS = (
    *rootfs.PROGRAMS, "chmod", "cp", "cut", "date", "dd", "expr", "false", "getent", "grep", "hostname", "kill", "seq", "tail", "timeout", "true",
)  # fmt: skip
_LOOKUP = '#!/bin/sh\nshift $(($# - 1))\nexec getent ahostsv4 "$1"\n'
_DELIVER = '#!/bin/sh\nexec cp /bin/kubectl "$TARGET_DIR/kubectl"\n'
_USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\nnonroot:x:65532:65532::/tmp:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/sh\n"
_LEFT_OUT = shutil.ignore_patterns(
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "ensurepip",
    "lib2to3",
    "config-*",
    "*.opt-*.pyc",
)
_FRAMEWORK_PACKAGES = ("libc6", "libgcc-s1", "libgomp1", "libstdc++6")
_MPI_PACKAGES = (
    "bash", "hwloc-nox", "libmpich-dev", "libmpich[0-9]*", "libopenmpi-dev", "libopenmpi[0-9]*", "libpmix2*", "mpich",
    "openmpi-bin", "openmpi-common", "openssh-client", "openssh-server",
)  # fmt: skip
_COMPILER_PACKAGES = (
    "binutils", "binutils-*-linux-gnu", "cpp-{0}*", "gcc", "gcc-{0}*", "libc6", "libc6-dev", "libgcc-{0}-dev",
    "linux-libc-dev",
)  # fmt: skip
"""``{0}`` is the version of gcc. Names of libraries contain their version, others the processor."""
_ALTERNATIVES = {"mpicc": "mpicc.openmpi", "mpirun": "orterun", "mpirun.mpich": "mpiexec.hydra"}
_UNUSED = re.compile(
    "^/usr/share/(doc|man|lintian|bug|locale)/|^/(usr/)?lib/systemd/|^/etc/(init|pam)|/gconv/|lto-?(1|dump)"
    r"|/lib(c|mpich|[a-z]+san)\.a$"
)
"""Documentation, service units, and large libraries that no example links."""


def small(folder: Path) -> Path:
    """Build a root with a shell and a few programs. Its ``nslookup`` resolves names as other programs do, whatever the search list."""
    rootfs.build(folder, _PROGRAMS)
    (folder / "etc" / "passwd").write_text(_USERS)
    (folder / "bin" / "nslookup").write_text(_LOOKUP)
    (folder / "bin" / "nslookup").chmod(0o755)
    (folder / "usr" / "bin").mkdir(parents=True)
    (folder / "usr" / "bin" / "env").symlink_to("/bin/env")
    return folder


def python(folder: Path) -> Path:
    """Copy this interpreter, its standard library and their libraries to the same paths."""
    interpreter = Path(sys.executable).resolve()
    _copy(interpreter, folder)
    for name in ("stdlib", "platstdlib"):
        path = Path(sysconfig.get_path(name, vars=_base()))
        if not _in(folder, path).exists():
            shutil.copytree(path, _in(folder, path), symlinks=True, ignore=_LEFT_OUT)
    _link(folder, interpreter)
    for path in {_in(folder, interpreter.parent), folder / "usr" / "local" / "bin"}:
        path.mkdir(parents=True, exist_ok=True)
        for name in {"python", "python3"} - {interpreter.name}:
            (path / name).symlink_to(interpreter)
    return folder


def examples(folder: Path) -> Path:
    """Copy the examples to their place in examples/Dockerfile."""
    shutil.copytree(REPOSITORY / "examples", _in(folder, EXAMPLES / "examples"))
    return folder


def frameworks(folder: Path) -> Path:
    """Copy the libraries that compiled modules of Python packages need."""
    _unpack(folder, _FRAMEWORK_PACKAGES)
    return folder


def mpi(folder: Path) -> Path:
    """Copy Open MPI, MPICH, a C compiler and an ssh server from their packages, set up as in examples/mpi/Dockerfile."""
    version = _run("gcc", "-dumpversion").strip()
    _unpack(folder, [*_MPI_PACKAGES, *(name.format(version) for name in _COMPILER_PACKAGES)])
    folders = ("bin", "sbin", "lib/gcc")
    _link(
        folder,
        *(path for name in folders for path in (folder / "usr" / name).rglob("*") if path.is_file()),
    )
    for name, path in _ALTERNATIVES.items():
        (folder / "usr" / "bin" / name).unlink(missing_ok=True)
        (folder / "usr" / "bin" / name).symlink_to(path)
    ssh = folder / "etc" / "ssh"
    (ssh / "ssh_config").write_text(
        "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
    )
    (ssh / "sshd_config").write_text("StrictModes no\n")
    _run("ssh-keygen", "-A", "-f", str(folder))
    (folder / "run" / "sshd").mkdir(parents=True)
    return folder


def kubectl(folder: Path, program: Path) -> Path:
    """Build the root of the image that copies kubectl into launchers."""
    (folder / "bin").mkdir(parents=True)
    shutil.copy2(program, folder / "bin" / "kubectl")
    (folder / "bin" / "deliver").write_text(_DELIVER)
    (folder / "bin" / "deliver").chmod(0o755)
    return folder


def _unpack(folder: Path, packages: Iterable[str]) -> None:
    """Copy the files of installed packages, links as links."""
    for line in _run("dpkg", "--listfiles", *_installed(packages)).splitlines():
        path = Path(line)
        if path.is_file() and not _UNUSED.search(line):
            _copy(path, folder, follow_symlinks=False)


def _installed(packages: Iterable[str]) -> list[str]:
    """Return the installed packages of these patterns. CalledProcessError: dpkg knows none of a pattern."""
    output = _run("dpkg-query", "--show", "--showformat=${db:Status-Abbrev}\t${binary:Package}\n", *packages)
    found = (line.split("\t") for line in output.splitlines())
    return [name for status, name in found if status.startswith("ii")]


def _base() -> dict[str, str]:
    """Return where the interpreter was installed, also if it runs from an environment."""
    return {
        "installed_base": sys.base_prefix,
        "installed_platbase": sys.base_exec_prefix,
        "base": sys.base_prefix,
        "platbase": sys.base_exec_prefix,
    }


def _link(folder: Path, *programs: Path) -> None:
    """Copy the libraries of these programs and of all modules in the folder."""
    for library in rootfs.libraries([*programs, *folder.rglob("*.so"), *folder.rglob("*.so.*")]):
        if not _in(folder, library).exists() and not _in(folder / "usr", library).exists():
            _copy(library, folder)


def _copy(path: Path, folder: Path, *, follow_symlinks: bool = True) -> None:
    target = _in(folder, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target, follow_symlinks=follow_symlinks)


def _in(folder: Path, path: Path) -> Path:
    return folder / path.relative_to("/")


def _run(*command: str) -> str:
    return subprocess.run(
        command, cwd=REPOSITORY, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    ).stdout
