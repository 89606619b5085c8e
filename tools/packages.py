"""Has packages of the distribution installed that the tests run for real: MPI, sshd, a C compiler.

    python3 tools/packages.py openmpi-bin mpich openssh-server

As root, or where sudo asks for nothing, what is missing is installed by apt-get; otherwise it is named with the command
that installs it, and the exit status is 1. While another program holds one of apt's locks, this one waits. The names
are Debian's and Ubuntu's; elsewhere nothing can be looked up, and that is said.

Standard library only.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence

LOCK_SECONDS = 900
"""How long another program may hold apt's locks; an upgrade of the whole machine takes minutes."""
RETRY_SECONDS = 5
LOCKED = ("Could not get lock", "Unable to lock")
WAIT = ("-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}")
"""apt-get itself waits for dpkg's lock only, and not for those of its lists and archives."""
UPDATE = ("apt-get", *WAIT, "update", "--quiet")
INSTALL = ("apt-get", *WAIT, "install", "--yes", "--no-install-recommends")


def main(wanted: Sequence[str]) -> int:
    if shutil.which("dpkg-query") is None:
        print(f"error: this is no Debian; what the tests need is there called {' '.join(wanted)}")
        return 1
    lacking = missing(wanted)
    if not lacking:
        print("all are installed")
        return 0
    prefix = as_root()
    if prefix is None:
        command = ["apt-get", "install", *lacking]
        print(f"error: missing: {' '.join(lacking)}; as root: {' '.join(command)}")
        return 1
    apt([*prefix, *UPDATE])
    return apt([*prefix, *INSTALL, *lacking])


def missing(wanted: Iterable[str]) -> list[str]:
    return [name for name in wanted if not is_installed(name)]


def is_installed(name: str) -> bool:
    result = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Status}", name], capture_output=True, text=True
    )
    return result.stdout.endswith(" installed")


def as_root() -> list[str] | None:
    """What comes before a command that root is to run, without anybody being asked; None when it cannot be run."""
    if os.geteuid() == 0:
        return []
    if (
        shutil.which("sudo")
        and subprocess.call(["sudo", "--non-interactive", "true"], stderr=subprocess.DEVNULL) == 0
    ):
        return ["sudo", "--non-interactive"]
    return None


def apt(command: Sequence[str]) -> int:
    """Run apt-get, again and again while another program holds one of its locks; its exit status."""
    waited = 0
    while True:
        status, errors = run(command)
        if status == 0 or not any(words in errors for words in LOCKED) or waited >= LOCK_SECONDS:
            return status
        if waited == 0:
            print(f"waiting up to {LOCK_SECONDS} s for the other program to release apt's lock", flush=True)
        time.sleep(RETRY_SECONDS)
        waited += RETRY_SECONDS


def run(command: Sequence[str]) -> tuple[int, str]:
    """A command's exit status, and what it has written to standard error, which is shown as well."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        errors = ""
        for line in process.stderr:
            errors += line
            print(line, end="", flush=True)
    return process.returncode, errors


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
