"""Atomic updates of the files of a volume: readers see either all old files or all new files.

The visible names are symbolic links into ``..data``, a symbolic link to the current folder, which a rename replaces.

Source: Kubernetes, pkg/volume/util/atomic_writer.go.
"""

import secrets
import shutil
from pathlib import Path

from rallypoint.local.node.volumes.projected import Files

DATA = "..data"


def write(folder: Path, files: Files) -> bool:
    """Make ``folder`` hold exactly ``files``; return whether anything changed."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / DATA
    before = data.readlink() if data.is_symlink() else None
    if before is not None and _is_up_to_date(folder / before, files):
        return False
    now = folder / f"..{secrets.token_hex(6)}"
    _write_files(now, files)
    visible = {path.partition("/")[0] for path in files}
    temporary = folder / "..data_tmp"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(now.name)
    temporary.rename(data)
    for name in visible:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{DATA}/{name}")
    for entry in folder.iterdir():
        if entry.is_symlink() and entry.name != DATA and entry.name not in visible:
            entry.unlink()
    if before is not None:
        shutil.rmtree(folder / before, ignore_errors=True)
    return True


def _write_files(folder: Path, files: Files) -> None:
    folder.mkdir()
    for path, file in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.data)
        target.chmod(file.mode)


def _is_up_to_date(folder: Path, files: Files) -> bool:
    existing = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return existing.keys() == {str(Path(path)) for path in files} and all(
        existing[str(Path(path))].stat().st_mode & 0o7777 == file.mode
        and existing[str(Path(path))].read_bytes() == file.data
        for path, file in files.items()
    )
