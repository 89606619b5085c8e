"""Has packages of the distribution installed that the tests run for real: MPI, sshd, a C compiler.

    python3 tools/packages.py openmpi-bin mpich openssh-server

As root, or where sudo asks for nothing, what is missing is installed by apt-get; otherwise it is named with the command
that installs it, and the exit status is 1. The names are Debian's and Ubuntu's; elsewhere nothing can be looked up, and
that is said.

Standard library only.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence

INSTALL = ("apt-get", "install", "--yes", "--no-install-recommends")


def main(wanted: Sequence[str]) -> int:
    if shutil.which("dpkg-query") is None:
        print(f"error: this is no Debian; what the tests need is there called {' '.join(wanted)}")
        return 1
    lacking = missing(wanted)
    if not lacking:
        print("all are installed")
        return 0
    command = installer()
    if command is None:
        print(f"error: missing: {' '.join(lacking)}; as root: {' '.join([*INSTALL, *lacking])}")
        return 1
    subprocess.call([*command[: -len(INSTALL)], "apt-get", "update", "--quiet"])
    return subprocess.call([*command, *lacking], env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def missing(wanted: Iterable[str]) -> list[str]:
    return [name for name in wanted if not is_installed(name)]


def is_installed(name: str) -> bool:
    told = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Status}", name], capture_output=True, text=True
    )
    return told.stdout.endswith(" installed")


def installer() -> list[str] | None:
    """How packages are installed here, without anybody being asked; None when they cannot be."""
    if os.geteuid() == 0:
        return list(INSTALL)
    if (
        shutil.which("sudo")
        and subprocess.call(["sudo", "--non-interactive", "true"], stderr=subprocess.DEVNULL) == 0
    ):
        return ["sudo", "--non-interactive", *INSTALL]
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
