"""A small root file system, of programs of this machine and the libraries that they need."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

PROGRAMS = ("sh", "cat", "ls", "env", "touch", "mkdir", "rm", "sleep", "head", "id", "sort", "pwd")
_LIBRARY = re.compile(r"(/\S+)")


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
    for program in programs:
        place = Path(shutil.which(program) or program).resolve()
        shutil.copy(place, folder / "bin" / program)
        for library in _libraries(place):
            copy = folder / library.relative_to("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, copy)
    return folder


def _libraries(program: Path) -> list[Path]:
    output = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [Path(path) for path in _LIBRARY.findall(output) if path != str(program)]
