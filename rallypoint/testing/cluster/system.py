"""runc and nft, which come with Linux and not from Go modules: those of this machine, or of its Debian packages, unpacked aside.

Nothing is installed. The packages are those that apt would install here, checked by apt, kept in the user's cache.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rallypoint.testing.controlplane import Unavailable, binaries

PROGRAMS = ("runc", "nft")
_PACKAGES = (
    "runc", "libseccomp2", "nftables", "libnftables1", "libnftnl11", "libmnl0", "libxtables12", "libjansson4",
    "libedit2", "libbsd0", "libmd0", "libgmp10",
)  # fmt: skip
_PLACES = "/usr/sbin:/usr/bin:/sbin:/bin"


def ensure(environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Return where both programs are.

    Raises:
        Unavailable: one is missing, and so is apt or what it would download from.
    """
    installed = {name: shutil.which(name, path=_PLACES) for name in PROGRAMS}
    if all(installed.values()):
        return {name: Path(str(path)) for name, path in installed.items()}
    folder = binaries.cache_directory(environ).parent / "system"
    if not folder.exists():
        _unpack(folder)
    return {name: folder / "bin" / name for name in PROGRAMS}


def _unpack(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".system-", dir=folder.parent) as scratch:
        root = Path(scratch, "root")
        try:
            _run(scratch, "apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *_PACKAGES)
            for package in Path(scratch).glob("*.deb"):
                _run(scratch, "dpkg-deb", "-x", str(package), str(root))
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unavailable(
                f"runc and nft (nftables) are neither installed nor to be had by apt: {error}"
            ) from error
        (root / "bin").mkdir(exist_ok=True)
        for name in PROGRAMS:
            wrap(root, name)
        root.rename(folder)


def wrap(root: Path, name: str) -> None:
    """Write a script that starts a program with its libraries, by relative paths, since caches move between machines."""
    (libraries,) = {path.parent for path in root.rglob("libseccomp.so.2")}
    script = root / "bin" / name
    script.write_text(
        f"#!/bin/sh\nhere=${{0%/bin/*}}\n"
        f'exec env LD_LIBRARY_PATH="$here/{libraries.relative_to(root)}" "$here/usr/sbin/{name}" "$@"\n'
    )
    script.chmod(0o755)


def _run(folder: str, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
