"""The image's own interpreter, which this machine runs with the image's own libraries, without a container and as any user.

It compiles the image's bytecode and compresses its layers, so that neither depends on this machine's Python and zlib.
"""

import os
import platform
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tools.image import ImageError
from tools.image.debian import ARCHITECTURES
from tools.image.files import File, Tree, write
from tools.python import image_version

_COMPRESS = """\
import sys, zlib
compressor = zlib.compressobj(9, zlib.DEFLATED, 31)  # with a gzip header, which has no name and no time
sys.stdout.buffer.write(compressor.compress(sys.stdin.buffer.read()) + compressor.flush())
"""


def host_architecture() -> str:
    """Return this machine's architecture in Go's words.

    Raises:
        ImageError: it is none of the image's.
    """
    for architecture, machine in ARCHITECTURES.items():
        if (platform.system(), platform.machine()) == ("Linux", machine):
            return architecture
    raise ImageError(
        f"the image can be built on Linux on {' or '.join(ARCHITECTURES.values())}, not on this machine"
    )


class Interpreter:
    """An interpreter whose files lie in ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        (self._loader,) = (root / "usr").glob("lib*/ld-linux-*")
        (libraries,) = (root / "usr" / "lib").glob("*-linux-gnu")
        self._libraries = libraries

    @classmethod
    @contextmanager
    def unpacked(cls, base: Tree) -> Generator["Interpreter"]:
        """Write the base of this machine's architecture to a folder for the duration of the block."""
        with tempfile.TemporaryDirectory() as folder:
            write(base, Path(folder))
            yield cls(Path(folder))

    def compile(self, tree: Tree) -> Tree:
        """Return the bytecode of the modules in a tree, which is never held against them: the file system is read-only.

        Raises:
            ImageError: a module does not compile.
        """
        sources = {path: entry for path, entry in tree.items() if path.endswith(".py")}
        with tempfile.TemporaryDirectory() as folder:
            write({path: entry for path, entry in sources.items() if isinstance(entry, File)}, Path(folder))
            options = ("-q", "--invalidation-mode", "unchecked-hash", "-s", folder, "-p", "/")
            self._run("-m", "compileall", *options, folder)
            return {
                str(path.relative_to(folder)): File(path.read_bytes()) for path in Path(folder).rglob("*.pyc")
            }

    def compress(self, content: bytes) -> bytes:
        """Return the content compressed by gzip."""
        return self._run("-c", _COMPRESS, content=content)

    def _run(self, *arguments: str, content: bytes = b"") -> bytes:
        program = self._root / "usr" / "bin" / f"python{image_version()}"
        command = [str(self._loader), "--library-path", str(self._libraries), str(program), "-s", *arguments]
        # With fixed hashes, sets of constants have the same order in each compilation.
        environment = {
            "PYTHONHOME": str(self._root / "usr"),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LC_ALL": "C.UTF-8",
            "PATH": os.defpath,
        }
        done = subprocess.run(command, env=environment, input=content, capture_output=True)
        if done.returncode:
            raise ImageError(
                f"the image's Python fails here: {' '.join(arguments[:2])}: {(done.stdout + done.stderr).decode(errors='replace')}"
            )
        return done.stdout
