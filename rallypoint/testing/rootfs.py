"""A small root file system, of programs of this machine and the libraries that they need."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

PROGRAMS = ("sh", "cat", "ls", "env", "touch", "mkdir", "rm", "sleep", "head", "id", "sort", "pwd")
_LIBRARY = re.compile(r"=> (/\S+)|^\s*(/\S+) \(", re.MULTILINE)


def build(folder: Path, programs: Iterable[str] = PROGRAMS) -> Path:
    """Make it in ``folder``, with the usual folders and a user database."""
    for name in ("bin", "etc", "tmp", "run", "var"):
        (folder / name).mkdir(parents=True)
    (folder / "tmp").chmod(0o1777)
    (folder / "var" / "run").symlink_to("/run")
    (folder / "etc" / "passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/home:/bin/sh\n"
    )
    (folder / "etc" / "release").write_text("small\n")
    paths = {program: Path(shutil.which(program) or program).resolve() for program in programs}
    for program, path in paths.items():
        shutil.copy(path, folder / "bin" / program)
    for library in libraries(paths.values()):
        copy = folder / library.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, copy)
    return folder


def libraries(binaries: Iterable[Path]) -> set[Path]:
    """Return the libraries that these programs and libraries need."""
    output = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    return {Path(path or other) for path, other in _LIBRARY.findall(output)}
