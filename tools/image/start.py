"""Starts the image's operator, as a pod does: the image's files and nothing else, read-only, and the image's user.

Linux, as root, where sudo asks for no password, or where users may create namespaces. Another architecture's image runs under QEMU's user-mode emulation.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tools.image import ImageError
from tools.image.debian import ARCHITECTURES
from tools.image.files import Tree, write
from tools.image.interpreter import host_architecture
from tools.packages import as_root

_EMULATOR = "emulator"
_ENTER = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec chroot {user} "$0" "$@"'
IMPORT_ALL = """\
import importlib, os, pkgutil, sys
extras = {"kubernetes_asyncio", "opentelemetry"}
for package in ("api", "controller"):
    for module in pkgutil.walk_packages([os.path.join(sys.prefix, "lib", "python%d.%d" % sys.version_info[:2], "site-packages", package)], package + "."):
        try:
            module.name.endswith("__main__") or importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name.partition(".")[0] not in extras:
                raise
cached = [getattr(module, "__cached__", None) for module in list(sys.modules.values())]
print([path for path in cached if path and not os.path.exists(path)])
"""
"""Imports all modules of the operator, but those that need an extra, and prints the bytecode that is missing."""


def emulator(architecture: str) -> Path | None:
    """Return the program that runs this architecture's programs here, or None if there is none."""
    machine = ARCHITECTURES[architecture]
    found = shutil.which(f"qemu-{machine}-static") or shutil.which(f"qemu-{machine}")
    return Path(found) if found else None


class Container:
    """The files of an image on this machine, for the duration of a ``with`` block."""

    def __init__(self, config: Mapping[str, Any], layers: Sequence[Tree]) -> None:
        self._config, self._layers = config["config"], layers
        self._architecture: str = config["architecture"]

    def __enter__(self) -> Self:
        self._scratch = tempfile.TemporaryDirectory()
        self._root = Path(self._scratch.name)
        self._root.chmod(0o755)
        write({path: entry for layer in self._layers for path, entry in layer.items()}, self._root)
        self._prefix: list[str] = []
        if self._architecture != host_architecture():
            program = emulator(self._architecture)
            if program is None:
                raise ImageError(f"images for {self._architecture} do not run here: install qemu-user-static")
            shutil.copy(program, self._root / _EMULATOR)
            self._prefix = [f"/{_EMULATOR}"]
        return self

    def __exit__(self, *error: object) -> None:
        self._scratch.cleanup()

    def run(self, *arguments: str, entrypoint: Sequence[str] = ()) -> str:
        """Run the entry point, or another one, with these arguments; return its output.

        Raises:
            ImageError: it fails, or this machine allows no namespaces.
        """
        program, *rest = (*(entrypoint or tuple(self._config["Entrypoint"])), *arguments)
        variables = dict(entry.split("=", 1) for entry in self._config["Env"])
        path = next(
            f"{folder}/{program}"
            for folder in variables["PATH"].split(":")
            if os.path.lexists(f"{self._root}{folder}/{program}")
        )
        become_root = as_root()
        user = "" if become_root is None else f"--userspec={self._config['User']}"
        namespaces = ["--mount"] if user else ["--mount", "--user", "--map-root-user"]
        enter = ["unshare", *namespaces, "sh", "-c", _ENTER.format(user=user), str(self._root)]
        # The image's PATH has the folders of this machine's programs, too; sudo passes no variables on.
        command = [
            *(become_root or []),
            "env",
            "-i",
            *self._config["Env"],
            *enter,
            *self._prefix,
            path,
            *rest,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ImageError(f"the image for {self._architecture} does not start: {done.stderr.strip()}")
        return done.stdout
