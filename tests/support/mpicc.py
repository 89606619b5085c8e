"""The C compiler of an MPI implementation, as Debian names it."""

import re
import shutil
import subprocess

PACKAGES = {"openmpi": "libopenmpi-dev", "mpich": "libmpich-dev"}
HEADERS = "#include <mpi.h>\n#include <stdio.h>\n"


class Unusable(RuntimeError):
    """There is no compiler for MPI programs here; the message names the packages."""


def mpicc(implementation: str) -> str:
    """Return the path of this implementation's compiler, after a check that its headers are there.

    Raises:
        Unusable: the compiler or a header is missing.
    """
    name = f"mpicc.{implementation}"
    install = f"install it: apt-get install gcc libc6-dev {PACKAGES[implementation]} (tools/packages.py)"
    path = shutil.which(name)
    if path is None:
        raise Unusable(f"there is no {name} here; {install}")
    done = subprocess.run([path, "-E", "-x", "c", "-"], input=HEADERS, capture_output=True, text=True)
    if done.returncode:
        found = re.search(r"(\S+\.h): No such file", done.stderr)
        missing = found[1] if found else "working C compiler"
        raise Unusable(f"{name} finds no {missing} here; {install}")
    return path
